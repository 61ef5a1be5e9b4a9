"""The outbox of each sink and the notice queue of each notifier: what is still to be sent.

A sink is two cursors over the rows in the order of their commits: live rows are sent in order, and a
backlog alongside them. What it has not received is therefore a few ranges of sequence numbers. The
store's retention bounds a backlog.

The notices of a notifier are queued in the order of events.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from costprobe.adapters.store.database import Database, size_bytes, translated
from costprobe.core.clock import Clock
from costprobe.core.outside import bounded_json, bounded_object
from costprobe.core.records import OutboxRow, RowBatch

DROPPED_POINTS = "dropped_points"
REJECTED_KEPT_PER_SINK = 100
REASON_CHARS_MAX = 500
# A backlog up to this size is counted; a larger one is estimated, as counting reads gigabytes.
BACKLOG_COUNTED_MAX = 20_000
QUEUED_MAX_PER_NOTIFIER = 10_000
RANGES_MAX = 32
_STATE = "delivery "
_NO_END = 2**63 - 1
# A row is sent under the name that its device had then: part of it may have been sent already.
# SQLite does not reorder a CROSS JOIN, which keeps rows in order of seq.
_ROWS = """SELECT points.seq AS seq, coalesce((SELECT former_keys.key FROM former_keys
        WHERE former_keys.series_id = points.series_id AND points.seq <= until_seq
        ORDER BY until_seq LIMIT 1), series.key)
        || ' ' || points.fields || ' ' || points.time_ns AS line
    FROM points CROSS JOIN series ON series.id = points.series_id
    WHERE points.seq > ? AND points.seq <= ? ORDER BY points.seq"""
# SQLite concatenates them: this takes half the time and runs without the interpreter's lock.
_BATCH = "SELECT max(seq), count(*), CAST(group_concat(line, char(10)) AS BLOB) FROM ("

# Rows that a sink has not received: the sequence numbers before the first and of the last one of each
# range, in order. The last range has no end and contains the live rows; others are the backlog.
Ranges = Sequence[tuple[int, int]]


class RejectedLine(NamedTuple):
    """A row that a sink permanently rejected.

    Attributes:
        line: Line protocol.
        reason: Reason reported by the sink.
    """

    line: str
    reason: str


class Rejections(NamedTuple):
    """The rows that a sink permanently rejected.

    Attributes:
        points: Their number since the sink was registered.
        last_ns: UTC ns of the last rejection.
        reason: Its reason.
    """

    points: int
    last_ns: int
    reason: str


class Backlog(NamedTuple):
    """The backlog of a sink.

    Attributes:
        points: Number of rows; beyond BACKLOG_COUNTED_MAX an upper bound, in which rows replaced
            while they waited count again.
        oldest_time_ns: UTC ns of the next row; None without a backlog.
    """

    points: int
    oldest_time_ns: int | None


class SinkStatus(NamedTuple):
    """The status of a sink.

    Attributes:
        sink: Name.
        acked_seq: Last row of the acknowledged prefix.
        backlog: Rows not sent yet.
        sent_points: Rows delivered.
        rejected_points: Rows that were permanently rejected.
        dropped_points: Rows deleted by retention before they were sent.
        acked_ns: UTC ns of the last progress; None before the first.
    """

    sink: str
    acked_seq: int
    backlog: Backlog
    sent_points: int
    rejected_points: int
    dropped_points: int
    acked_ns: int | None


def newest_seq(connection: sqlite3.Connection) -> int:
    """Return the highest seq ever assigned; 0 before the first row."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'points'").fetchone()
    return int(row[0]) if row else 0


def sink_cursor(connection: sqlite3.Connection, sink: str) -> int:
    """Return the last row of the acknowledged prefix of a sink.

    Raises:
        KeyError: The sink is not registered.
    """
    row = connection.execute("SELECT acked_seq FROM cursors WHERE sink = ?", (sink,)).fetchone()
    if row is None:
        raise KeyError(f"sink {sink!r} is not registered")
    return int(row[0])


def storable(reason: str) -> str:
    """Return a server's reason truncated and as valid UTF-8."""
    return reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


