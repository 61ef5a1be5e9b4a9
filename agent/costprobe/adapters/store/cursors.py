"""The outbox of each sink and the notice queue of each notifier: what is still to be sent.

A sink is a cursor over the rows in the order of their commits. Live rows are sent in order, and a
backlog alongside them, so rows may be sent out of order: the progress is a live cursor and ranges
before it. The store's retention bounds a backlog.

The notices of a notifier are queued in the order of events.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from costprobe.adapters.store.database import Database
from costprobe.core.clock import Clock
from costprobe.core.outside import bounded_json, bounded_object
from costprobe.core.records import OutboxRow, RowBatch

DROPPED_POINTS = "dropped_points"
REJECTED_KEPT_PER_SINK = 100
REASON_CHARS_MAX = 500
# A backlog up to this size is counted; a larger one is estimated, as counting reads gigabytes.
BACKLOG_COUNTED_MAX = 20_000


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


def register_sink(connection: sqlite3.Connection, sink: str) -> None:
    """Create the cursor of a sink unless it exists, before the first row."""
    connection.execute("INSERT OR IGNORE INTO cursors (sink, acked_seq) VALUES (?, 0)", (sink,))


def sink_cursor(connection: sqlite3.Connection, sink: str) -> int:
    """Return the last row of the acknowledged prefix of a sink.

    Raises:
        KeyError: The sink is not registered.
    """
    row = connection.execute("SELECT acked_seq FROM cursors WHERE sink = ?", (sink,)).fetchone()
    if row is None:
        raise KeyError(f"sink {sink!r} is not registered")
    return int(row[0])


def advance_cursor(
    connection: sqlite3.Connection,
    sink: str,
    acked_seq: int,
    sent: int,
    rejected: Sequence[RejectedLine],
    time_ns: int,
) -> None:
    """Advance a cursor, never backwards, and store rejected rows."""
    connection.execute(
        "UPDATE cursors SET acked_seq = max(?, ?), sent_points = sent_points + ?,"
        " rejected_points = rejected_points + ?, acked_ns = ? WHERE sink = ?",
        (sink_cursor(connection, sink), acked_seq, sent, len(rejected), time_ns, sink),
    )
    if not rejected:
        return
    connection.executemany(
        "INSERT INTO rejected (sink, line, reason, time_ns) VALUES (?, ?, ?, ?)",
        [
            (sink, refused.line, storable(refused.reason), time_ns)
            for refused in rejected[-REJECTED_KEPT_PER_SINK:]
        ],
    )
    connection.execute(
        "DELETE FROM rejected WHERE sink = ? AND id NOT IN"
        " (SELECT id FROM rejected WHERE sink = ? ORDER BY id DESC LIMIT ?)",
        (sink, sink, REJECTED_KEPT_PER_SINK),
    )


def sink_rejections(connection: sqlite3.Connection, sink: str) -> Rejections | None:
    """Return the rejections of a sink; None if there was none."""
    row = connection.execute(
        "SELECT rejected_points, time_ns, reason FROM cursors JOIN rejected USING (sink)"
        " WHERE sink = ? ORDER BY id DESC LIMIT 1",
        (sink,),
    ).fetchone()
    return Rejections(*row) if row else None


def storable(reason: str) -> str:
    """Return a server's reason truncated and as valid UTF-8."""
    return reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


def backlog_after(connection: sqlite3.Connection, acked_seq: int) -> Backlog:
    """Return the rows after a seq."""
    (points,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM points WHERE seq > ? LIMIT ?)",
        (acked_seq, BACKLOG_COUNTED_MAX),
    ).fetchone()
    if points >= BACKLOG_COUNTED_MAX:
        points = newest_seq(connection) - acked_seq
    oldest = connection.execute(
        "SELECT time_ns FROM points WHERE seq > ? ORDER BY seq LIMIT 1", (acked_seq,)
    ).fetchone()
    return Backlog(int(points), int(oldest[0]) if oldest else None)


def add_dropped(connection: sqlite3.Connection, added: int) -> None:
    """Count lost points: past retention unsent, or never stored."""
    connection.execute(
        "INSERT INTO counters (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        (DROPPED_POINTS, added),
    )


