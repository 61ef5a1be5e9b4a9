"""Samples of a long history, spread evenly over time, in time independent of its length.

Three months of eight devices are a million rows, of which a chart shows some hundred. The time range
is divided into equal intervals, and in each the row at or after one instant is read. The position of
the instant within its interval varies (golden-ratio sequence), so that the sample does not alias with
hourly or daily patterns.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.adapters.storage.rollup.rolled import FoundRow
from costprobe.adapters.storage.rollup.rollup import HOURS, MINUTES

# Fractional parts of its multiples fill the unit interval evenly (low-discrepancy sequence).
_GOLDEN: Final = 0.6180339887498949

# Fewest rows that are read of a series, however many series there are.
SHARE_ROWS_MIN: Final = 32


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of rows.

    Attributes:
        name: Name of the table.
        period_s: Length in s of the period of a row; 0 for raw rows.
        columns: Columns of `FoundRowRow` after time and period.
    """

    name: str
    period_s: int
    columns: str


_TABLES: Final = (
    _Table("points", 0, "fields, 0, 0, 0"),
    _Table(MINUTES.table, MINUTES.period_s, "cells, newest_ns, rows, layout_id"),
    _Table(HOURS.table, HOURS.period_s, "cells, newest_ns, rows, layout_id"),
)
_WITHIN = "series_id = :series AND time_ns >= :since AND time_ns < :until"


@dataclass(frozen=True, slots=True)
class SeriesRange:
    """The rows of a series in a time range; the end is excluded.

    Attributes:
        series_id: Id of the series.
        since_ns: UTC ns.
        until_ns: UTC ns.
    """

    series_id: int
    since_ns: int
    until_ns: int

    def parameters(self, **more: int | str) -> dict[str, int | str]:
        """Return the parameters of a statement."""
        return {
            "series": self.series_id,
            "since": self.since_ns,
            "until": self.until_ns,
            **more,
        }


def spread(
    connection: sqlite3.Connection, ranges: Sequence[SeriesRange], sample: int
) -> list[list[FoundRow] | None]:
    """Return a sample for each series; None where every row is to be read.

    Args:
        connection: The store, in a transaction: a row aggregated meanwhile would be missed.
        ranges: The rows of each series.
        sample: Most rows of all series together, unless there are very many series. Looking up a
            row takes longer than reading it in order: of a longer history two thirds are sampled.
    """
    # Counting takes time too: first up to an equal share, then up to what other series leave.
    even = max(SHARE_ROWS_MIN, sample // max(1, len(ranges)))
    counts = [count_rows(connection, range_, even + 1) for range_ in ranges]
    long = sum(count > even for count in counts)
    left = sample - sum(count for count in counts if count <= even)
    share = max(even, left // max(1, long))
    return [
        None
        if count <= even or count_rows(connection, range_, share + 1) <= share
        else spread_rows(connection, range_, max(SHARE_ROWS_MIN, share * 2 // 3))
        for range_, count in zip(ranges, counts, strict=True)
    ]


def count_rows(connection: sqlite3.Connection, range_: SeriesRange, limit: int) -> int:
    """Count rows, up to about `limit`.

    Args:
        connection: The store.
        range_: The rows.
        limit: Greater than 0.
    """
    total = 0
    for table in _TABLES:
        sql = (
            f"SELECT count(*) FROM (SELECT 1 FROM {table.name}"  # noqa: S608 - literals
            f" WHERE {_WITHIN} LIMIT :limit)"
        )
        (count,) = connection.execute(sql, range_.parameters(limit=limit)).fetchone()
        total += count
    return total


def spread_rows(connection: sqlite3.Connection, range_: SeriesRange, count: int) -> list[FoundRow]:
    """Return about `count` rows in order of time: the first, the last, and one of each interval.

    An interval without a row adds none; if two tables have one, the earlier counts.

    Args:
        connection: The store, in a transaction.
        range_: The rows.
        count: Number of intervals; greater than 0.
    """
    bounds = [(table, *_bounds(connection, range_, table)) for table in _TABLES]
    held = [(table, first, last) for table, first, last in bounds if first is not None]
    if not held:
        return []
    first_ns, last_ns = min(first for _, first, _ in held), max(last for _, _, last in held)
    step_ns = max(1, (last_ns - first_ns) // count)
    times_ns = [
        first_ns,
        *(first_ns + int(step_ns * (index + index * _GOLDEN % 1)) for index in range(count)),
        last_ns,
    ]
    nearest: dict[int, FoundRow] = {}
    for table, first, last in held:
        near = [time_ns for time_ns in times_ns if first - step_ns <= time_ns <= last]
        for time_ns, row in zip(near, _at_or_after(connection, range_, table, near), strict=True):
            previous = nearest.get(time_ns)
            if previous is None or row.time_ns < previous.time_ns:
                nearest[time_ns] = row
    rows = {(row.time_ns, row.period_s): row for row in nearest.values()}
    return [rows[key] for key in sorted(rows)]


def _bounds(
    connection: sqlite3.Connection, range_: SeriesRange, table: _Table
) -> tuple[int, int] | tuple[None, None]:
    """Return the times of the first and last row of a table; one statement each is one seek each."""
    first, last = (
        connection.execute(
            f"SELECT {end}(time_ns) FROM {table.name} WHERE {_WITHIN}",  # noqa: S608 - literals
            range_.parameters(),
        ).fetchone()[0]
        for end in ("min", "max")
    )
    return first, last


def _at_or_after(
    connection: sqlite3.Connection, range_: SeriesRange, table: _Table, times_ns: list[int]
) -> list[FoundRow]:
    """Return the row of a table at or after each time; times are not after its last row."""
    sql = (
        f"SELECT time_ns, {table.period_s}, {table.columns}"  # noqa: S608 - literals
        f" FROM json_each(:times) AS wanted CROSS JOIN {table.name} ON series_id = :series"
        f" AND time_ns = (SELECT min(time_ns) FROM {table.name}"
        " WHERE series_id = :series AND time_ns >= wanted.value AND time_ns < :until)"
        " ORDER BY wanted.id"
    )
    parameters = range_.parameters(times=json.dumps(times_ns))
    return [FoundRow._make(row) for row in connection.execute(sql, parameters)]