def load_ranges(connection: sqlite3.Connection, sink: str) -> Ranges:
    """Return the rows that a sink has not received.

    Raises:
        KeyError: The sink is not registered.
    """
    acked_seq = sink_cursor(connection, sink)
    row = connection.execute(
        "SELECT document FROM states WHERE name = ?", (_STATE + sink,)
    ).fetchone()
    ranges = [(acked_seq, _NO_END)]
    with suppress(ValueError, TypeError, KeyError):  # sending twice is harmless
        document = bounded_object(row[0]) if row else {}
        if document["acked"] <= acked_seq:  # otherwise of an earlier sink of the same name
            backlog = sorted((int(after), int(until)) for after, until in document["spans"])
            ranges = [*backlog, (int(document["live"]), _NO_END)]
    # Retention advances a cursor over deleted rows.
    return _without(ranges, 0, acked_seq)


def _keep_ranges(connection: sqlite3.Connection, sink: str, ranges: Ranges, time_ns: int) -> None:
    *backlog, (live_seq, _) = ranges
    if not backlog:
        delete_progress(connection, sink)
        return
    document = {"acked": backlog[0][0], "live": live_seq, "spans": backlog}
    connection.execute(
        "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
        (_STATE + sink, json.dumps(document), time_ns),
    )


def _keep_rejected(
    connection: sqlite3.Connection, sink: str, rejected: Sequence[RejectedLine], time_ns: int
) -> None:
    """Store rejected rows, and of all of a sink the newest."""
    connection.executemany(
        "INSERT INTO rejected (sink, line, reason, time_ns) VALUES (?, ?, ?, ?)",
        [(sink, refused.line, storable(refused.reason), time_ns) for refused in rejected],
    )
    connection.execute(
        "DELETE FROM rejected WHERE sink = ? AND id NOT IN"
        " (SELECT id FROM rejected WHERE sink = ? ORDER BY id DESC LIMIT ?)",
        (sink, sink, REJECTED_KEPT_PER_SINK),
    )


def delete_progress(connection: sqlite3.Connection, sink: str) -> None:
    """Delete what is stored of a sink's backlog."""
    connection.execute("DELETE FROM states WHERE name = ?", (_STATE + sink,))


def _without(ranges: Ranges, after: int, until: int) -> Ranges:
    """Return ranges without the rows after `after` up to `until`."""
    parts = [
        part
        for first, last in ranges
        for part in ((first, min(last, after)), (max(first, until), last))
    ]
    return [(first, last) for first, last in parts if first < last]


def _with_backlog(ranges: Ranges, newest_seq: int) -> Ranges:
    """Return ranges with the live rows moved to the backlog."""
    *backlog, (live_seq, _) = ranges
    if backlog and backlog[-1][1] == live_seq:
        live_seq = backlog.pop()[0]
    elif len(backlog) >= RANGES_MAX:
        return ranges  # the rows stay live
    return [*backlog, (live_seq, newest_seq), (newest_seq, _NO_END)]


def undelivered(connection: sqlite3.Connection, sink: str, seqs: Iterable[int]) -> set[int]:
    """Return which of some existing rows a sink has not received."""
    ranges = load_ranges(connection, sink)
    return {seq for seq in seqs if any(first < seq <= last for first, last in ranges)}


class QueuedNotice(NamedTuple):
    """A queued notice.

    Attributes:
        id: Position in the order of commits.
        alert: The alert as JSON.
        queued_ns: UTC in ns of its commit.
    """

    id: int
    alert: Mapping[str, Any]
    queued_ns: int


class NotifierStatus(NamedTuple):
    """The status of a notifier.

    Attributes:
        notifier: Name.
        queued: Number of queued notices.
        oldest_ns: UTC ns of the oldest of them; None if the queue is empty.
        sent: Notices delivered since the store was created.
        dropped: Notices that were rejected, expired, or exceeded the size of the queue.
        last_sent_ns: UTC ns of the last delivery; None before the first.
        last_reason: Reason of the last drop; empty before the first.
    """

    notifier: str
    queued: int
    oldest_ns: int | None
    sent: int
    dropped: int
    last_sent_ns: int | None
    last_reason: str