def dropped_points(connection: sqlite3.Connection) -> int:
    """Return the points lost since the store was created."""
    sql = "SELECT coalesce(max(value), 0) FROM counters WHERE name = ?"
    return int(connection.execute(sql, (DROPPED_POINTS,)).fetchone()[0])


QUEUED_MAX_PER_NOTIFIER = 10_000


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


def enqueue_notices(
    connection: sqlite3.Connection,
    notices: Sequence[tuple[str, Mapping[str, Any]]],
    time_ns: int,
) -> None:
    """Queue notices; a full queue drops and counts its oldest."""
    for notifier, alert in notices:
        _register(connection, notifier)
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


def waiting_notices(
    connection: sqlite3.Connection, notifier: str, limit: int
) -> list[QueuedNotice]:
    """Return up to `limit` queued notices of a notifier, oldest first."""
    rows = connection.execute(
        "SELECT id, alert, queued_ns FROM notices WHERE notifier = ? ORDER BY id LIMIT ?",
        (notifier, limit),
    )
    return [QueuedNotice(number, bounded_json(text), time_ns) for number, text, time_ns in rows]


def mark_notices_sent(connection: sqlite3.Connection, notices: Sequence[int], time_ns: int) -> None:
    """Delete delivered notices, and count them."""
    for notice in notices:
        connection.execute(
            "UPDATE notifiers SET sent = sent + 1, last_sent_ns = ?"
            " WHERE name = (SELECT notifier FROM notices WHERE id = ?)",
            (time_ns, notice),
        )
        connection.execute("DELETE FROM notices WHERE id = ?", (notice,))


def drop_notice(connection: sqlite3.Connection, notice: int, reason: str) -> None:
    """Delete a notice undelivered, and count it."""
    connection.execute(
        "UPDATE notifiers SET dropped = dropped + 1, last_reason = ?"
        " WHERE name = (SELECT notifier FROM notices WHERE id = ?)",
        (storable(reason), notice),
    )
    connection.execute("DELETE FROM notices WHERE id = ?", (notice,))


def delete_notifier(connection: sqlite3.Connection, notifier: str) -> None:
    """Delete a notifier that is no longer configured, with its queue."""
    connection.execute("DELETE FROM notices WHERE notifier = ?", (notifier,))
    connection.execute("DELETE FROM notifiers WHERE name = ?", (notifier,))


def notifier_statuses(connection: sqlite3.Connection) -> list[NotifierStatus]:
    """Return the status of every notifier, by name."""
    rows = connection.execute(
        "SELECT name, count(notices.id), min(queued_ns), sent, dropped, last_sent_ns, last_reason"
        " FROM notifiers LEFT JOIN notices ON notices.notifier = notifiers.name"
        " GROUP BY name ORDER BY name"
    )
    return [NotifierStatus(*row) for row in rows]


def _register(connection: sqlite3.Connection, notifier: str) -> None:
    connection.execute("INSERT OR IGNORE INTO notifiers (name) VALUES (?)", (notifier,))


SPANS_MAX = 32
_STATE = "delivery "
_NO_END = 2**63 - 1
_BATCH = "SELECT max(seq), count(*), CAST(group_concat(line, char(10)) AS BLOB) FROM ("
# A row is sent under the name that its device had then: part of it may have been sent already.
_LINE = """coalesce((SELECT former_keys.key FROM former_keys
    WHERE former_keys.series_id = points.series_id AND points.seq <= until_seq
    ORDER BY until_seq LIMIT 1), series.key)
    || ' ' || points.fields || ' ' || points.time_ns"""
# SQLite does not reorder a CROSS JOIN, which keeps rows in order of seq.
_ROWS = """FROM points CROSS JOIN series ON series.id = points.series_id
    WHERE points.seq > ? AND points.seq <= ? ORDER BY points.seq"""


class Progress(NamedTuple):
    """Delivery progress of a sink: all rows up to `live_seq` outside the ranges are done.

    Attributes:
        live_seq: Rows after it are live.
        spans: Ranges of the backlog, sent alongside live rows: the sequence numbers before the first
            row and of the last one, in order.
    """

    live_seq: int
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def acked_seq(self) -> int:
        """All rows up to this one are done."""
        return self.spans[0][0] if self.spans else self.live_seq

    def backlog_after(self, seq: int) -> Progress:
        """Return the progress once the backlog up to a row is done."""
        spans = tuple((max(after, seq), until) for after, until in self.spans if until > seq)
        return self._replace(spans=spans)

    def with_backlog(self, newest_seq: int) -> Progress:
        """Return the progress with the live rows moved to the backlog."""
        spans, after = list(self.spans), self.live_seq
        if spans and spans[-1][1] == self.live_seq:
            after, _ = spans.pop()
        elif len(spans) >= SPANS_MAX:
            return self  # the rows stay live
        return Progress(newest_seq, (*spans, (after, newest_seq)))


