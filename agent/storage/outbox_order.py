"""What a sink is done with when rows leave out of order: a place for live rows, and spans behind it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from agent.storage import outbox
from agent.storage.outbox import Backlog, OutboxRow, Pack, SinkStatus

Kind = Literal["all", "important", "rest"]
SPANS_MAX = 32
# One look reads at most this many rows, so that a rare kind among many of another stays cheap.
WINDOW_SEQS = 20_000
_STATE = "delivery "
_NOTHING = {"acked": 0, "live": 0, "spans": []}
_OF_KIND = {
    "all": "",
    "important": " AND series.measurement NOT IN ('device', 'agent')",
    "rest": " AND series.measurement IN ('device', 'agent')",
}
# Of a device's rows the first of each minute stays.
_LATER_IN_ITS_MINUTE = """series.measurement = 'device' AND EXISTS (
    SELECT 1 FROM points AS earlier WHERE earlier.series_id = points.series_id
    AND earlier.time_ns >= points.time_ns - points.time_ns % 60000000000
    AND earlier.time_ns < points.time_ns)"""
_PACKED_UP = "SELECT max(seq), count(*), CAST(group_concat(line, char(10)) AS BLOB) FROM ("
_PACKED_DOWN = _PACKED_UP.replace("max", "min")
_LINE = "series.key || ' ' || points.fields || ' ' || points.time_ns"


class Span(NamedTuple):
    """Rows of a backlog that a sink has yet to get.

    Attributes:
        kind: All rows, or the important ones or the rest (device, agent) alone.
        after: They lie behind this seq,
        until: and not behind this one.
        thinned: Whether of each device only the first row of a minute still counts.
    """

    kind: Kind
    after: int
    until: int
    thinned: bool = False


class Progress(NamedTuple):
    """What a sink is done with: everything up to `live_seq` that lies in no span.

    Attributes:
        live_seq: Rows behind it are sent in order.
        spans: The backlog, sent beside them.
    """

    live_seq: int
    spans: tuple[Span, ...] = ()

    @property
    def acked_seq(self) -> int:
        """Everything up to here is done with."""
        return min((span.after for span in self.spans), default=self.live_seq)

    def replaced(self, old: Span, *new: Span) -> Progress:
        """The same with other spans in place of one; what is empty goes."""
        kept = [span for span in self.spans if span != old]
        spans = sorted([*kept, *(span for span in new if span.after < span.until)], key=_by_place)
        return self._replace(spans=tuple(spans))


def _by_place(span: Span) -> tuple[int, str]:
    return span.after, span.kind


def load(connection: sqlite3.Connection, sink: str) -> Progress:
    """How far a sink has got.

    Raises:
        KeyError: The sink is not registered.
    """
    acked_seq = outbox.cursor(connection, sink)
    row = connection.execute(
        "SELECT document FROM states WHERE name = ?", (_STATE + sink,)
    ).fetchone()
    try:
        document: dict[str, Any] = json.loads(row[0]) if row else _NOTHING
        if document["acked"] > acked_seq:  # of a sink of this name that was forgotten since
            return Progress(acked_seq)
        spans = [Span(*fields) for fields in document["spans"]]
        # Retention moves a cursor over rows that are gone.
        clipped = [span._replace(after=max(span.after, acked_seq)) for span in spans]
        left = tuple(span for span in clipped if span.after < span.until)
        return Progress(max(int(document["live"]), acked_seq), left)
    except (ValueError, TypeError, KeyError):
        return Progress(acked_seq)  # sending twice is harmless


def keep(connection: sqlite3.Connection, sink: str, progress: Progress, time_ns: int) -> None:
    """Keeps a sink's progress; its cursor must not lie behind it."""
    if not progress.spans:
        connection.execute("DELETE FROM states WHERE name = ?", (_STATE + sink,))
        return
    document = {"acked": progress.acked_seq, "live": progress.live_seq, "spans": progress.spans}
    connection.execute(
        "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
        (_STATE + sink, json.dumps(document), time_ns),
    )


def forget(connection: sqlite3.Connection, sink: str) -> None:
    """Removes what is kept of a sink beside its cursor."""
    connection.execute("DELETE FROM states WHERE name = ?", (_STATE + sink,))


def _where(span: Span) -> tuple[str, tuple[int, int]]:
    # In a CROSS JOIN SQLite keeps the order of the tables, and so that of the seqs.
    return (
        " FROM points CROSS JOIN series ON series.id = points.series_id"
        " WHERE points.seq > ? AND points.seq <= ?"
        + _OF_KIND[span.kind]
        + (f" AND NOT ({_LATER_IN_ITS_MINUTE})" if span.thinned else "")
    ), (span.after, span.until)


def rows_of(
    connection: sqlite3.Connection, span: Span, limit: int, *, newest_first: bool
) -> list[OutboxRow]:
    """Up to `limit` rows of a span, from its old or its new end on."""
    where, ends = _where(span)
    order = "DESC" if newest_first else "ASC"
    rows = connection.execute(
        f"SELECT points.seq, {_LINE}{where} ORDER BY points.seq {order} LIMIT ?",
        (*ends, limit),
    )
    return [OutboxRow(*row) for row in rows]


