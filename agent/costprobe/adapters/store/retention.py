"""Hours become rows as they settle, and old rows go.

Two hours after an hour ended, its rows are aggregated to an hour row, which stands beside them: what
covers long spans reads hour rows. Once the rows are past their retention they are deleted, and the
hour row stands in their place: writing it where it lacks, and deleting them, is one transaction.
Every row therefore counts in exactly one table, also after a crash. A late row is added to its hour:
a trigger deletes an hour row that stands beside its rows, and one in their place is merged with it.
(A row that is stored again after its hour was reduced counts twice; rows are repeated within
seconds, if at all, and reduced days later.) Retention deletes old rows in small steps, with a count
of those that were not sent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from costprobe.adapters.store.cursors import add_dropped, newest_seq, undelivered
from costprobe.adapters.store.hours import (
    NEVER_AGGREGATED,
    SAMPLED,
    Part,
    hour_of,
    insert_hour,
    set_aside,
    stored_part,
    undecodable,
)
from costprobe.core.columns import RowEnd
from costprobe.core.hours import (
    EDGE_NS,
    DeviceHistory,
    add_rows,
    is_on,
    load_values,
    packed_hour,
)
from costprobe.core.line_protocol import parse_field_set
from costprobe.core.outside import UnusableInputError, bounded_json
from costprobe.core.periods import HOUR_NS
from costprobe.core.records import Device

# Rows that arrive later than this are late.
SETTLED_NS: Final = 2 * HOUR_NS
# Length of a row of a device in s, where there are too few to derive it.
_USUAL_ROW_S: Final = 10.0
_BEGINNING_NS: Final = -(2**63)
_FREE_PAGES_KEPT: Final = 1024
PAGES_PER_STEP: Final = 512
_ROWS_OF = "FROM points WHERE series_id = ? AND time_ns >= ? AND time_ns < ?"


@dataclass(frozen=True, slots=True)
class KeepSince:
    """Retention limits: older rows are reduced to an hour row or deleted; all in UTC ns.

    Attributes:
        raw_ns: Rows as measured.
        sampled_ns: Rows as measured of the less frequent `hours.SAMPLED`.
        hours_ns: Hour rows; events, alerts, sweeps and cold starts.
        outbox_ns: Rows that a sink has not received yet.
    """

    raw_ns: int
    sampled_ns: int
    hours_ns: int
    outbox_ns: int


@dataclass(frozen=True, slots=True)
class Retained:
    """Result of one step of retention.

    Attributes:
        aggregated: Rows in whose place an hour row stands now.
        removed: Rows that were deleted.
        dropped: Rows among these that at least one sink never received.
        is_done: False if the step ended at its limit and more rows may be due.
    """

    aggregated: int
    removed: int
    dropped: int
    is_done: bool


class _Series(NamedTuple):
    id: int
    measurement: str
    tags: Mapping[str, str]


def settle(connection: sqlite3.Connection, until_ns: int, limit: int) -> bool:
    """Run one step; see `Store.settle`."""
    hours = _Hours(connection)
    for series in hours.series:
        if series.measurement in NEVER_AGGREGATED:
            continue
        (last_ns,) = connection.execute(
            "SELECT max(time_ns) FROM hours WHERE series_id = ?", (series.id,)
        ).fetchone()
        next_ns = _BEGINNING_NS if last_ns is None else last_ns + HOUR_NS
        for hour_ns in hours.with_rows(series, next_ns, until_ns - SETTLED_NS):
            if limit <= 0:
                return False
            limit -= 1
            hours.write(series, hour_ns, is_reduced=False)
    return True


def set_damaged_aside(connection: sqlite3.Connection) -> int:
    """Set all rows aside that cannot be decoded; return their number."""
    damaged = list(undecodable(connection))
    for table, row_id, series_id, time_ns, text in damaged:
        set_aside(connection, series_id, time_ns, text)
        connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row_id,))  # noqa: S608 - a literal
    return len(damaged)


def retain(connection: sqlite3.Connection, since: KeepSince, limit: int) -> Retained:
    """Run one step; see `Store.retain`."""
    hours, gate = _Hours(connection), _DeliveryGate(connection)
    aggregated = removed = 0
    raw_ns, sampled_ns = since.raw_ns, min(since.raw_ns, since.sampled_ns)
    hours_ns = min(sampled_ns, since.hours_ns)
    is_done = True
    for series in hours.series:
        if series.measurement in NEVER_AGGREGATED:
            gone = gate.remove(series.id, hours_ns, since.outbox_ns, limit)
        else:
            before_ns = hour_of(sampled_ns if series.measurement in SAMPLED else raw_ns)
            for hour_ns in hours.with_rows(series, _BEGINNING_NS, before_ns):
                if aggregated + removed >= limit:
                    break
                if not gate.holds(series.id, hour_ns, since.outbox_ns):
                    hours.write(series, hour_ns, is_reduced=True)
                    aggregated += gate.remove(
                        series.id, hour_ns + HOUR_NS, since.outbox_ns, -1, hour_ns
                    )
            gone = connection.execute(
                "DELETE FROM hours WHERE rowid IN (SELECT rowid FROM hours"
                " WHERE series_id = ? AND time_ns < ? AND is_reduced LIMIT ?)",
                (series.id, hour_of(hours_ns), limit),
            ).rowcount
        removed += gone
        if gone == limit or aggregated + removed >= limit:
            is_done = False
            break
    if removed:
        _delete_empty_series(connection)
    return Retained(aggregated, removed, gate.settle(), is_done)


class _Hours:
    """Writes the hours of all series.

    Args:
        connection: In the transaction that writes them.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = connection.execute("SELECT id, measurement, tags FROM series ORDER BY id").fetchall()
        self.series = [_Series(number, name, bounded_json(tags)) for number, name, tags in rows]

    def with_rows(self, series: _Series, since_ns: int, until_ns: int) -> Iterator[int]:
        """Yield the hours in a span in which a series has rows as measured, ascending."""
        while True:
            (first_ns,) = self._connection.execute(
                f"SELECT min(time_ns) {_ROWS_OF}",
                (series.id, since_ns, until_ns),
            ).fetchone()
            if first_ns is None or hour_of(first_ns) + HOUR_NS > until_ns:
                return
            yield hour_of(first_ns)
            since_ns = hour_of(first_ns) + HOUR_NS

    def write(self, series: _Series, hour_ns: int, *, is_reduced: bool) -> None:
        """Write the row of an hour that has rows as measured; one that was reduced is added to."""
        where = (series.id, hour_ns)
        stored = self._connection.execute(
            "SELECT is_reduced, step_ns FROM hours WHERE series_id = ? AND time_ns = ?", where
        ).fetchone()
        if stored is not None and not stored[0]:
            self._connection.execute(
                "UPDATE hours SET is_reduced = ? WHERE series_id = ? AND time_ns = ?",
                (is_reduced, *where),
            )
            return
        is_device = series.measurement == "device"
        rows = self._rows(series, hour_ns, EDGE_NS if is_device else 0)
        parts = [part for part in rows if hour_of(part.newest_ns) == hour_ns]
        step_ns, load = 0, None
        if stored is not None:
            _, step_ns = stored
            if (before := stored_part(self._connection, where)) is not None:
                parts = sorted([*parts, before], key=lambda part: part.newest_ns)
        elif parts:
            step_ns = (parts[-1].newest_ns - parts[0].newest_ns) // max(1, len(parts) - 1)
            load = self._load(series, hour_ns, rows) if is_device else None
        if parts:
            insert_hour(
                self._connection,
                where,
                series.measurement,
                parts,
                step_ns=step_ns,
                is_reduced=is_reduced,
                load=load,
            )

    def _rows(self, series: _Series, hour_ns: int, edge_ns: int) -> list[Part]:
        """Return the rows of an hour and around it, without those that cannot be decoded."""
        found = []
        for seq, time_ns, text in self._connection.execute(
            f"SELECT seq, time_ns, fields {_ROWS_OF} ORDER BY time_ns",
            (series.id, max(hour_ns - edge_ns, _BEGINNING_NS), hour_ns + HOUR_NS + edge_ns),
        ).fetchall():
            try:
                found.append(Part(time_ns, 1, parse_field_set(text)))
            except UnusableInputError:
                set_aside(self._connection, series.id, time_ns, text)
                self._connection.execute("DELETE FROM points WHERE seq = ?", (seq,))
        return found

    def _load(self, series: _Series, hour_ns: int, rows: Sequence[Part]) -> bytes:
        """Return the load of a device in an hour, without that of probes."""
        name, end_ns = series.tags.get("device", ""), hour_ns + HOUR_NS
        ends_ns = sorted(
            time_ns
            for probe in self.series
            if probe.measurement == "probe" and is_on(probe.tags.get("device", ""), name)
            for (time_ns,) in self._connection.execute(
                f"SELECT time_ns {_ROWS_OF}",
                (probe.id, hour_ns - EDGE_NS, end_ns + EDGE_NS),
            )
        )
        history = DeviceHistory(Device(name, "gpu", "", ""), end_ns, ends_ns)
        telemetry = [(RowEnd(row.newest_ns), load_values(row.fields)) for row in rows]
        add_rows(history, telemetry, _USUAL_ROW_S, (hour_ns, end_ns))
        return packed_hour(history, hour_ns)