class Deliveries:
    """What a store knows of its sinks and notifiers, for its writer and its readers.

    Args:
        database: The store's file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def sinks(self) -> list[SinkStatus]:
        """Return the status of every registered sink, by name."""
        with self._database.reading("read") as connection:
            rows = connection.execute(
                "SELECT sink, acked_seq, sent_points, rejected_points, dropped_points, acked_ns"
                " FROM cursors ORDER BY sink"
            ).fetchall()
            return [
                SinkStatus(sink, acked_seq, self.backlog(sink), *counts)
                for sink, acked_seq, *counts in rows
            ]

    def backlog(self, sink: str) -> Backlog:
        """Return the backlog of a sink; for ranges an upper bound, because counting reads every row.

        Raises:
            KeyError: The sink is not registered.
        """
        with self._database.reading("read") as connection:
            *backlog, (live_seq, _) = load_ranges(connection, sink)
            (points,) = connection.execute(
                "SELECT count(*) FROM (SELECT 1 FROM points WHERE seq > ? LIMIT ?)",
                (live_seq, BACKLOG_COUNTED_MAX),
            ).fetchone()
            if points >= BACKLOG_COUNTED_MAX:
                points = newest_seq(connection) - live_seq
            oldest = connection.execute(
                "SELECT time_ns FROM points WHERE seq > ? ORDER BY seq LIMIT 1",
                (backlog[0][0] if backlog else live_seq,),
            ).fetchone()
        points += sum(last - first for first, last in backlog)
        return Backlog(points, oldest[0] if oldest else None)

    def rejections(self, sink: str) -> Rejections | None:
        """Return the points that a sink permanently rejected; None if there are none."""
        rows = self._fetch(
            "SELECT rejected_points, time_ns, reason FROM cursors JOIN rejected USING (sink)"
            " WHERE sink = ? ORDER BY id DESC LIMIT 1",
            sink,
        )
        return Rejections(*rows[0]) if rows else None

    def dropped_points(self) -> int:
        """Return the points lost since the store was created: past retention unsent, or never stored."""
        sql = "SELECT coalesce(max(value), 0) FROM counters WHERE name = ?"
        return int(self._fetch(sql, DROPPED_POINTS)[0][0])

    def notifiers(self) -> list[NotifierStatus]:
        """Return the status of every notifier, by name."""
        rows = self._fetch(
            "SELECT name, count(notices.id), min(queued_ns), sent, dropped, last_sent_ns, last_reason"
            " FROM notifiers LEFT JOIN notices ON notices.notifier = notifiers.name"
            " GROUP BY name ORDER BY name"
        )
        return [NotifierStatus(*row) for row in rows]

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - any JSON value
        """Return a named document; None if there is none."""
        rows = self._fetch("SELECT document FROM states WHERE name = ?", name)
        with translated("read", self._database.path):
            return bounded_json(rows[0][0]) if rows else None

    def size_bytes(self) -> int:
        """Return the size of the store on disk in bytes, log included."""
        return size_bytes(self._database.path)

    def _fetch(self, sql: str, *values: str | int) -> list[Any]:
        with self._database.reading("read") as connection:
            return connection.execute(sql, values).fetchall()


class SinkOutbox:
    """The rows that one sink has not received; each change is one transaction with its counters.

    Args:
        database: The store's file, to write to.
        reader: The same file, to read from: a long read does not delay commits.
        clock: For the time of progress.
        sink: Name of the sink; registered.
    """

    def __init__(self, database: Database, reader: Database, clock: Clock, sink: str) -> None:
        self._database = database
        self._reader = reader
        self._clock = clock
        self._sink = sink

    def live_batch(self, limit: int) -> RowBatch | None:
        """Return the next of the newest rows, at most `limit`, as one text; None if there are none."""
        with self._reader.snapshot("read") as connection:
            return _batch(connection, load_ranges(connection, self._sink)[-1], limit)

    def backlog_batch(self, limit: int, after: int = 0) -> RowBatch | None:
        """Return the next rows that could not be sent when they were live, as `live_batch` does.

        Args:
            limit: Maximum number of rows.
            after: Last row of the batches that are being sent; the next rows are those after it.
        """
        with self._reader.snapshot("read") as connection:
            backlog = load_ranges(connection, self._sink)[:-1]
            for first, last in backlog:
                batch = _batch(connection, (max(first, after), last), limit)
                if batch is not None:
                    return batch
        if backlog and not after:
            self.done(0, backlog[-1][1], 0, ())  # the rows were deleted or replaced
        return None

    def rows(self, batch: RowBatch) -> list[OutboxRow]:
        """Return the rows of a batch as a list."""
        with self._reader.snapshot("read") as connection:
            return [OutboxRow(*row) for row in connection.execute(_ROWS, (batch.after, batch.seq))]

    def done(self, after: int, seq: int, sent: int, rejected: Sequence[RejectedLine]) -> None:
        """Record that rows need not be sent again, and count those that were still to be sent.

        A row that two threads have acknowledged counts once.

        Args:
            after: Sequence number before the first of them.
            seq: Sequence number of the last of them.
            sent: Number of rows that were acknowledged.
            rejected: Lines that were permanently rejected, with the reasons.
        """
        with self._database.transaction("advance a sink in") as connection:
            before = load_ranges(connection, self._sink)
            ranges = _without(before, after, seq)
            if ranges == before:
                return  # the thread of an earlier configuration sent and counted them
            present = sum(
                connection.execute(
                    "SELECT count(*) FROM points WHERE seq > ? AND seq <= ?",
                    (max(first, after), min(last, seq)),
                ).fetchone()[0]
                for first, last in before
            )
            time_ns = self._clock.time_ns()
            connection.execute(
                "UPDATE cursors SET acked_seq = max(acked_seq, ?), sent_points = sent_points + ?,"
                " rejected_points = rejected_points + ?, acked_ns = ? WHERE sink = ?",
                (ranges[0][0], min(sent, present), len(rejected), time_ns, self._sink),
            )
            _keep_rejected(connection, self._sink, rejected, time_ns)
            _keep_ranges(connection, self._sink, ranges, time_ns)

    def move_to_backlog(self, over_points: int) -> None:
        """Move the live rows to the backlog if they are more than `over_points`."""

        def is_over(connection: sqlite3.Connection, ranges: Ranges) -> bool:
            return newest_seq(connection) - ranges[-1][0] > over_points

        with self._reader.snapshot("read") as connection:
            if not is_over(connection, load_ranges(connection, self._sink)):
                return
        with self._database.transaction("move rows to a backlog in") as connection:
            ranges = load_ranges(connection, self._sink)
            if is_over(connection, ranges):
                moved = _with_backlog(ranges, newest_seq(connection))
                _keep_ranges(connection, self._sink, moved, self._clock.time_ns())


def _batch(connection: sqlite3.Connection, rows: tuple[int, int], limit: int) -> RowBatch | None:
    """Return the first rows of a range as one text; None if there are none."""
    seq, points, lines = connection.execute(f"{_BATCH}{_ROWS} LIMIT ?)", (*rows, limit)).fetchone()
    return RowBatch(rows[0], seq, points, lines) if points else None


def add_dropped(connection: sqlite3.Connection, added: int) -> None:
    """Count lost points: past retention unsent, or never stored."""
    connection.execute(
        "INSERT INTO counters (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        (DROPPED_POINTS, added),
    )


def enqueue_notices(
    connection: sqlite3.Connection,
    notices: Sequence[tuple[str, Mapping[str, Any]]],
    time_ns: int,
) -> None:
    """Queue notices; a full queue drops and counts its oldest."""
    for notifier, alert in notices:
        connection.execute("INSERT OR IGNORE INTO notifiers (name) VALUES (?)", (notifier,))
        connection.execute(
            "INSERT INTO notices (notifier, alert, queued_ns) VALUES (?, ?, ?)",
            (notifier, json.dumps(alert, allow_nan=False), time_ns),
        )
    for notifier in {notifier for notifier, _ in notices}:
        overflow = connection.execute(
            "SELECT id FROM notices WHERE notifier = ? ORDER BY id DESC LIMIT -1 OFFSET ?",
            (notifier, QUEUED_MAX_PER_NOTIFIER),
        ).fetchall()
        for (notice,) in overflow:
            drop_notice(connection, notice, "the queue was full")


def drop_notice(connection: sqlite3.Connection, notice: int, reason: str) -> None:
    """Delete a notice undelivered, and count it."""
    count_notice(connection, notice, "SET dropped = dropped + 1, last_reason = ?", storable(reason))


def count_notice(
    connection: sqlite3.Connection, notice: int, change: str, value: int | str
) -> None:
    """Change a counter of a notice's notifier, and delete the notice."""
    of_notice = "WHERE name = (SELECT notifier FROM notices WHERE id = ?)"
    connection.execute(f"UPDATE notifiers {change} {of_notice}", (value, notice))
    connection.execute("DELETE FROM notices WHERE id = ?", (notice,))