def load_progress(connection: sqlite3.Connection, sink: str) -> Progress:
    """Load the progress of a sink.

    Raises:
        KeyError: The sink is not registered.
    """
    acked_seq = sink_cursor(connection, sink)
    row = connection.execute(
        "SELECT document FROM states WHERE name = ?", (_STATE + sink,)
    ).fetchone()
    if row is None:
        return Progress(acked_seq)
    try:
        document = bounded_object(row[0])
        if document["acked"] > acked_seq:  # of an earlier sink of the same name
            return Progress(acked_seq)
        spans = tuple(sorted((int(after), int(until)) for after, until in document["spans"]))
        # Retention advances a cursor over deleted rows.
        live_seq = max(int(document["live"]), acked_seq)
        return Progress(live_seq, spans).backlog_after(acked_seq)
    except (ValueError, TypeError, KeyError):
        return Progress(acked_seq)  # sending twice is harmless


def keep_progress(
    connection: sqlite3.Connection, sink: str, progress: Progress, time_ns: int
) -> None:
    """Store the progress of a sink; its cursor must not be after it."""
    if not progress.spans:
        delete_progress(connection, sink)
        return
    document = {"acked": progress.acked_seq, "live": progress.live_seq, "spans": progress.spans}
    connection.execute(
        "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
        (_STATE + sink, json.dumps(document), time_ns),
    )


def delete_progress(connection: sqlite3.Connection, sink: str) -> None:
    """Delete the stored progress of a sink."""
    connection.execute("DELETE FROM states WHERE name = ?", (_STATE + sink,))


def undelivered(connection: sqlite3.Connection, sink: str, seqs: Iterable[int]) -> set[int]:
    """Return which of some existing rows a sink has not received."""
    progress = load_progress(connection, sink)
    return {
        seq
        for seq in seqs
        if seq > progress.live_seq or any(after < seq <= until for after, until in progress.spans)
    }


def sink_backlog(connection: sqlite3.Connection, sink: str) -> Backlog:
    """Return the backlog of a sink; for ranges an upper bound, because counting reads every row.

    Raises:
        KeyError: The sink is not registered.
    """
    progress = load_progress(connection, sink)
    live = backlog_after(connection, progress.live_seq)
    if not progress.spans:
        return live
    points = live.points + sum(until - after for after, until in progress.spans)
    return Backlog(points, backlog_after(connection, progress.acked_seq).oldest_time_ns)


def sink_statuses(connection: sqlite3.Connection) -> list[SinkStatus]:
    """Return the status of every registered sink, by name."""
    rows = connection.execute(
        "SELECT sink, acked_seq, sent_points, rejected_points, dropped_points, acked_ns"
        " FROM cursors ORDER BY sink"
    ).fetchall()
    return [
        SinkStatus(sink, acked_seq, sink_backlog(connection, sink), *counts)
        for sink, acked_seq, *counts in rows
    ]


class SinkAccess(NamedTuple):
    """The place of one sink in the store.

    Attributes:
        database: The store's file, to write to.
        reader: The same file, to read from: a long read does not delay commits.
        clock: For the time of progress.
        sink: Name of the sink; registered.
    """

    database: Database
    reader: Database
    clock: Clock
    sink: str


