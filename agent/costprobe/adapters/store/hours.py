"""Rollup of old rows to a minute and an hour, summaries of full hours, and retention.

Past their retention rows become one a minute, later one an hour: sums of totals, means of
readings with their range. A row is moved, not copied: its addition to the minute or hour and its
deletion are one transaction. Every row therefore counts in exactly one table, also after a crash,
no progress has to be stored, and readers get the finest resolution by reading all tables
together. A late row is added to its hour by a later step. (A row that is stored again after its
aggregation counts twice; rows are repeated within seconds, if at all, and aggregated days later.)
Retention deletes old rows in small steps, with a count of those that were not sent.

SQLite extracts and sums the numeric fields of rows: a week of eight devices is half a million
rows, and parsing them in Python takes ten times as long as a report may. The text of a raw row is
a field set, whose names are sorted and contain no quotation mark. Only measurements may be read
whose texts contain neither commas nor equals signs (all but `event`, `alert`, `serving` and
`budget`): a text could look like a field.

A summary is what reports and savings would compute from the rows of an hour again. It is written
once these are complete, and used instead of them; an hour without one is read from its rows, with
the same result. A trigger deletes the summary of an hour to which a late row is added, and the
rollup that of an hour whose rows become one: a summary stands beside raw rows and rows of a
minute only.
"""

from __future__ import annotations

import json
import math
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, get_args

from costprobe.adapters.store.cursors import add_dropped, newest_seq, undelivered
from costprobe.core.columns import RowEnd
from costprobe.core.hours import (
    EDGE_NS,
    LOAD_FIELDS,
    LOAD_HIGHEST,
    DeviceHistory,
    add_rows,
    hour_document,
    is_on,
)
from costprobe.core.line_protocol import field_key, fields_reader, parse_field_set
from costprobe.core.outside import bounded_json, bounded_json_list
from costprobe.core.records import NS_PER_S, Device, FieldValue
from costprobe.core.schema import (
    PAID_FIELDS,
    RUN_FIELDS,
    SCHEMA,
    SERVICE_FIELDS,
    SERVING_RATIOS,
    SERVING_SUMS,
    WORK_FIELDS,
    Measure,
)

Aggregation = Literal["sum", "mean", "median", "max", "any", "all", "last"]

# Significant digits of readings: sensors are accurate to percents, and rows take half the space.
_DIGITS: Final = 7
# Significant digits of sums: rounding errors stay negligible over three years.
_SUM_DIGITS: Final = 12
OTHER_LAYOUT: Final = "an aggregated row has another number of cells than its layout"

_KINDS: Final[Mapping[str, Mapping[Aggregation, frozenset[str]]]] = {
    "device": {
        # Totals of the interval of each row.
        "sum": frozenset(
            {
                "energy_j",
                "dram_energy_j",
                "cost",
                "carbon_g",
                "carbon_energy_j",
                "throttle_power_s",
                "throttle_thermal_s",
            }
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
            {
                "amount",
                "spent",
                "forecast",
                "forecast_low",
                "forecast_high",
                "coverage",
                "elapsed_share",
                "period_start_ns",
                "period_end_ns",
            }
        ),
    },
    "software": {"sum": frozenset({"probe_runs"})},
    "allocation": {"sum": frozenset({"cost", "cost_hardware", "cost_energy"})},
    "tenant": {"sum": frozenset(SCHEMA["tenant"].fields)},
    "agent": {
        "last": frozenset(
            {"cpu_s", "sent_points", "dropped_points", "late_jobs", "child_restarts"}
        ),
    },
}
# A few samples an hour with possible outliers: the median is robust.
SAMPLED: Final = frozenset({"probe", "cost", "serving", "allocation", "tenant"})

# Totals that are summed by the hour for reports: `StoreReader.hourly_sums`.
SUMMED: Final[Mapping[str, Sequence[str]]] = {
    "device": ("cost", "energy_j", "carbon_g"),
    "allocation": ("cost",),
    "tenant": ("cost", "cost_cache_saved", "tokens_in", "cached_tokens"),
}


class Cell(NamedTuple):
    """Aggregate of one field in a period.

    Attributes:
        value: Sum, mean, median, maximum or newest value, by the kind of the field.
        rows: Rows that had the field.
        low: Minimum, if the value is a mean or a median; else None.
        high: Maximum, likewise.
    """

    value: FieldValue
    rows: int
    low: float | int | None = None
    high: float | int | None = None


