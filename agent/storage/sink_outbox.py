"""The outbox as one sink drains it: live rows in order, and a backlog beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from agent.clock import Clock
from agent.storage import outbox, outbox_bound, outbox_order
from agent.storage.database import Database
from agent.storage.outbox import OutboxRow, Pack, RejectedLine
from agent.storage.outbox_order import Kind, Progress, Span

_LOOKS_MAX = 20
_STEPS_MAX = 100
# More than are made beforehand at any time.
_PACKED_MAX = 16
_NO_END = 2**63 - 1
_Found = TypeVar("_Found")


class LiveRows:
    """The newest rows, in the order of commits.

    Args:
        database: The store's file, to write to.
        reader: The same file, to read from: a long look delays no commit.
        clock: For the time of progress.
        sink: Who gets them; registered.
    """

    def __init__(self, database: Database, reader: Database, clock: Clock, sink: str) -> None:
        self._database = database
        self._reader = reader
        self._clock = clock
        self._sink = sink

    def rows(self, limit: int) -> list[OutboxRow]:
        """Up to `limit` rows that come next."""
        with self._reader.snapshot("read") as connection:
            live_seq = outbox_order.load(connection, self._sink).live_seq
            return outbox.rows_after(connection, live_seq, limit)

    def pack(self, limit: int) -> Pack | None:
        """Up to `limit` rows that come next, as one text; None if there are none."""
        with self._reader.snapshot("read") as connection:
            live_seq = outbox_order.load(connection, self._sink).live_seq
            live = Span("all", live_seq, _NO_END)
            return outbox_order.pack_of(connection, live, limit, newest_first=False)

    def pack_behind(self, seq: int, limit: int) -> Pack | None:
        """None: live rows are too few to be packed beforehand."""
        del seq, limit
        return None

    def is_next(self, seq: int) -> bool:
        """False: none was packed beforehand."""
        del seq
        return False

    def done(self, seq: int, sent: int, rejected: Sequence[tuple[str, str]]) -> None:
        """Records that every live row up to the one with `seq` is done with.

        Args:
            seq: Place of the last of them.
            sent: How many were delivered.
            rejected: Lines that were refused for good, with the reason.
        """
        with self._database.transaction("move a sink on in") as connection:
            progress = outbox_order.load(connection, self._sink)
            if seq <= progress.live_seq:
                return  # an earlier configuration's thread was faster, and counted them
            there = outbox_order.count_of(connection, Span("all", progress.live_seq, seq))
            progress = progress._replace(live_seq=seq)
            time_ns = self._clock.time_ns()
            _advance(connection, self._sink, progress, min(sent, there), rejected, time_ns)


class BacklogRows:
    """Rows that could not be sent when they were live.

    Args:
        database: The store's file, to write to.
        reader: The same file, to read from: a long look delays no commit.
        clock: For the time of progress.
        sink: Who gets them; registered.
        important_first: Whether they leave newest first, and device and agent rows last; else in
            the order of commits.
    """

    def __init__(
        self,
        database: Database,
        reader: Database,
        clock: Clock,
        sink: str,
        *,
        important_first: bool,
    ) -> None:
        self._database = database
        self._reader = reader
        self._clock = clock
        self._sink = sink
        self._important_first = important_first
        self._kind: Kind = "all"
        # Where each pack that was made beforehand begins, by its seq.
        self._packed: dict[int, Span] = {}

    def rows(self, limit: int) -> list[OutboxRow]:
        """The next rows; none if there is no backlog, or none was found yet in a long one."""
        return self._look(limit, outbox_order.rows_of) or []

    def pack(self, limit: int) -> Pack | None:
        """The next rows as one text; None where `rows` gives none."""
        return self._look(limit, outbox_order.pack_of)

    def pack_behind(self, seq: int, limit: int) -> Pack | None:
        """What will be next once all up to the row with `seq` is done; any thread may ask.

        None where that is not known without changing anything.
        """
        with self._reader.snapshot("read") as connection:
            progress = outbox_order.load(connection, self._sink)
            span = self._next(progress)
            if span is None:
                return None
            if span.after < seq <= span.until:
                _, left = self._divided(span, seq)
                behind = self._next(progress.replaced(span, left))
                if behind is None:
                    return None
            elif self._is_done_up_to(span, seq):
                behind = span
            else:
                return None
            looked = outbox_order.window(behind, newest_first=self._important_first)
            found = outbox_order.pack_of(
                connection, looked, limit, newest_first=self._important_first
            )
        if found:
            self._packed[found.seq] = self._begin(behind)
            for old_seq in list(self._packed)[:-_PACKED_MAX]:
                del self._packed[old_seq]
        return found

    def is_next(self, seq: int) -> bool:
        """Whether a pack that `pack_behind` gave, with its seq, is what comes next."""
        with self._reader.snapshot("read") as connection:
            span = self._next(outbox_order.load(connection, self._sink))
        if span is None or self._packed.get(seq) != self._begin(span):
            return False
        self._kind = span.kind
        return True

    def _look(self, limit: int, read: Callable[..., _Found]) -> _Found | None:
        """What is found first from here on, in a bounded number of windows."""
        for _ in range(_LOOKS_MAX):
            with self._reader.snapshot("read") as connection:
                span = self._next(outbox_order.load(connection, self._sink))
                if span is None:
                    return None
                looked = outbox_order.window(span, newest_first=self._important_first)
                found = read(connection, looked, limit, newest_first=self._important_first)
            self._kind = span.kind
            if found:
                return found
            self.done(looked.after + 1 if self._important_first else looked.until, 0, ())
        return None

    def _next(self, progress: Progress) -> Span | None:
        return outbox_order.next_span(progress, important_first=self._important_first)

    def _begin(self, span: Span) -> Span:
        """A span without its other end, which may move while the rows here wait."""
        return span._replace(after=0) if self._important_first else span._replace(until=0)

    def _is_done_up_to(self, span: Span, seq: int) -> bool:
        """Whether a row was done with just before a span."""
        return seq == (span.until + 1 if self._important_first else span.after)

    def _divided(self, span: Span, seq: int) -> tuple[Span, Span]:
        """The part of a span that leaves up to a row, and what is left."""
        if self._important_first:
            return span._replace(after=seq - 1), span._replace(until=seq - 1)
        return span._replace(until=seq), span._replace(after=seq)

    def done(self, seq: int, sent: int, rejected: Sequence[tuple[str, str]]) -> None:
        """Records that what `rows` gave last is done with, up to the row with `seq`.

        Args:
            seq: Its place.
            sent: How many were delivered.
            rejected: Lines that were refused for good, with the reason.
        """
        with self._database.transaction("move a sink on in") as connection:
            progress = outbox_order.load(connection, self._sink)
            span = next(
                (s for s in progress.spans if s.kind == self._kind and s.after < seq <= s.until),
                None,
            )
            if span is None:
                return  # an earlier configuration's thread was faster, and counted them
            done, left = self._divided(span, seq)
            there = outbox_order.count_of(connection, done)
            progress = progress.replaced(span, left)
            time_ns = self._clock.time_ns()
            _advance(connection, self._sink, progress, min(sent, there), rejected, time_ns)


class SinkOutbox:
    """What one sink has yet to get. Every change is one transaction with the sink's counters.

    Whatever is killed at whatever moment, a row leaves the outbox in the transaction that counts
    it, and a row that two threads got acknowledged counts once.

    Args:
        database: The store's file, to write to.
        reader: The same file, to read from.
        clock: For the time of progress.
        sink: Its name; registered.
        important_first: How a backlog leaves; see BacklogRows.
        max_points: The most rows that may wait for it.

    Attributes:
        live: Rows as they come.
        backlog: Rows that an outage left behind.
    """

    def __init__(
        self,
        database: Database,
        reader: Database,
        clock: Clock,
        sink: str,
        *,
        important_first: bool,
        max_points: int,
    ) -> None:
        self._database = database
        self._reader = reader
        self._clock = clock
        self._sink = sink
        self._important_first = important_first
        self._max_points = max_points
        self.live = LiveRows(database, reader, clock, sink)
        self.backlog = BacklogRows(database, reader, clock, sink, important_first=important_first)

    def set_apart(self, over_points: int) -> None:
        """Makes a backlog of the live rows, where they are more than `over_points`."""
        with self._reader.snapshot("read") as connection:
            progress = outbox_order.load(connection, self._sink)
            if self._apart(progress, outbox.newest_seq(connection), over_points) == progress:
                return
        with self._database.transaction("set a backlog apart in") as connection:
            progress = outbox_order.load(connection, self._sink)
            progress = self._apart(progress, outbox.newest_seq(connection), over_points)
            outbox_order.keep(connection, self._sink, progress, self._clock.time_ns())

    def keep_bound(self) -> int:
        """Lets go of what waits beyond the bound, in a bounded number of steps; how many rows.

        The oldest goes first: of devices' rows all but one a minute, then whole rows, and what
        is neither a device's nor the agent's last.
        """
        with self._reader.snapshot("read") as connection:
            progress = outbox_order.load(connection, self._sink)
            over = outbox_bound.excess(connection, progress, self._max_points)
        dropped = 0
        if over:
            self.set_apart(0)
        for _ in range(_STEPS_MAX):
            if dropped >= over:
                break
            with self._database.transaction("bound an outbox in") as connection:
                progress = outbox_order.load(connection, self._sink)
                step = outbox_bound.shed(connection, progress, over - dropped)
                if step is None:
                    break
                outbox_bound.record(connection, self._sink, step.progress.acked_seq, step.dropped)
                outbox_order.keep(connection, self._sink, step.progress, self._clock.time_ns())
            dropped += step.dropped
        return dropped

    def _apart(self, progress: Progress, newest_seq: int, over_points: int) -> Progress:
        return outbox_order.set_apart(
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
    """Keeps a sink's progress, its cursor and its counters together."""
    refused = [RejectedLine(line, reason) for line, reason in rejected]
    outbox.advance(connection, sink, progress.acked_seq, sent, refused, time_ns)
    outbox_order.keep(connection, sink, progress, time_ns)
