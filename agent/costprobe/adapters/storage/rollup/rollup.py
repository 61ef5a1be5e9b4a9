"""Aggregation of old rows: past their retention rows become one a minute, later one an hour.

A row is moved, not copied: its addition to the minute or hour and its deletion are one transaction.
Every row therefore counts in exactly one table, also after a crash, no progress has to be stored,
and readers get the finest resolution by reading all tables together. A late row is added to its hour
by a later step. (A row that is stored again after its aggregation counts twice; rows are repeated
within seconds, if at all, and aggregated days later.)
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from costprobe.adapters.storage.rollup.aggregation import (
    SAMPLED,
    Cell,
    aggregate,
    decoded,
    encoded,
    merge,
)
from costprobe.adapters.storage.rollup.retention import DeliveryGate, delete_empty_series
from costprobe.core.bounded import bounded_json
from costprobe.core.line_protocol import parse_field_set
from costprobe.core.records import NS_PER_S

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
