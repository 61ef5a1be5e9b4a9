"""Many rows as one of an hour: what becomes of each field, and the rows that older versions stored.

An hour row is a field set as that of any row. A sum, a maximum or a newest value stands under the
name of its field; a mean or a median too, with its range under `_min` and `_max`. Where fewer rows
had the field, their number stands under `_rows`. Rows of a part of an hour, such as a late one, are
added to it by the same rules.
"""

from __future__ import annotations

import logging
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from heapq import merge
from itertools import chain, groupby, starmap
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, get_args

from costprobe.core.hours import packed_document
from costprobe.core.line_protocol import field_set, parse_field_set
from costprobe.core.outside import SHAPE_ERRORS, UnusableInputError, bounded_json, one_line
from costprobe.core.periods import HOUR_NS
from costprobe.core.records import FieldValue
from costprobe.core.schema import SCHEMA, SERVING_RATIOS, SERVING_SUMS, Measure

logger = logging.getLogger(__name__)

Aggregation = Literal["sum", "mean", "median", "max", "any", "all", "last"]

LOW, HIGH, ROWS = _ADDED = "_min", "_max", "_rows"
# Significant digits of readings: sensors are accurate to percents.
_DIGITS: Final = 7
_TIME_NS_MIN: Final = -(2**63)  # the range of a column

_KINDS: Final[Mapping[str, Mapping[Aggregation, frozenset[str]]]] = {
    "device": {
        # Totals of the interval of each row.
        "sum": frozenset(
            [
                "energy_j",
                "dram_energy_j",
                "cost",
                "carbon_g",
                "carbon_energy_j",
                "throttle_power_s",
                "throttle_thermal_s",
            ]
        ),
        "max": frozenset({"power_max_w", "processes"}),
        # Counters since boot, and settings.
        "last": frozenset({"ecc_uncorrected", "mem_total_bytes", "power_limit_w"}),
    },
    "probe": {
        # Tokens are means of a request here.
        "sum": frozenset({"samples", "samples_delayed", "outliers", "requests", "errors"}),
        "max": frozenset({"temp_max_c"}),
        "last": frozenset({"ecc_uncorrected", "threads", "power_limit_w", "latency_spread"}),
    },
    "cost": {
        "sum": frozenset({*SERVING_SUMS, "window_s"}),
        # These are rolling windows already.
        "last": frozenset(
            f"rolling_{window}{suffix}"
            for window in ("1h", "24h", "7d")
            for suffix in ("", "_iqr", "_coverage")
        ),
    },
    "serving": {
        "sum": frozenset({*get_args(Measure), "window_s", "restarts", "readings"}),
        "mean": frozenset({"busy_share", "kv_cache_share", "requests_waiting"}),
        "all": frozenset({"complete"}),
    },
    "budget": {
        # Status of a budget period.
        "last": frozenset(
            [
                "amount",
                "spent",
                "forecast",
                "forecast_low",
                "forecast_high",
                "coverage",
                "elapsed_share",
                "period_start_ns",
                "period_end_ns",
            ]
        ),
    },
    "server": {"sum": frozenset(SCHEMA["server"].fields) - {"power_w", "energy_method"}},
    "software": {"sum": frozenset({"probe_runs"})},
    "allocation": {"sum": frozenset({"cost", "cost_hardware", "cost_energy"})},
    "tenant": {"sum": frozenset(SCHEMA["tenant"].fields)},
    "slo": {
        "sum": frozenset({"requests", "requests_met"}),
        "last": frozenset({"bound_ms", "within_ms"}),
    },
    "agent": {
        "last": frozenset(
            ["cpu_s", "sent_points", "dropped_points", "late_jobs", "child_restarts"]
        ),
    },
}
# A few samples an hour with possible outliers: the median is robust.
SAMPLED: Final = frozenset({"probe", "cost", "serving", "allocation", "tenant"})

# These are never aggregated.
NEVER_AGGREGATED: Final = frozenset({"event", "alert", "sweep", "cold_start", "calibration"})


class Part(NamedTuple):
    """One or more rows as one.

    Attributes:
        newest_ns: UTC ns of the newest of them.
        rows: Their number.
        fields: Their fields, as those of an hour row if there are several.
    """

    newest_ns: int
    rows: int
    fields: Mapping[str, FieldValue]


class _Cell(NamedTuple):
    """A field of a part: its value, the number of rows that had it, and their range."""

    value: Any
    rows: Any
    low: Any
    high: Any


