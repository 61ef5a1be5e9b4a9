"""The outbox of each sink and the notice queue of each notifier: what is still to be sent.

A sink is a cursor over the rows in the order of their commits. Live rows are sent in order, and a
backlog alongside them, so rows may be sent out of order: the progress is a live cursor and ranges
before it. A backlog is bounded: the oldest device rows are thinned first, then the oldest rows
dropped.

The notices of a notifier are queued in the order of events.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from costprobe.adapters.store.database import Database
from costprobe.core.clock import Clock
from costprobe.core.outside import bounded_json, bounded_object
from costprobe.core.records import (
    OutboxRow,
    RowBatch,
    RowKind,
    RowRange,
)

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


def register_sink(connection: sqlite3.Connection, sink: str, *, from_beginning: bool) -> None:
    """Create the cursor of a sink unless it exists."""
    start = 0 if from_beginning else newest_seq(connection)
    connection.execute(
        "INSERT OR IGNORE INTO cursors (sink, acked_seq) VALUES (?, ?)", (sink, start)
    )


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
# One query reads at most this many rows, so that finding a rare kind among others stays cheap.
WINDOW_SEQS = 20_000
_STATE = "delivery "
_NOTHING = {"acked": 0, "live": 0, "spans": []}
_OF_KIND = {
    "all": "",
    "important": " AND series.measurement NOT IN ('device', 'agent')",
    "rest": " AND series.measurement IN ('device', 'agent')",
}
# Thinning keeps the first row of each minute of a device.
_LATER_IN_ITS_MINUTE = """series.measurement = 'device' AND EXISTS (
    SELECT 1 FROM points AS earlier WHERE earlier.series_id = points.series_id
    AND earlier.time_ns >= points.time_ns - points.time_ns % 60000000000
    AND earlier.time_ns < points.time_ns)"""
_BATCH_UP = "SELECT max(seq), count(*), CAST(group_concat(line, char(10)) AS BLOB) FROM ("
_BATCH_DOWN = _BATCH_UP.replace("max", "min")
# A row is sent under the name that its device had then: part of it may have been sent already.
_LINE = """coalesce((SELECT former_keys.key FROM former_keys
    WHERE former_keys.series_id = points.series_id AND points.seq <= until_seq
    ORDER BY until_seq LIMIT 1), series.key)
    || ' ' || points.fields || ' ' || points.time_ns"""


class Progress(NamedTuple):
    """Delivery progress of a sink: all rows up to `live_seq` outside the ranges are done.

    Attributes:
        live_seq: Rows after it are live and sent in order.
        spans: Ranges of the backlog, sent alongside live rows.
    """

    live_seq: int
    spans: tuple[RowRange, ...] = ()

    @property
    def acked_seq(self) -> int:
        """All rows up to this one are done."""
        return min((span.after for span in self.spans), default=self.live_seq)

    def replaced(self, old: RowRange, *new: RowRange) -> Progress:
        """Return the progress with ranges in place of one; empty ranges are removed."""
        others = [span for span in self.spans if span != old]
        spans = sorted([*others, *(span for span in new if span.after < span.until)], key=_by_place)
        return self._replace(spans=tuple(spans))

    def overlapping(self, done: RowRange) -> list[RowRange]:
        """Return the parts of a range that are in the backlog."""
        return [
            span._replace(after=max(span.after, done.after), until=min(span.until, done.until))
            for span in self.spans
            if span.kind == done.kind and span.after < done.until and done.after < span.until
        ]

    def without(self, done: RowRange) -> Progress:
        """Return the progress once a range of the backlog is done."""
        progress = self
        for span in self.spans:
            if span.kind == done.kind and span.after < done.until and done.after < span.until:
                before, behind = span._replace(until=done.after), span._replace(after=done.until)
                progress = progress.replaced(span, before, behind)
        return progress


def _by_place(span: RowRange) -> tuple[int, str]:
    return span.after, span.kind


def load_progress(connection: sqlite3.Connection, sink: str) -> Progress:
    """Load the progress of a sink.

    Raises:
        KeyError: The sink is not registered.
    """
    acked_seq = sink_cursor(connection, sink)
    row = connection.execute(
        "SELECT document FROM states WHERE name = ?", (_STATE + sink,)
    ).fetchone()
    try:
        document: dict[str, Any] = bounded_object(row[0]) if row else _NOTHING
        if document["acked"] > acked_seq:  # of an earlier sink of the same name
            return Progress(acked_seq)
        spans = [RowRange(*fields) for fields in document["spans"]]
        # Retention advances a cursor over deleted rows.
        clipped = [span._replace(after=max(span.after, acked_seq)) for span in spans]
        left = tuple(span for span in clipped if span.after < span.until)
        return Progress(max(int(document["live"]), acked_seq), left)
    except (ValueError, TypeError, KeyError):
        return Progress(acked_seq)  # sending twice is harmless


def keep_progress(
    connection: sqlite3.Connection, sink: str, progress: Progress, time_ns: int
) -> None:
    """Store the progress of a sink; its cursor must not be after it."""
    if not progress.spans:
        connection.execute("DELETE FROM states WHERE name = ?", (_STATE + sink,))
        return
    document = {"acked": progress.acked_seq, "live": progress.live_seq, "spans": progress.spans}
    connection.execute(
        "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
        (_STATE + sink, json.dumps(document), time_ns),
    )


def delete_progress(connection: sqlite3.Connection, sink: str) -> None:
    """Delete the stored progress of a sink."""
    connection.execute("DELETE FROM states WHERE name = ?", (_STATE + sink,))


def _where(span: RowRange) -> tuple[str, tuple[int, int]]:
    # SQLite does not reorder a CROSS JOIN, which keeps rows in order of seq.
    return (
        " FROM points CROSS JOIN series ON series.id = points.series_id"
        " WHERE points.seq > ? AND points.seq <= ?"
        + _OF_KIND[span.kind]
        + (f" AND NOT ({_LATER_IN_ITS_MINUTE})" if span.thinned else "")
    ), (span.after, span.until)


def rows_in(
    connection: sqlite3.Connection, span: RowRange, *, newest_first: bool
) -> list[OutboxRow]:
    """Return the rows of a range, from its old or its new end."""
    where, ends = _where(span)
    order = "DESC" if newest_first else "ASC"
    rows = connection.execute(
        f"SELECT points.seq, {_LINE}{where} ORDER BY points.seq {order}", ends
    )
    return [OutboxRow(*row) for row in rows]


def batch_of(
    connection: sqlite3.Connection, span: RowRange, limit: int, *, newest_first: bool
) -> RowBatch | None:
    """Return up to `limit` rows of a range as one text, from its old or new end; None without rows.

    SQLite concatenates them: this takes half the time and runs without the interpreter's lock.
    """
    where, ends = _where(span)
    order, head = ("DESC", _BATCH_DOWN) if newest_first else ("ASC", _BATCH_UP)
    seq, points, lines = connection.execute(
        f"{head}SELECT points.seq AS seq, {_LINE} AS line{where} ORDER BY points.seq {order} LIMIT ?)",
        (*ends, limit),
    ).fetchone()
    if not points:
        return None
    return RowBatch(first_part(span, seq, newest_first=newest_first), seq, points, lines)


def first_part(span: RowRange, seq: int, *, newest_first: bool) -> RowRange:
    """Return the part of a range that is sent up to and including the row `seq`."""
    return span._replace(after=seq - 1) if newest_first else span._replace(until=seq)


def count_of(connection: sqlite3.Connection, span: RowRange) -> int:
    """Return the number of rows of a range."""
    if span.kind == "all" and not span.thinned:
        # Called for each acknowledgement; needs no join with the series.
        query = "SELECT count(*) FROM points WHERE seq > ? AND seq <= ?"
        (count,) = connection.execute(query, (span.after, span.until)).fetchone()
        return int(count)
    where, ends = _where(span)
    (count,) = connection.execute(f"SELECT count(*){where}", ends).fetchone()
    return int(count)


def nth_seq(connection: sqlite3.Connection, span: RowRange, number: int) -> int | None:
    """Return the seq of the nth row (from 1) of a range; None if it has fewer rows."""
    where, ends = _where(span)
    row = connection.execute(
        f"SELECT points.seq{where} ORDER BY points.seq LIMIT 1 OFFSET ?",
        (*ends, number - 1),
    ).fetchone()
    return int(row[0]) if row else None


def window_of(span: RowRange, *, newest_first: bool) -> RowRange:
    """Return the part of a range that is read next, from its old or new end."""
    if newest_first:
        return span._replace(after=max(span.after, span.until - WINDOW_SEQS))
    return span._replace(until=min(span.until, span.after + WINDOW_SEQS))


def move_to_backlog(
    progress: Progress, newest_seq: int, over_points: int, *, important_first: bool
) -> Progress:
    """Move the live rows to the backlog if they are more than `over_points`.

    With `important_first` a backlog is two ranges, so that important rows are sent first.
    """
    if important_first:
        progress = _divided(progress)
    if newest_seq - progress.live_seq <= over_points:
        return progress
    kinds: tuple[RowKind, ...] = ("important", "rest") if important_first else ("all",)
    spans = list(progress.spans)
    for kind in kinds:
        index = next((i for i, span in enumerate(spans) if _extends(span, kind, progress)), None)
        if index is None:
            spans.append(RowRange(kind, progress.live_seq, newest_seq))
        else:
            spans[index] = spans[index]._replace(until=newest_seq)
    if len(spans) > SPANS_MAX:
        return progress  # keep the rows live, in order
    return Progress(newest_seq, tuple(sorted(spans, key=_by_place)))


def _extends(span: RowRange, kind: RowKind, progress: Progress) -> bool:
    return span.kind == kind and span.until == progress.live_seq and not span.thinned


def _divided(progress: Progress) -> Progress:
    """Return the progress without ranges of all kinds, which a change of the order leaves."""
    divided: list[RowRange] = []
    for span in progress.spans:
        if span.kind == "all":
            divided += [span._replace(kind="important", thinned=False), span._replace(kind="rest")]
        else:
            divided.append(span)
    return progress._replace(spans=tuple(sorted(divided, key=_by_place)))


def next_span(progress: Progress, *, important_first: bool) -> RowRange | None:
    """Return the range that is sent next; None without a backlog."""
    if not progress.spans:
        return None
    if important_first:
        return max(progress.spans, key=lambda span: (span.kind == "important", span.until))
    return min(progress.spans, key=_by_place)


def undelivered_rows(connection: sqlite3.Connection, progress: Progress) -> int:
    """Return the exact number of rows that a sink has not received."""
    live = RowRange("all", progress.live_seq, newest_seq(connection))
    return sum(count_of(connection, span) for span in (live, *progress.spans))


def undelivered(connection: sqlite3.Connection, sink: str, seqs: Iterable[int]) -> set[int]:
    """Return which of some existing rows a sink has not received."""
    progress = load_progress(connection, sink)
    unsent = set()
    for seq in seqs:
        own_spans = [span for span in progress.spans if span.after < seq <= span.until]
        seq_spans = (span._replace(after=seq - 1, until=seq) for span in own_spans)
        if seq > progress.live_seq or any(count_of(connection, span) for span in seq_spans):
            unsent.add(seq)
    return unsent


def sink_backlog(connection: sqlite3.Connection, sink: str) -> Backlog:
    """Return the backlog of a sink; for ranges an upper bound, because counting reads every row.

    Raises:
        KeyError: The sink is not registered.
    """
    progress = load_progress(connection, sink)
    if not progress.spans:
        return backlog_after(connection, progress.live_seq)
    live = backlog_after(connection, progress.live_seq).points
    # Ranges of two kinds may overlap: each sequence number counts once.
    points, reached = live, 0
    for after, until in sorted((span.after, span.until) for span in progress.spans):
        points += max(0, until - max(after, reached))
        reached = max(reached, until)
    oldest_ns = backlog_after(connection, progress.acked_seq).oldest_time_ns
    return Backlog(points, oldest_ns)


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


class Shed(NamedTuple):
    """Result of one step.

    Attributes:
        progress: Progress with a smaller backlog.
        dropped: Rows that the sink will not receive.
    """

    progress: Progress
    dropped: int


def excess_rows(connection: sqlite3.Connection, progress: Progress, max_points: int) -> int:
    """Return the number of rows beyond `max_points`; counted only if it may be exceeded."""
    if newest_seq(connection) - progress.acked_seq <= max_points:
        return 0
    return max(0, undelivered_rows(connection, progress) - max_points)


def shed_rows(connection: sqlite3.Connection, progress: Progress, over_points: int) -> Shed | None:
    """Run one bounded step; None without a backlog.

    The rows stay in the store under its own retention; the sink does not receive them.

    Args:
        connection: In a transaction.
        progress: Progress of the sink.
        over_points: Number of rows beyond the bound.
    """
    fine = [span for span in progress.spans if not span.thinned and span.kind != "important"]
    if fine:
        return _thinned(connection, progress, min(fine, key=lambda span: span.after))
    if not progress.spans:
        return None
    # Important rows are dropped last.
    oldest = min(progress.spans, key=lambda span: (span.kind == "important", span.after))
    return _dropped(connection, progress, oldest, over_points)


def _thinned(connection: sqlite3.Connection, progress: Progress, span: RowRange) -> Shed:
    """Thin the oldest part of a range to one row a minute of each device."""
    part = span._replace(until=min(span.until, span.after + WINDOW_SEQS))
    coarse = part._replace(thinned=True)
    dropped = count_of(connection, part) - count_of(connection, coarse)
    before = next(
        (s for s in progress.spans if s.thinned and (s.kind, s.until) == (span.kind, span.after)),
        None,
    )
    if before is not None:
        progress = progress.replaced(before)
        coarse = coarse._replace(after=before.after)
    return Shed(progress.replaced(span, coarse, span._replace(after=part.until)), dropped)


def _dropped(
    connection: sqlite3.Connection, progress: Progress, span: RowRange, over_points: int
) -> Shed:
    """Drop the oldest rows of a range, no more than are beyond the bound."""
    part = span._replace(until=min(span.until, span.after + WINDOW_SEQS))
    last_seq = nth_seq(connection, part, over_points)
    part = part._replace(until=part.until if last_seq is None else last_seq)
    dropped = count_of(connection, part)
    return Shed(progress.replaced(span, span._replace(after=part.until)), dropped)


def record_dropped(connection: sqlite3.Connection, sink: str, acked_seq: int, dropped: int) -> None:
    """Advance the cursor of a sink over dropped rows, and count them."""
    connection.execute(
        "UPDATE cursors SET acked_seq = max(acked_seq, ?), dropped_points = dropped_points + ?"
        " WHERE sink = ?",
        (acked_seq, dropped, sink),
    )
    add_dropped(connection, dropped)


_WINDOWS_MAX = 20
_STEPS_MAX = 100
_NO_END = 2**63 - 1


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


class _SinkRows:
    """Rows that are sent one after the other.

    Args:
        access: The sink's place in the store.
        newest_first: Whether they are sent newest first, and device and agent rows last; else in
            the order of commits.
    """

    def __init__(self, access: SinkAccess, *, newest_first: bool = False) -> None:
        self._access = access
        self._newest_first = newest_first

    def rows(self, batch: RowBatch) -> list[OutboxRow]:
        """Return the rows of a batch as a list, in the order in which they are sent."""
        with self._access.reader.snapshot("read") as connection:
            return rows_in(connection, batch.covered, newest_first=self._newest_first)


class LiveRows(_SinkRows):
    """The newest rows, in the order of commits."""

    def batch(self, limit: int, pending: Sequence[RowBatch] = ()) -> RowBatch | None:
        """Return the next rows; None if there are none.

        Args:
            limit: Maximum number of rows.
            pending: Batches that are being sent or are about to be; the next rows are those after
                them.
        """
        with self._access.reader.snapshot("read") as connection:
            live_seq = load_progress(connection, self._access.sink).live_seq
            live = RowRange("all", pending[-1].seq if pending else live_seq, _NO_END)
            return batch_of(connection, live, limit, newest_first=False)

    def done(
        self, batch: RowBatch, seq: int, sent: int, rejected: Sequence[tuple[str, str]]
    ) -> None:
        """Record that the rows of a batch up to the row `seq` need not be sent again.

        Args:
            batch: The batch.
            seq: Sequence number of the last of these rows.
            sent: Number of rows that were acknowledged.
            rejected: Lines that were permanently rejected, with the reasons.
        """
        del batch
        with self._access.database.transaction("advance a sink in") as connection:
            progress = load_progress(connection, self._access.sink)
            if seq <= progress.live_seq:
                return  # the thread of an earlier configuration sent and counted them
            present = count_of(connection, RowRange("all", progress.live_seq, seq))
            progress = progress._replace(live_seq=seq)
            time_ns = self._access.clock.time_ns()
            _advance(connection, self._access.sink, progress, min(sent, present), rejected, time_ns)


class BacklogRows(_SinkRows):
    """Rows that could not be sent when they were live.

    A batch names the range that it covers, and `done` removes exactly this range from the backlog:
    a batch that is being sent stays valid when the backlog changes.
    """

    def batch(self, limit: int, pending: Sequence[RowBatch] = ()) -> RowBatch | None:
        """Return the next rows; None without a backlog, or if the part that was read had none.

        Args:
            limit: Maximum number of rows.
            pending: Batches that are being sent or are about to be; the next rows are those after
                them.
        """
        for _ in range(_WINDOWS_MAX):
            with self._access.reader.snapshot("read") as connection:
                progress = load_progress(connection, self._access.sink)
                for batch in pending:
                    progress = progress.without(batch.covered)
                window, rows = self._next_rows(connection, progress, limit)
            if window is None or rows is not None:
                return rows
            self._remove(window, 0, ())
        return None

    def done(
        self, batch: RowBatch, seq: int, sent: int, rejected: Sequence[tuple[str, str]]
    ) -> None:
        """Record that the rows of a batch up to the row `seq` need not be sent again.

        Args:
            batch: The batch.
            seq: Sequence number of the last of these rows, in the order in which they are sent.
            sent: Number of rows that were acknowledged.
            rejected: Lines that were permanently rejected, with the reasons.
        """
        done = first_part(batch.covered, seq, newest_first=self._newest_first)
        self._remove(done, sent, rejected)

    def _next_rows(
        self, connection: sqlite3.Connection, progress: Progress, limit: int
    ) -> tuple[RowRange | None, RowBatch | None]:
        """Return the range that is read next, and its rows."""
        newest_first = self._newest_first
        span = next_span(progress, important_first=newest_first)
        if span is None:
            return None, None
        window = window_of(span, newest_first=newest_first)
        return window, batch_of(connection, window, limit, newest_first=newest_first)

    def _remove(self, done: RowRange, sent: int, rejected: Sequence[tuple[str, str]]) -> None:
        """Remove a range from the backlog, and count its rows that were still in the backlog."""
        with self._access.database.transaction("advance a sink in") as connection:
            progress = load_progress(connection, self._access.sink)
            parts = progress.overlapping(done)
            if not parts:
                return  # the thread of an earlier configuration sent and counted them
            present = sum(count_of(connection, part) for part in parts)
            time_ns = self._access.clock.time_ns()
            left = progress.without(done)
            _advance(connection, self._access.sink, left, min(sent, present), rejected, time_ns)


RowStream = LiveRows | BacklogRows


class SinkOutbox:
    """The rows that one sink has not received; each change is one transaction with its counters.

    A row is removed from the outbox in the transaction that counts it; a row that two threads have
    acknowledged counts once.

    Args:
        access: The sink's place in the store.
        important_first: Order of the backlog; the newest rows first, and device and agent rows last.
        max_points: Maximum number of queued rows.

    Attributes:
        live: The newest rows.
        backlog: Rows that were not sent during an outage.
    """

    def __init__(self, access: SinkAccess, *, important_first: bool, max_points: int) -> None:
        self._access = access
        self._important_first = important_first
        self._max_points = max_points
        self.live = LiveRows(access)
        self.backlog = BacklogRows(access, newest_first=important_first)

    def move_to_backlog(self, over_points: int) -> None:
        """Move the live rows to the backlog if they are more than `over_points`."""
        with self._access.reader.snapshot("read") as connection:
            progress = load_progress(connection, self._access.sink)
            if self._with_live_moved(progress, newest_seq(connection), over_points) == progress:
                return
        with self._access.database.transaction("move rows to a backlog in") as connection:
            progress = load_progress(connection, self._access.sink)
            progress = self._with_live_moved(progress, newest_seq(connection), over_points)
            keep_progress(connection, self._access.sink, progress, self._access.clock.time_ns())

    def keep_bound(self) -> int:
        """Drop the rows beyond the bound, in a limited number of steps; return how many.

        The oldest rows are dropped first: device rows down to one per minute, then whole device and
        agent rows, then all others.
        """
        with self._access.reader.snapshot("read") as connection:
            progress = load_progress(connection, self._access.sink)
            over = excess_rows(connection, progress, self._max_points)
        dropped = 0
        if over:
            self.move_to_backlog(0)
        for _ in range(_STEPS_MAX):
            if dropped >= over:
                break
            with self._access.database.transaction("bound an outbox in") as connection:
                progress = load_progress(connection, self._access.sink)
                step = shed_rows(connection, progress, over - dropped)
                if step is None:
                    break
                record_dropped(connection, self._access.sink, step.progress.acked_seq, step.dropped)
                keep_progress(
                    connection, self._access.sink, step.progress, self._access.clock.time_ns()
                )
            dropped += step.dropped
        return dropped

    def _with_live_moved(self, progress: Progress, newest_seq: int, over_points: int) -> Progress:
        return move_to_backlog(
            progress, newest_seq, over_points, important_first=self._important_first
        )


def _advance(
    connection: sqlite3.Connection,
    sink: str,
    progress: Progress,
    sent: int,
    rejected: Sequence[tuple[str, str]],
    time_ns: int,
) -> None:
    """Store a sink's progress, cursor and counters in one transaction."""
    refused = [RejectedLine(line, reason) for line, reason in rejected]
    advance_cursor(connection, sink, progress.acked_seq, sent, refused, time_ns)
    keep_progress(connection, sink, progress, time_ns)
