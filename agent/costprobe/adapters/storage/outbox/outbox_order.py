"""Delivery progress of a sink when rows are sent out of order: a live cursor and ranges before it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from costprobe.adapters.storage.outbox import outbox
from costprobe.adapters.storage.outbox.outbox import Backlog, SinkStatus
from costprobe.core.bounded import bounded_object
from costprobe.core.outbox import OutboxRow, RowBatch, RowKind, RowRange

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
_LINE = "series.key || ' ' || points.fields || ' ' || points.time_ns"


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


def load(connection: sqlite3.Connection, sink: str) -> Progress:
    """Load the progress of a sink.

    Raises:
        KeyError: The sink is not registered.
    """
    acked_seq = outbox.cursor(connection, sink)
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


def keep(connection: sqlite3.Connection, sink: str, progress: Progress, time_ns: int) -> None:
    """Store the progress of a sink; its cursor must not be after it."""
    if not progress.spans:
        connection.execute("DELETE FROM states WHERE name = ?", (_STATE + sink,))
        return
    document = {"acked": progress.acked_seq, "live": progress.live_seq, "spans": progress.spans}
    connection.execute(
        "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
        (_STATE + sink, json.dumps(document), time_ns),
    )


def delete(connection: sqlite3.Connection, sink: str) -> None:
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


def rows_of(
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


def window(span: RowRange, *, newest_first: bool) -> RowRange:
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


def waiting(connection: sqlite3.Connection, progress: Progress) -> int:
    """Return the exact number of rows that a sink has not received."""
    live = RowRange("all", progress.live_seq, outbox.newest_seq(connection))
    return sum(count_of(connection, span) for span in (live, *progress.spans))


def undelivered(connection: sqlite3.Connection, sink: str, seqs: Iterable[int]) -> set[int]:
    """Return which of some existing rows a sink has not received."""
    progress = load(connection, sink)
    unsent = set()
    for seq in seqs:
        own_spans = [span for span in progress.spans if span.after < seq <= span.until]
        seq_spans = (span._replace(after=seq - 1, until=seq) for span in own_spans)
        if seq > progress.live_seq or any(count_of(connection, span) for span in seq_spans):
            unsent.add(seq)
    return unsent


def backlog(connection: sqlite3.Connection, sink: str) -> Backlog:
    """Return the backlog of a sink; for ranges an upper bound, because counting reads every row.

    Raises:
        KeyError: The sink is not registered.
    """
    progress = load(connection, sink)
    if not progress.spans:
        return outbox.backlog(connection, progress.live_seq)
    live = outbox.backlog(connection, progress.live_seq).points
    # Ranges of two kinds may overlap: each sequence number counts once.
    points, reached = live, 0
    for after, until in sorted((span.after, span.until) for span in progress.spans):
        points += max(0, until - max(after, reached))
        reached = max(reached, until)
    oldest_ns = outbox.backlog(connection, progress.acked_seq).oldest_time_ns
    return Backlog(points, oldest_ns)


def sinks(connection: sqlite3.Connection) -> list[SinkStatus]:
    """Return the status of every registered sink, by name."""
    rows = connection.execute(
        "SELECT sink, acked_seq, sent_points, rejected_points, dropped_points, acked_ns"
        " FROM cursors ORDER BY sink"
    ).fetchall()
    return [
        SinkStatus(sink, acked_seq, backlog(connection, sink), *counts)
        for sink, acked_seq, *counts in rows
    ]