def hour_of(time_ns: int) -> int:
    """Return the start of the hour of a time, UTC ns."""
    return max(time_ns // HOUR_NS * HOUR_NS, _TIME_NS_MIN)


def values_of(fields: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
    """Return the fields of an hour row without ranges and numbers of rows."""
    return {name: v for name, v in fields.items() if not name.endswith(_ADDED)}


def kind_of(measurement: str, field: str, value: FieldValue) -> Aggregation:
    """Return how values of a field are aggregated.

    Args:
        measurement: Name of the series family.
        field: Name of the field.
        value: One of its values, for its type.
    """
    if isinstance(value, str):
        return "last"
    for kind, fields in _KINDS.get(measurement, {}).items():
        if field in fields:
            return kind
    if isinstance(value, bool):
        return "any"
    return "median" if measurement in SAMPLED else "mean"


def aggregate(measurement: str, parts: Sequence[Part]) -> dict[str, FieldValue]:
    """Return the fields of an hour row; exact except for a median of parts, which is their mean.

    A field that changed its type is aggregated by its last type; a sum beyond the range of a float
    is not finite.

    Args:
        measurement: Name of the series family.
        parts: The rows, oldest first.
    """
    if len(parts) == 1 and parts[0].rows > 1:
        return dict(parts[0].fields)
    columns: dict[str, list[_Cell]] = {}
    for _, rows, fields in parts:
        for name, value in fields.items():
            cell = _Cell(value, 1, value, value)
            if rows > 1:
                if name.endswith(_ADDED):
                    continue
                low, high = fields.get(name + LOW, value), fields.get(name + HIGH, value)
                cell = _Cell(value, fields.get(name + ROWS, rows), low, high)
            columns.setdefault(name, []).append(cell)
    total = sum(part.rows for part in parts)
    found: dict[str, FieldValue] = {}
    for name, cells in columns.items():
        one = _one(kind_of(measurement, name, cells[-1].value), cells)
        found[name] = one.value
        if not one.low == one.high == one.value:
            found[name + LOW], found[name + HIGH] = one.low, one.high
        if one.rows != total:
            found[name + ROWS] = one.rows
    return _with_ratios(found) if measurement == "cost" and total > 1 else found


def _one(kind: Aggregation, cells: Sequence[_Cell]) -> _Cell:
    last = cells[-1].value
    numbers = [
        (cell.value, cell)
        for cell in cells
        if isinstance(cell.value, int | float) and not isinstance(cell.value, bool)
    ]
    if kind == "last" or isinstance(last, bool):
        count = sum(cell.rows for cell in cells)
        if kind != "last":
            are = [cell.value is True for cell in cells]
            last = all(are) if kind == "all" else any(are)
        return _Cell(last, count, last, last)
    count = sum(cell.rows for _, cell in numbers)
    if kind in {"max", "sum"}:
        values = [value for value, _ in numbers]
        most = max(values) if kind == "max" else sum(values)
        return _Cell(most, count, most, most)
    if kind == "median" and count == len(numbers):
        middle = _median([value for value, _ in numbers])
    else:
        middle = sum(value * (cell.rows / count) for value, cell in numbers)
    low = min(cell.low for _, cell in numbers)
    high = max(cell.high for _, cell in numbers)
    if isinstance(low, int) and isinstance(high, int):
        # A database has fixed the type of the field: its mean is an integer too.
        return _Cell(round(middle), count, low, high)
    return _Cell(_short(middle), count, _short(low), _short(high))


def _median(numbers: Sequence[float]) -> float:
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else ordered[middle - 1] / 2 + ordered[middle] / 2


def _with_ratios(found: dict[str, FieldValue]) -> dict[str, FieldValue]:
    """Return an hour row of `cost` with ratios of production as ratios of sums."""
    sums = {name: float(found[name]) for name in SERVING_SUMS if name in found}
    for name, ratio in SERVING_RATIOS.items() if "cost_total" in found else ():
        value = ratio.of(sums)
        # Sums over different windows, such as those with a known energy, make no ratio.
        is_whole = found.get(ratio.over + ROWS) == found.get(ratio.per + ROWS)
        if name in found and value is not None and is_whole:
            for which in (LOW, HIGH):
                found.setdefault(name + which, found[name])
            found[name] = _short(value)
    return found


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")


def undecodable(connection: sqlite3.Connection) -> Iterator[tuple[str, int, int, int, str]]:
    """Yield the rows whose fields cannot be parsed: table, row id, series, UTC ns, text."""
    sql = "SELECT rowid, series_id, time_ns, typeof(fields), CAST(fields AS BLOB) FROM "
    for table in ("points", "hours"):
        for row_id, series_id, time_ns, kind, content in connection.execute(sql + table):
            try:
                parse_field_set(content.decode() if kind == "text" else "no text")
            except ValueError:
                text = one_line(content.decode(errors="replace"))
                yield table, row_id, series_id, time_ns, text


def set_aside(connection: sqlite3.Connection, series_id: int, time_ns: int, text: str) -> None:
    """Keep a row that cannot be decoded where no reader meets it."""
    connection.execute(
        "INSERT INTO set_aside SELECT key || ' ' || ? || ' ' || ? FROM series WHERE id = ?",
        (text, time_ns, series_id),
    )
    logger.warning("a damaged row of series %d at %d ns was set aside", series_id, time_ns)


_OldRow = tuple[int, int, int, int, int, str]


def convert_rollups(connection: sqlite3.Connection) -> None:
    """Turn the rows of a minute and of an hour that older versions stored into hour rows."""
    layouts = dict(connection.execute("SELECT id, names FROM layouts").fetchall())
    measurements = dict(connection.execute("SELECT id, measurement FROM series").fetchall())
    tables = [
        connection.execute(
            f"SELECT series_id, time_ns, newest_ns, rows, layout_id, cells FROM {table}"  # noqa: S608 - literals
            " ORDER BY series_id, time_ns"
        )
        for table in ("rollups_1m", "rollups_1h")
    ]

    def hour(row: _OldRow) -> tuple[int, int]:
        return row[0], hour_of(row[1])

    for (series_id, hour_ns), rows in groupby(merge(*tables, key=hour), key=hour):
        parts = sorted(_old_parts(connection, rows, layouts), key=itemgetter(0))
        if parts:
            where = (series_id, hour_ns)
            load = _old_load(connection, where)
            insert_hour(connection, where, measurements[series_id], parts, load=load)


def _old_load(connection: sqlite3.Connection, where: tuple[int, int]) -> bytes | None:
    found = connection.execute(
        "SELECT document FROM summaries WHERE kind = 'load' AND series_id = ? AND time_ns = ?",
        where,
    ).fetchone()
    with suppress(*SHAPE_ERRORS, UnusableInputError, struct.error):  # the hour has its means
        return packed_document(bounded_json(*found)) if found else None
    return None


def _old_parts(
    connection: sqlite3.Connection, rows: Iterable[_OldRow], layouts: Mapping[int, str]
) -> Iterator[Part]:
    for series_id, time_ns, newest_ns, count, layout_id, text in rows:
        try:
            cells = zip(_names(layouts[layout_id]), bounded_json(text), strict=True)
            fields = dict(chain.from_iterable(starmap(_old_fields, cells)))
        except (*SHAPE_ERRORS, UnusableInputError):
            set_aside(connection, series_id, time_ns, text)
        else:
            yield Part(newest_ns, count, fields)


@cache
def _names(layout: str) -> Sequence[str]:
    return [str(name) for name in bounded_json(layout)]


def _old_fields(name: str, cell: Any) -> Iterator[tuple[str, FieldValue]]:  # noqa: ANN401 - any JSON value
    """Yield the fields of a cell: a value, or a list of value, low and high if it has them, rows."""
    value, *more = cell if isinstance(cell, list) else [cell]
    if not isinstance(value, str | int | float) or not all(
        isinstance(number, int | float) for number in more
    ):
        raise TypeError(name)
    yield name, value
    if len(more) > 1:
        low, high, *more = more
        yield name + LOW, low
        yield name + HIGH, high
    if more:
        (rows,) = more
        yield name + ROWS, rows


def stored_part(connection: sqlite3.Connection, where: tuple[int, int]) -> Part | None:
    """Return an hour row; None if there is none, or it cannot be decoded and was set aside."""
    stored = connection.execute(
        "SELECT newest_ns, rows, fields FROM hours WHERE series_id = ? AND time_ns = ?", where
    ).fetchone()
    if stored is None:
        return None
    newest_ns, rows, text = stored
    try:
        return Part(newest_ns, rows, parse_field_set(text))
    except UnusableInputError:
        set_aside(connection, *where, text)
        return None


def insert_hour(
    connection: sqlite3.Connection,
    where: tuple[int, int],
    measurement: str,
    parts: Sequence[Part],
    *,
    step_ns: int = 0,
    is_reduced: bool = True,
    load: bytes | None = None,
) -> None:
    """Store an hour row in the place of an earlier one.

    Args:
        connection: In a transaction.
        where: The series, and the start of the hour in UTC ns.
        measurement: Name of the series family.
        parts: All of its rows, oldest first.
        step_ns: Mean distance of the rows; 0 if unknown.
        is_reduced: Whether it stands in the place of its rows, not beside them.
        load: Load of a device in it, by minute.
    """
    fields = field_set(aggregate(measurement, parts))
    rows = sum(part.rows for part in parts)
    connection.execute(
        "INSERT OR REPLACE INTO hours"
        " (series_id, time_ns, newest_ns, rows, step_ns, is_reduced, fields, load)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*where, parts[-1].newest_ns, rows, step_ns, is_reduced, fields, load),
    )
