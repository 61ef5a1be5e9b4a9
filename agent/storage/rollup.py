"""Roll-ups: rows past their retention become one a minute, later one an hour, before they go.

A row is moved, not copied: what it adds to its minute or hour and its own removal are one
transaction. So every row counts in exactly one place, whatever is killed when, no mark has to be
kept of how far this has come, and readers find at every time the finest that is still there by
reading all places together. A row that comes late is simply added to its hour then. (One that
is stored again after it was rolled up counts again; rows are repeated within seconds, if at all, and
rolled up days later.)
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from agent.lineprotocol import parse_field_set
from agent.model import NS_PER_S
from agent.storage.fold import SAMPLED, Cell, decoded, encoded, fold, merge
from agent.storage.retention import Gate, forget_empty_series

# What happened is kept as it was told.
NEVER_FOLDED: Final = frozenset({"event", "alert", "sweep"})
_TIME_NS_MIN: Final = -(2**63)  # what a column holds


@dataclass(frozen=True, slots=True)
class Tier:
    """One fineness of rolled rows.

    Attributes:
        table: Where they are.
        period_s: Length of what a row stands for, in s.
    """

    table: str
    period_s: int

    @property
    def period_ns(self) -> int:
        """Length of what a row stands for, in ns."""
        return self.period_s * NS_PER_S

    def floor(self, time_ns: int) -> int:
        """The beginning of the period that a time lies in, UTC ns."""
        return max(time_ns // self.period_ns * self.period_ns, _TIME_NS_MIN)


MINUTES: Final = Tier("rollups_1m", 60)
HOURS: Final = Tier("rollups_1h", 3600)


@dataclass(frozen=True, slots=True)
class KeepSince:
    """From when on rows are kept, each in UTC ns.

    Attributes:
        raw_ns: Rows as they were measured.
        minutes_ns: Rows of a minute; rows of `fold.SAMPLED`, which are rarer, as measured.
        hours_ns: Rows of an hour; events, alerts and sweeps, as they were told.
        outbox_ns: Rows that a sink has yet to be given, if they are not kept anyway.
    """

    raw_ns: int
    minutes_ns: int
    hours_ns: int
    outbox_ns: int


@dataclass(frozen=True, slots=True)
class Retained:
    """What one step of retention did.

    Attributes:
        folded: Rows that became part of a coarser one.
        removed: Rows that went for good.
        dropped: Rows among all these that at least one sink never got.
        is_done: False if the step ended at its limit and more may be due.
    """

    folded: int
    removed: int
    dropped: int
    is_done: bool


def retain(connection: sqlite3.Connection, since: KeepSince, limit: int) -> Retained:
    """Does one step; see `Store.retain`."""
    step = _Step(connection, since, limit)
    rows = connection.execute("SELECT id, measurement FROM series ORDER BY id").fetchall()
    for series_id, measurement in rows:
        step.take(series_id, measurement)
        step.is_cut |= step.handled >= limit
        if step.is_cut:
            break
    if step.removed:
        forget_empty_series(connection)
    dropped = step.gate.settle(connection)
    return Retained(step.folded, step.removed, dropped, is_done=not step.is_cut)


class _Step:
    """One step over the series, which ends once it has handled `limit` rows."""

    def __init__(self, connection: sqlite3.Connection, since: KeepSince, limit: int) -> None:
        self.gate = Gate(connection)
        self.folded = 0
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
        """Rows that were folded or removed."""
        return self.folded + self.removed

    def take(self, series_id: int, measurement: str) -> None:
        """Does what is due for one series."""
        if measurement in NEVER_FOLDED:
            self._remove_raw(series_id)
            return
        if measurement in SAMPLED:
            self._fold_raw(series_id, measurement, HOURS, HOURS.floor(self._minutes_ns))
        else:
            self._fold_raw(series_id, measurement, MINUTES, MINUTES.floor(self._raw_ns))
            self._fold_minutes(series_id, measurement)
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

    def _fold_raw(self, series_id: int, measurement: str, tier: Tier, before_ns: int) -> None:
        due = self.gate.due(self._connection, series_id, before_ns, self._outbox_ns, self._limit)
        due = self._whole(due, tier, 1)
        for time_ns, together in groupby(due, key=lambda row: tier.floor(row[1])):
            rows = list(together)
            cells = fold(measurement, [parse_field_set(fields) for _, _, fields in rows])
            self._add(series_id, measurement, tier, time_ns, (rows[-1][1], len(rows), cells))
        self.gate.remove(self._connection, [seq for seq, _, _ in due])
        self.folded += len(due)

    def _fold_minutes(self, series_id: int, measurement: str) -> None:
        due = self._connection.execute(
            "SELECT time_ns, newest_ns, rows, layout_id, cells FROM rollups_1m"
            " WHERE series_id = ? AND time_ns < ? ORDER BY time_ns LIMIT ?",
            (series_id, HOURS.floor(self._minutes_ns), self._limit),
        ).fetchall()
        due = self._whole(due, HOURS, 0)
        for time_ns, together in groupby(due, key=lambda row: HOURS.floor(row[0])):
            rows, newest_ns, cells = 0, 0, dict[str, Cell]()
            for _, newest_ns, more, layout_id, text in together:  # noqa: B007 - the last one counts
                own = decoded(text, self._layouts.names(layout_id), more)
                cells = merge(measurement, cells, own)
                rows += more
            self._add(series_id, measurement, HOURS, time_ns, (newest_ns, rows, cells))
        self._connection.executemany(
            "DELETE FROM rollups_1m WHERE series_id = ? AND time_ns = ?",
            [(series_id, row[0]) for row in due],
        )
        self.folded += len(due)

    def _whole(self, due: list[Any], tier: Tier, time_at: int) -> list[Any]:
        """Without the last period, where the limit may have cut it, unless it is the only one."""
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
        more: tuple[int, int, dict[str, Cell]],
    ) -> None:
        """Adds what rows came to (newest time, number, cells) to the row of their period."""
        newest_ns, rows, cells = more
        own = (series_id, time_ns)
        there = self._connection.execute(
            f"SELECT newest_ns, rows, layout_id, cells FROM {tier.table}"  # noqa: S608 - a literal
            " WHERE series_id = ? AND time_ns = ?",
            own,
        ).fetchone()
        if there is not None:
            there_ns, there_rows, layout_id, text = there
            there_cells = decoded(text, self._layouts.names(layout_id), there_rows)
            pair = (there_cells, cells) if there_ns <= newest_ns else (cells, there_cells)
            cells = merge(measurement, *pair)
            newest_ns, rows = max(newest_ns, there_ns), rows + there_rows
        names = sorted(cells)
        self._connection.execute(
            f"INSERT OR REPLACE INTO {tier.table}"  # noqa: S608 - a literal
            " (series_id, time_ns, newest_ns, rows, layout_id, cells) VALUES (?, ?, ?, ?, ?, ?)",
            (*own, newest_ns, rows, self._layouts.id_of(names), encoded(cells, names, rows)),
        )


class Layouts:
    """Which fields rolled rows have, said once for all rows that have the same."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._names: dict[int, list[str]] = {}
        self._ids: dict[str, int] = {}

    def names(self, layout_id: int) -> list[str]:
        """The fields of a layout, in order."""
        if layout_id not in self._names:
            (text,) = self._connection.execute(
                "SELECT names FROM layouts WHERE id = ?", (layout_id,)
            ).fetchone()
            self._names[layout_id] = json.loads(text)
        return self._names[layout_id]

    def id_of(self, names: Iterable[str]) -> int:
        """The number of the layout with these fields; it gets one if it is new."""
        text = json.dumps(list(names), ensure_ascii=False)
        if text not in self._ids:
            self._connection.execute("INSERT OR IGNORE INTO layouts (names) VALUES (?)", (text,))
            (found,) = self._connection.execute(
                "SELECT id FROM layouts WHERE names = ?", (text,)
            ).fetchone()
            self._ids[text] = int(found)
        return self._ids[text]
