"""Numeric fields of stored rows, extracted and summed by SQLite.

A week of eight devices is half a million rows: parsing them in Python takes ten times as long as a
report may. The text of a raw row is a field set, whose names are sorted and contain no quotation
mark. Only measurements may be read whose texts contain neither commas nor equals signs (all but
`event`, `alert`, `serving` and `budget`): a text could look like a field.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Container, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from costprobe.adapters.storage.rollup.aggregation import number_in
from costprobe.adapters.storage.rollup.rollup import HOURS, MINUTES
from costprobe.adapters.storage.rollup.wanted_cells import WantedCells
from costprobe.core.line_protocol import field_key
from costprobe.core.row_spans import RowEnd

# The longest text of a float: a sign, 17 digits, a point, and an exponent.
_NUMBER_CHARS: Final = 24

Layouts = Mapping[int, Sequence[str]]
# The earliest time in UTC ns, the end of the rows, and their sum.
Summed = tuple[int, RowEnd, float]


def raw_number(field: str) -> str:
    """Return the SQL of a numeric field of a raw row; NULL if it is absent."""
    name = field_key(field)
    first, later = (f"x'{text.encode().hex()}'" for text in (f"{name}=", f",{name}="))
    length = len(name.encode()) + 1
    row = "CAST(fields AS BLOB)"  # offsets in a text are counted from its start

    def number_at(position: str) -> str:
        return f"CAST(CAST(substr({row}, {position}, {_NUMBER_CHARS}) AS TEXT) AS REAL)"

    later_at = f"nullif(instr({row}, {later}), 0) + {length + 1}"
    return (
        f"iif(substr({row}, 1, {length}) = {first}, {number_at(str(length + 1))},"
        f" {number_at(later_at)})"
    )


def rolled_number(field: str, layouts: Layouts, *, highest: bool = False) -> str:
    """Return the SQL of a numeric field of an aggregated row; NULL if it is absent.

    Args:
        field: Name of the field.
        layouts: Field names of all layouts.
        highest: Whether to return the highest of the aggregated values instead of the value.
    """
    value = "coalesce(json_extract(cells, '$[{0}][0]'), json_extract(cells, '$[{0}]'))"
    high = "json_extract(cells, '$[{0}][2]')"
    return _by_layout(field, layouts, f"coalesce({high}, {value})" if highest else value)


def _rolled_count(field: str, layouts: Layouts) -> str:
    """Return the SQL of the number of rows with a total, of an aggregated row."""
    return _by_layout(field, layouts, "coalesce(json_extract(cells, '$[{0}][1]'), rows)")


def _by_layout(field: str, layouts: Layouts, text: str) -> str:
    cases = [
        f"WHEN {number} THEN {text.format(list(names).index(field))}"
        for number, names in layouts.items()
        if field in names
    ]
    return f"CASE layout_id {' '.join(cases)} END" if cases else "NULL"


def rows_sql(fields: Sequence[str], highest: Sequence[str], layouts: Layouts) -> str:
    """Return a query for fields of the rows of a series in order of time.

    Its columns are the time, the period of the row in s (0 for a raw one), the newest time and the
    number of rows in it, then the fields. Its parameters are :series, :since, :until and :limit.

    Args:
        fields: The numeric fields.
        highest: Those of them whose highest value is wanted of an aggregated row.
        layouts: Field names of all layouts.
    """
    raw = ", ".join(raw_number(field) for field in fields)
    rolled = ", ".join(rolled_number(field, layouts, highest=field in highest) for field in fields)
    within = "WHERE series_id = :series AND time_ns >= :since AND time_ns < :until"
    tables = [f"SELECT time_ns, 0, time_ns, 1, {raw} FROM points {within}"]  # noqa: S608 - literals and names of fields
    tables += [
        f"SELECT time_ns, {tier.period_s}, newest_ns, rows, {rolled} FROM {tier.table} {within}"  # noqa: S608 - as above
        for tier in (MINUTES, HOURS)
    ]
    return f"{' UNION ALL '.join(tables)} ORDER BY time_ns LIMIT :limit"


def hourly_sums(
    connection: sqlite3.Connection,
    series_id: int,
    fields: Sequence[str],
    edges_ns: Sequence[int],
    layouts: Layouts,
    known_ns: Container[int] = (),
) -> dict[str, list[Summed]]:
    """Return the sums of totals in each part of a time range, from each table, by their field.

    Args:
        connection: The store, in a transaction.
        series_id: The series.
        fields: Totals, such as `cost` and `energy_j`.
        edges_ns: The full hours, and other instants that divide the range, ascending; UTC in ns.
        layouts: Field names of all layouts.
        known_ns: Starts of the parts whose sums are known from a summary: they are left out.
    """
    found: dict[str, list[Summed]] = {field: [] for field in fields}
    parts = (series_id, edges_ns, known_ns)
    raw = [(number, f"count({number})") for number in map(raw_number, fields)]
    _add_sums(found, connection, "points", parts, "time_ns", raw)
    rolled = []
    for field in fields:
        number, count = rolled_number(field, layouts), _rolled_count(field, layouts)
        rolled.append((number, f"sum(iif({number} IS NULL, 0, {count}))"))
    _add_sums(found, connection, MINUTES.table, parts, "newest_ns", rolled)
    # A row of an hour is a part of its own.
    cells = WantedCells(frozenset(fields), layouts, layouts.__getitem__)
    rows = connection.execute(
        f"SELECT layout_id, time_ns, newest_ns, rows, {cells.sql} FROM {HOURS.table}"  # noqa: S608 - literals
        " WHERE series_id = ? AND time_ns >= ? AND time_ns < ?",
        (series_id, edges_ns[0], edges_ns[-1]),
    )
    for layout_id, group in groupby(rows, itemgetter(0)):
        of_layout = list(group)
        names, all_cells = cells.decoded(layout_id, [row[-1] for row in of_layout])
        wanted = [(summed, names.index(name)) for name, summed in found.items() if name in names]
        for (_, time_ns, newest_ns, count, _), row_cells in zip(of_layout, all_cells, strict=True):
            end = RowEnd(newest_ns, count)
            for summed, at in wanted:
                if (cell := number_in(row_cells[at], count)) is not None:
                    own = end if cell[1] == count else RowEnd(newest_ns, cell[1])
                    summed.append((time_ns, own, cell[0]))
    return found


def _add_sums(
    found: Mapping[str, list[Summed]],
    connection: sqlite3.Connection,
    table: str,
    parts: tuple[int, Sequence[int], Container[int]],
    end: str,
    columns: Sequence[tuple[str, str]],
) -> None:
    """Add the sums of one table: one statement for each part, because GROUP BY would sort.

    Args:
        found: Sums by field.
        connection: The store.
        table: Name of the table.
        parts: The series, the edges of the parts, and the starts of those that are left out.
        end: Column with the newest time of a row.
        columns: SQL of the number of each field, and of the rows that have it.
    """
    series_id, edges_ns, known_ns = parts
    source = f"FROM {table} WHERE series_id = ? AND time_ns >= ? AND time_ns < ?"
    whole = (series_id, edges_ns[0], edges_ns[-1])
    # One statement each is one seek each.
    (first_ns,) = connection.execute(f"SELECT min(time_ns) {source}", whole).fetchone()
    (last_ns,) = connection.execute(f"SELECT max(time_ns) {source}", whole).fetchone()
    if first_ns is None:
        return
    sums = ", ".join(f"{rows}, sum({number})" for number, rows in columns)
    sql = f"SELECT min(time_ns), max({end}), {sums} {source}"
    first, last = bisect_right(edges_ns, first_ns) - 1, bisect_left(edges_ns, last_ns + 1)
    for index in range(first, last):
        if edges_ns[index] in known_ns:
            continue
        part = (series_id, edges_ns[index], edges_ns[index + 1])
        earliest_ns, newest_ns, *summed = connection.execute(sql, part).fetchone()
        for field_sums, count, total in zip(found.values(), summed[::2], summed[1::2], strict=True):
            if total is None:
                continue
            is_raw = end == "time_ns"
            step_ns = (newest_ns - earliest_ns) // (count - 1) if is_raw and count > 1 else 0
            field_sums.append((earliest_ns, RowEnd(newest_ns, count, step_ns), total))


def hour_edges(since_ns: int, until_ns: int, cuts_ns: Sequence[int] = ()) -> list[int]:
    """Return the ends of a time range, its full hours in UTC, and further instants within it."""
    first = HOURS.floor(since_ns) + HOURS.period_ns
    hours = range(first, until_ns, HOURS.period_ns)
    return sorted({since_ns, *hours, *(c for c in cuts_ns if since_ns < c < until_ns), until_ns})