class RowStream(ABC):
    """Rows that are sent one after the other, in the order of commits."""

    def __init__(self, access: SinkAccess) -> None:
        self._access = access

    @abstractmethod
    def _next(self, progress: Progress, pending_seq: int) -> tuple[int, int] | None:
        """Return the range that is sent next, after the row `pending_seq`; None if there is none."""

    @abstractmethod
    def _left(self, progress: Progress, seq: int) -> Progress:
        """Return the progress once the rows up to `seq` are done."""

    def batch(self, limit: int, pending: Sequence[RowBatch] = ()) -> RowBatch | None:
        """Return the next rows as one text; None if there are none.

        SQLite concatenates them: this takes half the time and runs without the interpreter's lock.

        Args:
            limit: Maximum number of rows.
            pending: Batches that are being sent or are about to be; the next rows are those after
                them.
        """
        pending_seq, skipped_seq = (pending[-1].seq if pending else 0), 0
        with self._access.reader.snapshot("read") as connection:
            progress = load_progress(connection, self._access.sink)
            while (span := self._next(progress, pending_seq)) is not None:
                seq, points, lines = connection.execute(
                    f"{_BATCH}SELECT points.seq AS seq, {_LINE} AS line {_ROWS} LIMIT ?)",
                    (*span, limit),
                ).fetchone()
                if points:
                    return RowBatch(span[0], seq, points, lines)
                if span[1] == _NO_END:
                    return None
                pending_seq = skipped_seq = span[1]  # its rows were deleted or replaced
        if skipped_seq and not pending:
            self.done(skipped_seq, 0, ())
        return None

    def rows(self, batch: RowBatch) -> list[OutboxRow]:
        """Return the rows of a batch as a list."""
        with self._access.reader.snapshot("read") as connection:
            rows = connection.execute(
                f"SELECT points.seq, {_LINE} {_ROWS}", (batch.after, batch.seq)
            )
            return [OutboxRow(*row) for row in rows]

    def done(self, seq: int, sent: int, rejected: Sequence[tuple[str, str]]) -> None:
        """Record that rows need not be sent again, and count those that were still to be sent.

        A row that two threads have acknowledged counts once.

        Args:
            seq: Sequence number of the last of them.
            sent: Number of rows that were acknowledged.
            rejected: Lines that were permanently rejected, with the reasons.
        """
        sink = self._access.sink
        with self._access.database.transaction("advance a sink in") as connection:
            before = progress = load_progress(connection, sink)
            present = 0
            while (span := self._next(progress, 0)) is not None and span[0] < seq:
                until = min(seq, span[1])
                (count,) = connection.execute(
                    "SELECT count(*) FROM points WHERE seq > ? AND seq <= ?", (span[0], until)
                ).fetchone()
                present += count
                progress = self._left(progress, until)
            if progress == before:
                return  # the thread of an earlier configuration sent and counted them
            time_ns = self._access.clock.time_ns()
            refused = [RejectedLine(line, reason) for line, reason in rejected]
            advance_cursor(
                connection, sink, progress.acked_seq, min(sent, present), refused, time_ns
            )
            keep_progress(connection, sink, progress, time_ns)


class LiveRows(RowStream):
    """The newest rows."""

    def _next(self, progress: Progress, pending_seq: int) -> tuple[int, int]:
        return max(progress.live_seq, pending_seq), _NO_END

    def _left(self, progress: Progress, seq: int) -> Progress:
        return progress._replace(live_seq=seq)


class BacklogRows(RowStream):
    """Rows that could not be sent when they were live."""

    def _next(self, progress: Progress, pending_seq: int) -> tuple[int, int] | None:
        spans = progress.backlog_after(pending_seq).spans
        return spans[0] if spans else None

    def _left(self, progress: Progress, seq: int) -> Progress:
        return progress.backlog_after(seq)


class SinkOutbox:
    """The rows that one sink has not received; each change is one transaction with its counters.

    Args:
        access: The sink's place in the store.

    Attributes:
        live: The newest rows.
        backlog: Rows that were not sent during an outage.
    """

    def __init__(self, access: SinkAccess) -> None:
        self._access = access
        self.live = LiveRows(access)
        self.backlog = BacklogRows(access)

    def move_to_backlog(self, over_points: int) -> None:
        """Move the live rows to the backlog if they are more than `over_points`."""
        with self._access.reader.snapshot("read") as connection:
            progress = load_progress(connection, self._access.sink)
            if newest_seq(connection) - progress.live_seq <= over_points:
                return
        with self._access.database.transaction("move rows to a backlog in") as connection:
            progress = load_progress(connection, self._access.sink)
            newest = newest_seq(connection)
            if newest - progress.live_seq > over_points:
                keep_progress(
                    connection,
                    self._access.sink,
                    progress.with_backlog(newest),
                    self._access.clock.time_ns(),
                )