def pack_of(
    connection: sqlite3.Connection, span: Span, limit: int, *, newest_first: bool
) -> Pack | None:
    """Up to `limit` rows of a span as one text, from its old or its new end on; None without any.

    SQLite puts them together itself: it takes half the time, and other threads run meanwhile.
    """
    where, ends = _where(span)
    order, head = ("DESC", _PACKED_DOWN) if newest_first else ("ASC", _PACKED_UP)
    seq, points, lines = connection.execute(
        f"{head}SELECT points.seq AS seq, {_LINE} AS line{where} ORDER BY points.seq {order} LIMIT ?)",
        (*ends, limit),
    ).fetchone()
    return Pack(seq, points, lines) if points else None


def count_of(connection: sqlite3.Connection, span: Span) -> int:
    """How many rows a span has."""
    if span.kind == "all" and not span.thinned:
        # Each acknowledgement asks this, and needs no row's series for it.
        query = "SELECT count(*) FROM points WHERE seq > ? AND seq <= ?"
        (found,) = connection.execute(query, (span.after, span.until)).fetchone()
        return int(found)
    where, ends = _where(span)
    (found,) = connection.execute(f"SELECT count(*){where}", ends).fetchone()
    return int(found)


def nth_seq(connection: sqlite3.Connection, span: Span, number: int) -> int | None:
    """The seq of the row with a number (from 1) in a span; None if it has fewer."""
    where, ends = _where(span)
    row = connection.execute(
        f"SELECT points.seq{where} ORDER BY points.seq LIMIT 1 OFFSET ?",
        (*ends, number - 1),
    ).fetchone()
    return int(row[0]) if row else None


def window(span: Span, *, newest_first: bool) -> Span:
    """The end of a span that is looked at next."""
    if newest_first:
        return span._replace(after=max(span.after, span.until - WINDOW_SEQS))
    return span._replace(until=min(span.until, span.after + WINDOW_SEQS))


def set_apart(
    progress: Progress, newest_seq: int, over_points: int, *, important_first: bool
) -> Progress:
    """Makes a backlog of the live rows where they are more than `over_points`.

    With `important_first` a backlog is two spans, so that what matters leaves before the rest.
    """
    if important_first:
        progress = _divided(progress)
    if newest_seq - progress.live_seq <= over_points:
        return progress
    kinds: tuple[Kind, ...] = ("important", "rest") if important_first else ("all",)
    spans = list(progress.spans)
    for kind in kinds:
        at = next((i for i, span in enumerate(spans) if _goes_on(span, kind, progress)), None)
        if at is None:
            spans.append(Span(kind, progress.live_seq, newest_seq))
        else:
            spans[at] = spans[at]._replace(until=newest_seq)
    if len(spans) > SPANS_MAX:
        return progress  # what is live goes on in order
    return Progress(newest_seq, tuple(sorted(spans, key=_by_place)))


def _goes_on(span: Span, kind: Kind, progress: Progress) -> bool:
    return span.kind == kind and span.until == progress.live_seq and not span.thinned


def _divided(progress: Progress) -> Progress:
    """Without spans of all kinds, as a change of the order leaves them."""
    divided: list[Span] = []
    for span in progress.spans:
        if span.kind == "all":
            divided += [span._replace(kind="important", thinned=False), span._replace(kind="rest")]
        else:
            divided.append(span)
    return progress._replace(spans=tuple(sorted(divided, key=_by_place)))


def next_span(progress: Progress, *, important_first: bool) -> Span | None:
    """The span that is drained next; None without a backlog."""
    if not progress.spans:
        return None
    if important_first:
        return max(progress.spans, key=lambda span: (span.kind == "important", span.until))
    return min(progress.spans, key=_by_place)


def waiting(connection: sqlite3.Connection, progress: Progress) -> int:
    """How many rows a sink has yet to get, counted."""
    live = Span("all", progress.live_seq, outbox.newest_seq(connection))
    return sum(count_of(connection, span) for span in (live, *progress.spans))


def undelivered(connection: sqlite3.Connection, sink: str, seqs: Iterable[int]) -> set[int]:
    """Which of some rows, which are still there, a sink has yet to get."""
    progress = load(connection, sink)
    found = set()
    for seq in seqs:
        mine = [span for span in progress.spans if span.after < seq <= span.until]
        one = (span._replace(after=seq - 1, until=seq) for span in mine)
        if seq > progress.live_seq or any(count_of(connection, span) for span in one):
            found.add(seq)
    return found


def backlog(connection: sqlite3.Connection, sink: str) -> Backlog:
    """What a sink has yet to send; rows of a span are an upper bound, for counting reads them all.

    Raises:
        KeyError: The sink is not registered.
    """
    progress = load(connection, sink)
    if not progress.spans:
        return outbox.backlog(connection, progress.live_seq)
    live = outbox.backlog(connection, progress.live_seq).points
    # Spans of two kinds lie side by side: each place counts once.
    points, reached = live, 0
    for after, until in sorted((span.after, span.until) for span in progress.spans):
        points += max(0, until - max(after, reached))
        reached = max(reached, until)
    oldest_ns = outbox.backlog(connection, progress.acked_seq).oldest_time_ns
    return Backlog(points, oldest_ns)


def sinks(connection: sqlite3.Connection) -> list[SinkStatus]:
    """How every registered sink is doing, by name."""
    rows = connection.execute(
        "SELECT sink, acked_seq, sent_points, rejected_points, dropped_points, acked_ns"
        " FROM cursors ORDER BY sink"
    ).fetchall()
    return [
        SinkStatus(sink, acked_seq, backlog(connection, sink), *rest)
        for sink, acked_seq, *rest in rows
    ]