Cells = Mapping[str, Cell]


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


def aggregate(measurement: str, rows: Sequence[Mapping[str, FieldValue]]) -> dict[str, Cell]:
    """Aggregate rows.

    A field that changed its type is aggregated by its last type; a sum beyond the range of a float
    is omitted.

    Args:
        measurement: Name of the series family.
        rows: Fields of each row, oldest first.
    """
    columns: dict[str, list[FieldValue]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    aggregated = {
        name: _aggregate_column(measurement, name, column) for name, column in columns.items()
    }
    return _with_ratios(measurement, aggregated)


def merge(measurement: str, older: Cells, newer: Cells) -> dict[str, Cell]:
    """Merge the aggregates of two periods; exact except for medians, which are averaged.

    Args:
        measurement: Name of the series family.
        older: Aggregates of the earlier period.
        newer: Aggregates of the later period.
    """
    merged = {**older, **newer}
    for name in older.keys() & newer.keys():
        merged[name] = _merged(measurement, name, older[name], newer[name])
    return _with_ratios(measurement, merged)


def encoded(cells: Cells, names: Sequence[str], rows: int) -> str:
    """Encode cells in the order of names, without counts equal to the number of rows."""
    return json.dumps([_packed(cells[name], rows) for name in names], separators=(",", ":"))


def decoded(text: str, names: Sequence[str], rows: int) -> dict[str, Cell]:
    """Return the cells that `encoded` wrote."""
    packed: list[Any] = bounded_json(text)
    if len(packed) != len(names):
        raise ValueError(OTHER_LAYOUT)
    return {
        name: _unpacked(cell, rows) if isinstance(cell, list) else Cell(cell, rows)
        for name, cell in zip(names, packed, strict=True)
    }


def number_in(cell: FieldValue | list[Any], rows: int) -> tuple[float, int] | None:
    """Return the number in a cell and the rows that had it; None for a text or a boolean.

    Args:
        cell: One of those that `encoded` wrote.
        rows: Number of aggregated rows.
    """
    if isinstance(cell, list):
        cell, rows, *_ = _unpacked(cell, rows)
    return None if isinstance(cell, bool | str) else (float(cell), rows)


def _packed(cell: Cell, rows: int) -> object:
    counted = [] if cell.rows == rows else [cell.rows]
    if cell.low is None or cell.low == cell.high == cell.value:
        return [cell.value, *counted] if counted else cell.value
    return [cell.value, cell.low, cell.high, *counted]


def _unpacked(packed: list[Any], rows: int) -> Cell:
    if len(packed) < 3:  # noqa: PLR2004 - a value and its count
        return Cell(packed[0], packed[1])
    value, low, high, *counted = packed
    return Cell(value, counted[0] if counted else rows, low, high)


def _aggregate_column(measurement: str, name: str, column: list[FieldValue]) -> Cell:
    kind = kind_of(measurement, name, column[-1])
    if kind == "last":
        return Cell(column[-1], len(column))
    if isinstance(column[-1], bool):
        are = [value is True for value in column]
        return Cell(all(are) if kind == "all" else any(are), len(column))
    numbers = [v for v in column if isinstance(v, int | float) and not isinstance(v, bool)]
    count = len(numbers)
    if kind == "max":
        return Cell(max(numbers), count)
    if kind == "sum":
        return Cell(_short(sum(numbers), _SUM_DIGITS), count)
    middle = _median(numbers) if kind == "median" else sum(number / count for number in numbers)
    return _spread(middle, count, min(numbers), max(numbers))


def _merged(measurement: str, name: str, older: Cell, newer: Cell) -> Cell:
    kind = kind_of(measurement, name, newer.value)
    count = older.rows + newer.rows
    if isinstance(newer.value, bool):
        both = (older.value is True, newer.value is True)
        return Cell(all(both) if kind == "all" else any(both), count)
    before, after = older.value, newer.value
    if kind == "last" or isinstance(before, str | bool) or isinstance(after, str | bool):
        return Cell(after, count)
    if kind == "max":
        return Cell(max(before, after), count)
    if kind == "sum":
        return Cell(_short(before + after, _SUM_DIGITS), count)
    middle = before * (older.rows / count) + after * (newer.rows / count)
    low = min(before if older.low is None else older.low, after if newer.low is None else newer.low)
    high = max(
        before if older.high is None else older.high, after if newer.high is None else newer.high
    )
    return _spread(middle, count, low, high)


def _median(numbers: Sequence[float]) -> float:
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else ordered[middle - 1] / 2 + ordered[middle] / 2


def _spread(middle: float, count: int, low: float, high: float) -> Cell:
    if isinstance(low, int) and isinstance(high, int):
        # A database has fixed the type of the field: its mean is an integer too.
        return Cell(round(middle), count, low, high)
    return Cell(_short(middle, _DIGITS), count, _short(low, _DIGITS), _short(high, _DIGITS))


def _with_ratios(measurement: str, cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the cells that a file can hold, with ratios of production as ratios of sums."""
    finite = {name: cell for name, cell in cells.items() if _is_finite(cell)}
    if measurement != "cost" or "cost_total" not in finite:
        return finite
    sums = {name: float(finite[name].value) for name in SERVING_SUMS if name in finite}
    for name, ratio in SERVING_RATIOS.items():
        value = ratio.of(sums)
        # Sums over different windows, such as those with a known energy, make no ratio.
        is_whole = value is not None and finite[ratio.over].rows == finite[ratio.per].rows
        if name in finite and value is not None and is_whole:
            finite[name] = finite[name]._replace(value=_short(value, _DIGITS))
    return finite


def _short(value: float, digits: int) -> float:
    return value if isinstance(value, int) else float(f"{value:.{digits}g}")


def _is_finite(cell: Cell) -> bool:
    return not isinstance(cell.value, float) or math.isfinite(cell.value)


_FREE_PAGES_KEPT = 1024
PAGES_PER_STEP = 512


class DeliveryGate:
    """Tracks which rows sinks have received, and counts others that are deleted.

    Args:
        connection: In the transaction that deletes the rows.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursors: list[tuple[str, int]] = connection.execute(
            "SELECT sink, acked_seq FROM cursors"
        ).fetchall()
        # Without a sink no row waits.
        self._all_acked_seq = min((seq for _, seq in self._cursors), default=newest_seq(connection))
        self._has_unsent = False
        self._unsent: dict[str, set[int]] = {sink: set() for sink, _ in self._cursors}

    def due(
        self,
        connection: sqlite3.Connection,
        series_id: int,
        keep_since_ns: int,
        outbox_keep_since_ns: int,
        limit: int,
    ) -> list[tuple[int, int, str]]:
        """Return the oldest rows of a series that may be deleted: seq, time in UTC ns, fields."""
        return connection.execute(
            "SELECT seq, time_ns, fields FROM points WHERE series_id = ? AND time_ns < ?"
            " AND (seq <= ? OR time_ns < ?) ORDER BY time_ns LIMIT ?",
            (series_id, keep_since_ns, self._all_acked_seq, outbox_keep_since_ns, limit),
        ).fetchall()

    def remove(self, connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
        """Delete rows."""
        unsent = [seq for seq in seqs if seq > self._all_acked_seq]
        if unsent:
            self._has_unsent = True
            for sink, seqs_of_sink in self._unsent.items():
                seqs_of_sink.update(undelivered(connection, sink, unsent))
        connection.executemany("DELETE FROM points WHERE seq = ?", [(seq,) for seq in seqs])

    def settle(self, connection: sqlite3.Connection) -> int:
        """Count the deleted rows that a sink never received, and return their number."""
        dropped = len(set().union(*self._unsent.values()))
        if self._has_unsent:
            add_dropped(connection, dropped)
            connection.executemany(
                "UPDATE cursors SET dropped_points = dropped_points + ? WHERE sink = ?",
                [(len(seqs), sink) for sink, seqs in self._unsent.items()],
            )
            _skip_deleted(connection)
        return dropped


def delete_empty_series(connection: sqlite3.Connection) -> None:
    """Delete series without any raw or aggregated row."""
    connection.execute(
        "DELETE FROM series WHERE NOT EXISTS"
        " (SELECT 1 FROM points WHERE points.series_id = series.id) AND NOT EXISTS"
        " (SELECT 1 FROM rollups_1m WHERE rollups_1m.series_id = series.id) AND NOT EXISTS"
        " (SELECT 1 FROM rollups_1h WHERE rollups_1h.series_id = series.id)"
    )


def _skip_deleted(connection: sqlite3.Connection) -> None:
    """Advance cursors to just before the first remaining row, so that backlogs are counted right."""
    first = connection.execute("SELECT min(seq) FROM points").fetchone()[0]
    before = newest_seq(connection) if first is None else first - 1
    connection.execute(
        "UPDATE cursors SET acked_seq = ? WHERE acked_seq < ?",
        (before, before),
    )


def release_free_pages(connection: sqlite3.Connection, *, keep: bool = True) -> bool:
    """Return some free pages to the file system; True if there are more.

    The file uses incremental auto_vacuum: free pages are reused, and returned only here,
    PAGES_PER_STEP at a time, so that a write waits for at most one such step. VACUUM would block
    the writer for minutes and need space for a second file; full auto_vacuum would move pages in
    each commit, although the next rows need them again.

    Args:
        connection: In autocommit mode.
        keep: Whether to keep an eighth of the file for the next rows.
    """
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    kept_pages = max(_FREE_PAGES_KEPT, pages // 8) if keep else 0
    if free <= kept_pages:
        return False
    # executescript runs the pragma to its end; `execute` would stop after the first page.
    connection.executescript(f"PRAGMA incremental_vacuum({PAGES_PER_STEP})")
    (left,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(kept_pages < left < free)


# Events are never aggregated.
NEVER_AGGREGATED: Final = frozenset({"event", "alert", "sweep", "cold_start", "calibration"})
_TIME_NS_MIN: Final = -(2**63)  # the range of a column


@dataclass(frozen=True, slots=True)
class Tier:
    """One resolution of aggregated rows.

    Attributes:
        table: Name of the table.
        period_s: Length of the period of a row, in s.
    """

    table: str
    period_s: int

    @property
    def period_ns(self) -> int:
        """Length of the period of a row, in ns."""
        return self.period_s * NS_PER_S

    def floor(self, time_ns: int) -> int:
        """Return the start of the period of a time, UTC ns."""
        return max(time_ns // self.period_ns * self.period_ns, _TIME_NS_MIN)


MINUTES: Final = Tier("rollups_1m", 60)
HOURS: Final = Tier("rollups_1h", 3600)


@dataclass(frozen=True, slots=True)
class KeepSince:
    """Retention limits: older rows are aggregated or deleted; all in UTC ns.

    Attributes:
        raw_ns: Raw rows.
        minutes_ns: Rows of a minute; raw rows of the less frequent `aggregation.SAMPLED`.
        hours_ns: Rows of an hour; events, alerts, sweeps and cold starts.
        outbox_ns: Rows that a sink has not received yet.
    """

    raw_ns: int
    minutes_ns: int
    hours_ns: int
    outbox_ns: int


@dataclass(frozen=True, slots=True)
class Retained:
    """Result of one step of retention.

    Attributes:
        aggregated: Rows that were merged into a row of a coarser tier.
        removed: Rows that were deleted.
        dropped: Rows among these that at least one sink never received.
        is_done: False if the step ended at its limit and more rows may be due.
    """

    aggregated: int
    removed: int
    dropped: int
    is_done: bool


def retain(connection: sqlite3.Connection, since: KeepSince, limit: int) -> Retained:
    """Run one step; see `Store.retain`."""
    step = _Step(connection, since, limit)
    rows = connection.execute("SELECT id, measurement FROM series ORDER BY id").fetchall()
    for series_id, measurement in rows:
        step.process(series_id, measurement)
        step.is_cut |= step.handled >= limit
        if step.is_cut:
            break
    if step.removed:
        delete_empty_series(connection)
    dropped = step.gate.settle(connection)
    return Retained(step.aggregated, step.removed, dropped, is_done=not step.is_cut)


class _Step:
    """One step over all series, which ends after `limit` rows."""

    def __init__(self, connection: sqlite3.Connection, since: KeepSince, limit: int) -> None:
        self.gate = DeliveryGate(connection)
        self.aggregated = 0
        self.removed = 0
        self.is_cut = False
        self._connection = connection
        self._limit = limit
        self._outbox_ns = since.outbox_ns
        self._raw_ns = since.raw_ns
        self._minutes_ns = min(since.raw_ns, since.minutes_ns)
        self._hours_ns = min(self._minutes_ns, since.hours_ns)
        self._layouts = Layouts(connection)

    @property
    def handled(self) -> int:
        """Number of rows aggregated or deleted."""
        return self.aggregated + self.removed

    def process(self, series_id: int, measurement: str) -> None:
        """Aggregate and delete the due rows of one series."""
        if measurement in NEVER_AGGREGATED:
            self._remove_raw(series_id)
            return
        if measurement in SAMPLED:
            self._aggregate_raw(series_id, measurement, HOURS, HOURS.floor(self._minutes_ns))
        else:
            self._aggregate_raw(series_id, measurement, MINUTES, MINUTES.floor(self._raw_ns))
            self._aggregate_minutes(series_id, measurement)
        removed = self._connection.execute(
            "DELETE FROM rollups_1h WHERE series_id = ? AND time_ns IN (SELECT time_ns"
            " FROM rollups_1h WHERE series_id = ? AND time_ns < ? ORDER BY time_ns LIMIT ?)",
            (series_id, series_id, HOURS.floor(self._hours_ns), self._limit),
        ).rowcount
        self.removed += removed
        self.is_cut |= removed == self._limit

    def _remove_raw(self, series_id: int) -> None:
        due = self.gate.due(
            self._connection, series_id, self._hours_ns, self._outbox_ns, self._limit
        )
        self.gate.remove(self._connection, [seq for seq, _, _ in due])
        self.removed += len(due)
        self.is_cut |= len(due) == self._limit

    def _aggregate_raw(self, series_id: int, measurement: str, tier: Tier, before_ns: int) -> None:
        due = self.gate.due(self._connection, series_id, before_ns, self._outbox_ns, self._limit)
        due = self._whole(due, tier, 1)
        for time_ns, together in groupby(due, key=lambda row: tier.floor(row[1])):
            rows = list(together)
            cells = aggregate(measurement, [parse_field_set(fields) for _, _, fields in rows])
            self._add(series_id, measurement, tier, time_ns, (rows[-1][1], len(rows), cells))
        self.gate.remove(self._connection, [seq for seq, _, _ in due])
        self.aggregated += len(due)

    def _aggregate_minutes(self, series_id: int, measurement: str) -> None:
        due = self._connection.execute(
            "SELECT time_ns, newest_ns, rows, layout_id, cells FROM rollups_1m"
            " WHERE series_id = ? AND time_ns < ? ORDER BY time_ns LIMIT ?",
            (series_id, HOURS.floor(self._minutes_ns), self._limit),
        ).fetchall()
        due = self._whole(due, HOURS, 0)
        for time_ns, together in groupby(due, key=lambda row: HOURS.floor(row[0])):
            rows, newest_ns, cells = 0, 0, dict[str, Cell]()
            for _, newest_ns, counts_and_cells, layout_id, text in together:  # noqa: B007 - the last one counts
                decoded_row = decoded(text, self._layouts.names(layout_id), counts_and_cells)
                cells = merge(measurement, cells, decoded_row)
                rows += counts_and_cells
            self._add(series_id, measurement, HOURS, time_ns, (newest_ns, rows, cells))
        self._connection.executemany(
            "DELETE FROM rollups_1m WHERE series_id = ? AND time_ns = ?",
            [(series_id, row[0]) for row in due],
        )
        self.aggregated += len(due)

    def _whole(self, due: list[Any], tier: Tier, time_at: int) -> list[Any]:
        """Return the rows without the last period, which the limit may have cut, unless it is the only one."""
        if len(due) < self._limit:
            return due
        self.is_cut = True
        last_ns = tier.floor(due[-1][time_at])
        return [row for row in due if row[time_at] < last_ns] or due

    def _add(
        self,
        series_id: int,
        measurement: str,
        tier: Tier,
        time_ns: int,
        counts_and_cells: tuple[int, int, dict[str, Cell]],
    ) -> None:
        """Merge an aggregate (newest time, number of rows, cells) into the row of its period."""
        newest_ns, rows, cells = counts_and_cells
        key = (series_id, time_ns)
        if tier is HOURS:
            self._connection.execute(
                "DELETE FROM summaries WHERE series_id = ? AND kind IN ('sums', 'load', 'rows')"
                " AND time_ns = ?",
                key,
            )
        stored = self._connection.execute(
            f"SELECT newest_ns, rows, layout_id, cells FROM {tier.table}"  # noqa: S608 - a literal
            " WHERE series_id = ? AND time_ns = ?",
            key,
        ).fetchone()
        if stored is not None:
            stored_ns, stored_rows, layout_id, text = stored
            stored_cells = decoded(text, self._layouts.names(layout_id), stored_rows)
            pair = (stored_cells, cells) if stored_ns <= newest_ns else (cells, stored_cells)
            cells = merge(measurement, *pair)
            newest_ns, rows = max(newest_ns, stored_ns), rows + stored_rows
        names = sorted(cells)
        self._connection.execute(
            f"INSERT OR REPLACE INTO {tier.table}"  # noqa: S608 - a literal
            " (series_id, time_ns, newest_ns, rows, layout_id, cells) VALUES (?, ?, ?, ?, ?, ?)",
            (*key, newest_ns, rows, self._layouts.id_of(names), encoded(cells, names, rows)),
        )


class Layouts:
    """Field names of aggregated rows, stored once for all rows with the same fields."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._names: dict[int, list[str]] = {}
        self._ids: dict[str, int] = {}

    def names(self, layout_id: int) -> list[str]:
        """Return the field names of a layout, in order."""
        if layout_id not in self._names:
            (text,) = self._connection.execute(
                "SELECT names FROM layouts WHERE id = ?", (layout_id,)
            ).fetchone()
            self._names[layout_id] = bounded_json(text)
        return self._names[layout_id]

    def id_of(self, names: Iterable[str]) -> int:
        """Return the id of the layout with these fields; create it if it is new."""
        text = json.dumps(list(names), ensure_ascii=False)
        if text not in self._ids:
            self._connection.execute("INSERT OR IGNORE INTO layouts (names) VALUES (?)", (text,))
            (layout_id,) = self._connection.execute(
                "SELECT id FROM layouts WHERE names = ?", (text,)
            ).fetchone()
            self._ids[text] = int(layout_id)
        return self._ids[text]


class WantedCells:
    """Reads the cells of some fields.

    Args:
        fields: Names of the fields.
        layouts: Field names of the present layouts, by their number.
        names_of: Returns the field names of a layout, also of one that was created since.
    """

    def __init__(
        self,
        fields: frozenset[str],
        layouts: Mapping[int, Sequence[str]],
        names_of: Callable[[int], Sequence[str]],
    ) -> None:
        self._names_of = names_of
        self._wanted: dict[int, list[str]] = {}
        cases = []
        for number, names in layouts.items():
            at = [index for index, name in enumerate(names) if name in fields]
            if at:
                # Of one path SQLite returns the value, whose digits it would round, instead of its text.
                at = at * 2 if len(at) == 1 else at
                self._wanted[number] = [names[index] for index in at]
                paths = ", ".join(f"'$[{index}]'" for index in at)
                cases.append(f"WHEN {number} THEN json_extract(cells, {paths})")
        self.sql = f"CASE layout_id {' '.join(cases)} ELSE cells END" if cases else "cells"

    def decoded(
        self, layout_id: int, texts: Sequence[str]
    ) -> tuple[Sequence[str], list[Sequence[Any]]]:
        """Return the names of the cells that rows of a layout have, and these cells of each row.

        Args:
            layout_id: The layout of the rows.
            texts: What `sql` returned for each.

        Raises:
            ValueError: A row is malformed.
        """
        names = self._wanted.get(layout_id) or self._names_of(layout_id)
        rows = bounded_json_list(texts)
        if any(len(cells) != len(names) for cells in rows):
            raise ValueError(OTHER_LAYOUT)
        return names, rows


# The longest text of a float: a sign, 17 digits, a point, and an exponent.
_NUMBER_CHARS: Final = 24

ColumnNames = Mapping[int, Sequence[str]]
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


def rolled_number(field: str, layouts: ColumnNames, *, highest: bool = False) -> str:
    """Return the SQL of a numeric field of an aggregated row; NULL if it is absent.

    Args:
        field: Name of the field.
        layouts: Field names of all layouts.
        highest: Whether to return the highest of the aggregated values instead of the value.
    """
    value = "coalesce(json_extract(cells, '$[{0}][0]'), json_extract(cells, '$[{0}]'))"
    high = "json_extract(cells, '$[{0}][2]')"
    return _by_layout(field, layouts, f"coalesce({high}, {value})" if highest else value)


def _rolled_count(field: str, layouts: ColumnNames) -> str:
    """Return the SQL of the number of rows with a total, of an aggregated row."""
    return _by_layout(field, layouts, "coalesce(json_extract(cells, '$[{0}][1]'), rows)")


def _by_layout(field: str, layouts: ColumnNames, text: str) -> str:
    cases = [
        f"WHEN {number} THEN {text.format(list(names).index(field))}"
        for number, names in layouts.items()
        if field in names
    ]
    return f"CASE layout_id {' '.join(cases)} END" if cases else "NULL"


def rows_sql(fields: Sequence[str], highest: Sequence[str], layouts: ColumnNames) -> str:
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


def hourly_number_sums(
    connection: sqlite3.Connection,
    series_id: int,
    fields: Sequence[str],
    edges_ns: Sequence[int],
    layouts: ColumnNames,
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


# Sums of totals, the load of a device, rows as columns.
SummaryKind = Literal["sums", "load", "rows"]


def summary_fields(measurement: str, tags: Mapping[str, str]) -> frozenset[str]:
    """Return the fields of the rows of a series that are summarized as columns."""
    if measurement == "cost":
        return PAID_FIELDS if tags.get("basis") == "probe" else SERVICE_FIELDS
    return {"probe": RUN_FIELDS, "serving": WORK_FIELDS}.get(measurement, frozenset())


def read_summaries(
    connection: sqlite3.Connection, series_id: int, kind: SummaryKind, since_ns: int, until_ns: int
) -> list[tuple[int, Any]]:
    """Return the summaries of the full hours of a series in a range: start in UTC ns, document."""
    rows = connection.execute(
        "SELECT time_ns, document FROM summaries WHERE kind = ? AND series_id = ?"
        " AND time_ns >= ? AND time_ns <= ? ORDER BY time_ns",
        (kind, series_id, since_ns, until_ns - HOURS.period_ns),
    )
    found = rows.fetchall()
    documents = bounded_json_list(document for _, document in found)
    return [(time_ns, document) for (time_ns, _), document in zip(found, documents, strict=True)]


# Rows that arrive later than this are late: they delete the summary.
SETTLED_NS: Final = 2 * 3600 * NS_PER_S


def kinds_of(measurement: str) -> Sequence[SummaryKind]:
    """Return the kinds of summaries of a measurement: `sums` of totals, `load` of a device, `rows` as columns."""
    kinds: list[SummaryKind] = []
    if measurement in SUMMED:
        kinds.append("sums")
    if measurement == "device":
        kinds.append("load")
    if summary_fields(measurement, {}):
        kinds.append("rows")
    return kinds


def summarize(connection: sqlite3.Connection, until_ns: int, usual_s: float, limit: int) -> bool:
    """Run one step; see `Store.summarize`."""
    step = _Summarizer(connection, usual_s)
    rows = connection.execute("SELECT id, measurement, tags FROM series ORDER BY id").fetchall()
    step.series = [(series_id, name, bounded_json(tags)) for series_id, name, tags in rows]
    for series_id, measurement, tags in step.series:
        for kind in kinds_of(measurement):
            for hour_ns in _due(connection, series_id, kind, until_ns - SETTLED_NS):
                if limit <= 0:
                    return False
                limit -= 1
                document = step.document(kind, (series_id, measurement, tags), hour_ns)
                connection.execute(
                    "INSERT INTO summaries (kind, series_id, time_ns, document) VALUES (?, ?, ?, ?)",
                    (kind, series_id, hour_ns, json.dumps(document, separators=(",", ":"))),
                )
    return True


def _due(
    connection: sqlite3.Connection, series_id: int, kind: SummaryKind, until_ns: int
) -> Iterator[int]:
    """Yield the hours after the last summary that have rows, none of which is of an hour."""
    (last_ns,) = connection.execute(
        "SELECT max(time_ns) FROM summaries WHERE kind = ? AND series_id = ?", (kind, series_id)
    ).fetchone()
    next_ns = 0 if last_ns is None else last_ns + HOURS.period_ns
    while True:
        (first_ns,) = connection.execute(
            "SELECT min(time_ns) FROM ("
            "SELECT min(time_ns) AS time_ns FROM points WHERE series_id = ? AND time_ns >= ?"
            " UNION ALL SELECT min(time_ns) FROM rollups_1m WHERE series_id = ? AND time_ns >= ?)",
            (series_id, next_ns, series_id, next_ns),
        ).fetchone()
        if first_ns is None or HOURS.floor(first_ns) + HOURS.period_ns > until_ns:
            return
        hour_ns = HOURS.floor(first_ns)
        next_ns = hour_ns + HOURS.period_ns
        if not _has_hour(connection, series_id, hour_ns):
            yield hour_ns


def _has_hour(connection: sqlite3.Connection, series_id: int, hour_ns: int) -> bool:
    sql = "SELECT 1 FROM rollups_1h WHERE series_id = ? AND time_ns = ?"
    return connection.execute(sql, (series_id, hour_ns)).fetchone() is not None


_Series = tuple[int, str, Mapping[str, str]]


class _Summarizer:
    """Computes summaries, each from the rows of an hour of a series."""

    def __init__(self, connection: sqlite3.Connection, usual_s: float) -> None:
        self.series: Sequence[_Series] = ()
        self._connection = connection
        self._usual_s = usual_s
        names = Layouts(connection)
        ids = connection.execute("SELECT id FROM layouts").fetchall()
        self._layouts = {layout_id: names.names(layout_id) for (layout_id,) in ids}
        self._documents: Mapping[SummaryKind, Callable[[_Series, int], object]] = {
            "sums": self._sums,
            "load": self._load,
            "rows": self._rows,
        }

    def document(self, kind: SummaryKind, series: _Series, hour_ns: int) -> object:
        """Return the summary of an hour."""
        return self._documents[kind](series, hour_ns)

    def _sums(self, series: _Series, hour_ns: int) -> dict[str, list[Summed]]:
        """Return what `hourly_sums` finds in the rows, of each field that has a value."""
        edges_ns, fields = (hour_ns, hour_ns + HOURS.period_ns), SUMMED[series[1]]
        found = hourly_number_sums(self._connection, series[0], fields, edges_ns, self._layouts)
        return {field: sums for field, sums in found.items() if sums}

    def _load(self, series: _Series, hour_ns: int) -> object:
        """Return the load of a device."""
        series_id, _, tags = series
        within = (hour_ns, hour_ns + HOURS.period_ns)
        span = (within[0] - EDGE_NS, within[1] + EDGE_NS)
        sql = rows_sql(LOAD_FIELDS, LOAD_HIGHEST, self._layouts)
        parameters = {"series": series_id, "since": span[0], "until": span[1], "limit": -1}
        found = self._connection.execute(sql, parameters)
        rows = [(RowEnd(row[2], row[3]), row[4:]) for row in found]
        device = Device(tags.get("device", ""), "gpu", "", "")
        history = DeviceHistory(device, within[1], self._run_ends(device.name, span))
        add_rows(history, rows, self._usual_s, within)
        return hour_document(history, hour_ns)

    def _run_ends(self, device: str, span: tuple[int, int]) -> list[int]:
        """Return the end times of the runs of probes on a device, ascending."""
        ends_ns: list[int] = []
        for series_id, measurement, own in self.series:
            if measurement == "probe" and is_on(own.get("device", ""), device):
                found = self._connection.execute(
                    "SELECT time_ns FROM points WHERE series_id = ? AND time_ns >= ? AND time_ns < ?",
                    (series_id, *span),
                )
                ends_ns += [time_ns for (time_ns,) in found]
        return sorted(ends_ns)

    def _rows(self, series: _Series, hour_ns: int) -> list[Any]:
        """Return the times of the rows since the start of the hour, and their fields as columns."""
        read_row = fields_reader(summary_fields(*series[1:]))
        found = self._connection.execute(
            "SELECT time_ns, fields FROM points WHERE series_id = ? AND time_ns >= ? AND time_ns < ?"
            " ORDER BY time_ns",
            (series[0], hour_ns, hour_ns + HOURS.period_ns),
        ).fetchall()
        rows = [read_row(text) for _, text in found]
        names = sorted({name for row in rows for name in row})
        columns = {name: _shortened([row.get(name) for row in rows]) for name in names}
        return [[time_ns - hour_ns for time_ns, _ in found], columns]


def _shortened(column: list[FieldValue | None]) -> list[FieldValue | None]:
    """Return a column; one value where all are the same."""
    first = column[0]
    is_same = all(value == first and type(value) is type(first) for value in column)
    return column[:1] if is_same else column
