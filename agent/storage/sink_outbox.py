"""The outbox as one sink drains it: live rows in order, and a backlog beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agent.clock import Clock
from agent.storage import outbox, outbox_bound, outbox_order
from agent.storage.database import Database
from agent.storage.outbox import OutboxRow, RejectedLine
from agent.storage.outbox_order import Kind, Progress, Span

_LOOKS_MAX = 20
_STEPS_MAX = 100


class LiveRows:
    """The newest rows, in the order of commits.

    Args:
        database: The store's file, to write to.
        clock: For the time of progress.
        sink: Who gets them; registered.
    """

    def __init__(self, database: Database, clock: Clock, sink: str) -> None:
        self._database = database
        self._clock = clock
        self._sink = sink

    def rows(self, limit: int) -> list[OutboxRow]:
        """Up to `limit` rows that come next."""
        with self._database.reading("read") as connection:
            live_seq = outbox_order.load(connection, self._sink).live_seq
            return outbox.rows_after(connection, live_seq, limit)

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
        clock: For the time of progress.
        sink: Who gets them; registered.
        important_first: Whether they leave newest first, and device and agent rows last; else in
            the order of commits.
    """

    def __init__(
        self, database: Database, clock: Clock, sink: str, *, important_first: bool
    ) -> None:
        self._database = database
        self._clock = clock
        self._sink = sink
        self._important_first = important_first
        self._kind: Kind = "all"

    def rows(self, limit: int) -> list[OutboxRow]:
        """The next rows; none if there is no backlog, or none was found yet in a long one."""
        for _ in range(_LOOKS_MAX):
            with self._database.reading("read") as connection:
                progress = outbox_order.load(connection, self._sink)
                span = outbox_order.next_span(progress, important_first=self._important_first)
                if span is None:
                    return []
                looked = outbox_order.window(span, newest_first=self._important_first)
                rows = outbox_order.rows_of(
                    connection, looked, limit, newest_first=self._important_first
                )
            self._kind = span.kind
            if rows:
                return rows
            self.done(looked.after + 1 if self._important_first else looked.until, 0, ())
        return []

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
            if self._important_first:
                done, left = span._replace(after=seq - 1), span._replace(until=seq - 1)
            else:
                done, left = span._replace(until=seq), span._replace(after=seq)
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
        clock: Clock,
        sink: str,
        *,
        important_first: bool,
        max_points: int,
    ) -> None:
        self._database = database
        self._clock = clock
        self._sink = sink
        self._important_first = important_first
        self._max_points = max_points
        self.live = LiveRows(database, clock, sink)
        self.backlog = BacklogRows(database, clock, sink, important_first=important_first)

    def set_apart(self, over_points: int) -> None:
        """Makes a backlog of the live rows, where they are more than `over_points`."""
        with self._database.reading("read") as connection:
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
        with self._database.reading("read") as connection:
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
