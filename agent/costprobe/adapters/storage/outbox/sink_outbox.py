"""The outbox of one sink: live rows in order, and a backlog alongside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from costprobe.adapters.storage.database import Database
from costprobe.adapters.storage.outbox import outbox, outbox_bound, outbox_order
from costprobe.adapters.storage.outbox.outbox import RejectedLine
from costprobe.adapters.storage.outbox.outbox_order import Progress
from costprobe.core.clock import Clock
from costprobe.core.outbox import OutboxRow, RowBatch, RowRange

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


class LiveRows:
    """The newest rows, in the order of commits.

    Args:
        access: The sink's place in the store.
    """

    def __init__(self, access: SinkAccess) -> None:
        self._access = access

    def batch(self, limit: int, pending: Sequence[RowBatch] = ()) -> RowBatch | None:
        """Return the next rows; None if there are none.

        Args:
            limit: Maximum number of rows.
            pending: Batches that are being sent or are about to be; the next rows are those after
                them.
        """
        with self._access.reader.snapshot("read") as connection:
            live_seq = outbox_order.load(connection, self._access.sink).live_seq
            live = RowRange("all", pending[-1].seq if pending else live_seq, _NO_END)
            return outbox_order.batch_of(connection, live, limit, newest_first=False)

    def rows(self, batch: RowBatch) -> list[OutboxRow]:
        """Return the rows of a batch as a list, in the order in which they are sent."""
        with self._access.reader.snapshot("read") as connection:
            return outbox_order.rows_of(connection, batch.covered, newest_first=False)

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
            progress = outbox_order.load(connection, self._access.sink)
            if seq <= progress.live_seq:
                return  # the thread of an earlier configuration sent and counted them
            present = outbox_order.count_of(connection, RowRange("all", progress.live_seq, seq))
            progress = progress._replace(live_seq=seq)
            time_ns = self._access.clock.time_ns()
            _advance(connection, self._access.sink, progress, min(sent, present), rejected, time_ns)


class BacklogRows:
    """Rows that could not be sent when they were live.

    A batch names the range that it covers, and `done` removes exactly this range from the backlog:
    a batch that is being sent stays valid when the backlog changes.

    Args:
        access: The sink's place in the store.
        important_first: Whether they are sent newest first, and device and agent rows last; else
            in the order of commits.
    """

    def __init__(self, access: SinkAccess, *, important_first: bool) -> None:
        self._access = access
        self._important_first = important_first

    def batch(self, limit: int, pending: Sequence[RowBatch] = ()) -> RowBatch | None:
        """Return the next rows; None without a backlog, or if the part that was read had none.

        Args:
            limit: Maximum number of rows.
            pending: Batches that are being sent or are about to be; the next rows are those after
                them.
        """
        for _ in range(_WINDOWS_MAX):
            with self._access.reader.snapshot("read") as connection:
                progress = outbox_order.load(connection, self._access.sink)
                for batch in pending:
                    progress = progress.without(batch.covered)
                window, rows = self._next_rows(connection, progress, limit)
            if window is None or rows is not None:
                return rows
            self._remove(window, 0, ())
        return None

    def rows(self, batch: RowBatch) -> list[OutboxRow]:
        """Return the rows of a batch as a list, in the order in which they are sent."""
        with self._access.reader.snapshot("read") as connection:
            newest_first = self._important_first
            return outbox_order.rows_of(connection, batch.covered, newest_first=newest_first)

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
        newest_first = self._important_first
        done = outbox_order.first_part(batch.covered, seq, newest_first=newest_first)
        self._remove(done, sent, rejected)

    def _next_rows(
        self, connection: sqlite3.Connection, progress: Progress, limit: int
    ) -> tuple[RowRange | None, RowBatch | None]:
        """Return the range that is read next, and its rows."""
        newest_first = self._important_first
        span = outbox_order.next_span(progress, important_first=newest_first)
        if span is None:
            return None, None
        window = outbox_order.window(span, newest_first=newest_first)
        return window, outbox_order.batch_of(connection, window, limit, newest_first=newest_first)

    def _remove(self, done: RowRange, sent: int, rejected: Sequence[tuple[str, str]]) -> None:
        """Remove a range from the backlog, and count its rows that were still in the backlog."""
        with self._access.database.transaction("advance a sink in") as connection:
            progress = outbox_order.load(connection, self._access.sink)
            parts = progress.overlapping(done)
            if not parts:
                return  # the thread of an earlier configuration sent and counted them
            present = sum(outbox_order.count_of(connection, part) for part in parts)
            time_ns = self._access.clock.time_ns()
            left = progress.without(done)
            _advance(connection, self._access.sink, left, min(sent, present), rejected, time_ns)


class SinkOutbox:
    """The rows that one sink has not received; each change is one transaction with its counters.

    A row is removed from the outbox in the transaction that counts it; a row that two threads have
    acknowledged counts once.

    Args:
        access: The sink's place in the store.
        important_first: Order of the backlog; see BacklogRows.
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
        self.backlog = BacklogRows(access, important_first=important_first)

    def move_to_backlog(self, over_points: int) -> None:
        """Move the live rows to the backlog if they are more than `over_points`."""
        with self._access.reader.snapshot("read") as connection:
            progress = outbox_order.load(connection, self._access.sink)
            if (
                self._with_live_moved(progress, outbox.newest_seq(connection), over_points)
                == progress
            ):
                return
        with self._access.database.transaction("move rows to a backlog in") as connection:
            progress = outbox_order.load(connection, self._access.sink)
            progress = self._with_live_moved(progress, outbox.newest_seq(connection), over_points)
            outbox_order.keep(connection, self._access.sink, progress, self._access.clock.time_ns())

    def keep_bound(self) -> int:
        """Drop the rows beyond the bound, in a limited number of steps; return how many.

        The oldest rows are dropped first: device rows down to one per minute, then whole device and
        agent rows, then all others.
        """
        with self._access.reader.snapshot("read") as connection:
            progress = outbox_order.load(connection, self._access.sink)
            over = outbox_bound.excess(connection, progress, self._max_points)
        dropped = 0
        if over:
            self.move_to_backlog(0)
        for _ in range(_STEPS_MAX):
            if dropped >= over:
                break
            with self._access.database.transaction("bound an outbox in") as connection:
                progress = outbox_order.load(connection, self._access.sink)
                step = outbox_bound.shed(connection, progress, over - dropped)
                if step is None:
                    break
                outbox_bound.record(
                    connection, self._access.sink, step.progress.acked_seq, step.dropped
                )
                outbox_order.keep(
                    connection, self._access.sink, step.progress, self._access.clock.time_ns()
                )
            dropped += step.dropped
        return dropped

    def _with_live_moved(self, progress: Progress, newest_seq: int, over_points: int) -> Progress:
        return outbox_order.move_to_backlog(
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
    outbox.advance(connection, sink, progress.acked_seq, sent, refused, time_ns)
    outbox_order.keep(connection, sink, progress, time_ns)