class _DeliveryGate:
    """Deletes rows that sinks have received, or that waited too long, and counts the latter.

    Args:
        connection: In the transaction that deletes them.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        cursors = connection.execute("SELECT sink, acked_seq FROM cursors").fetchall()
        # Without a sink no row waits.
        self._acked_seq = min((seq for _, seq in cursors), default=newest_seq(connection))
        self._unsent: dict[str, set[int]] = {sink: set() for sink, _ in cursors}
        self._has_unsent = False

    def holds(self, series_id: int, hour_ns: int, outbox_ns: int) -> bool:
        """Return whether a row of an hour waits for a sink."""
        found = self._connection.execute(
            f"SELECT 1 {_ROWS_OF} AND seq > ? LIMIT 1",
            (series_id, max(hour_ns, outbox_ns), hour_ns + HOUR_NS, self._acked_seq),
        )
        return found.fetchone() is not None

    def remove(
        self,
        series_id: int,
        before_ns: int,
        outbox_ns: int,
        limit: int,
        since_ns: int = _BEGINNING_NS,
    ) -> int:
        """Delete the oldest rows of a series that do not wait for a sink; return their number."""
        rows = self._connection.execute(
            f"SELECT seq {_ROWS_OF} AND (seq <= ? OR time_ns < ?) ORDER BY time_ns LIMIT ?",
            (series_id, since_ns, before_ns, self._acked_seq, outbox_ns, limit),
        ).fetchall()
        unsent = [seq for (seq,) in rows if seq > self._acked_seq]
        if unsent:
            self._has_unsent = True
            for sink, seqs in self._unsent.items():
                seqs.update(undelivered(self._connection, sink, unsent))
        self._connection.executemany("DELETE FROM points WHERE seq = ?", rows)
        return len(rows)

    def settle(self) -> int:
        """Count the deleted rows that a sink never received, and return their number."""
        dropped = len(set().union(*self._unsent.values()))
        if self._has_unsent:
            add_dropped(self._connection, dropped)
            self._connection.executemany(
                "UPDATE cursors SET dropped_points = dropped_points + ? WHERE sink = ?",
                [(len(seqs), sink) for sink, seqs in self._unsent.items()],
            )
            # Just before the first remaining row, so that backlogs are counted right.
            (first,) = self._connection.execute("SELECT min(seq) FROM points").fetchone()
            before = newest_seq(self._connection) if first is None else first - 1
            self._connection.execute(
                "UPDATE cursors SET acked_seq = ? WHERE acked_seq < ?", (before, before)
            )
        return dropped


def _delete_empty_series(connection: sqlite3.Connection) -> None:
    """Delete series without any row."""
    connection.execute(
        "DELETE FROM series WHERE NOT EXISTS"
        " (SELECT 1 FROM points WHERE points.series_id = series.id) AND NOT EXISTS"
        " (SELECT 1 FROM hours WHERE hours.series_id = series.id)"
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
