"""Sends batches of the outbox to a sink, and isolates rows that the sink rejects."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from threading import Event as Flag
from typing import NamedTuple

from costprobe.adapters.net.errors import Misconfigured, Rejected
from costprobe.adapters.sinks.batching import BatchSize
from costprobe.adapters.sinks.outbox import Outbox, RowStream
from costprobe.adapters.sinks.request_window import IN_FLIGHT_MAX, RequestWindow, SinkRequest
from costprobe.adapters.sinks.settings import SinkConfig
from costprobe.adapters.sinks.sink import Sink
from costprobe.core.clock import Clock
from costprobe.core.outbox import OutboxRow, RowBatch

logger = logging.getLogger(__name__)


class SendResult(NamedTuple):
    """The outcome of one batch.

    Attributes:
        points: Number of rows that are done.
        has_more: Whether more rows may follow.
    """

    points: int
    has_more: bool


class BatchSender:
    """Sends batches and records each in the outbox, in order, once it is acknowledged.

    Not thread-safe: the sink's delivery thread calls it.

    Args:
        config: The sink's section of the configuration.
        outbox: The rows.
        sink: Where they are sent.
        stop: Ends the search for rejected rows.
        clock: For the time of the last success.

    Attributes:
        batch_size: Size of a request, adapted to what the server accepts.
        sent: Rows that were acknowledged.
        rejected: Rows that were permanently rejected.
        last_success_ns: UTC ns of the last acknowledgement; None before the first.
    """

    def __init__(
        self, config: SinkConfig, outbox: Outbox, sink: Sink, stop: Flag, clock: Clock
    ) -> None:
        self._name = config.name
        self._outbox = outbox
        self._sink = sink
        self._stop = stop
        self._clock = clock
        self.batch_size = BatchSize(config.batch_points)
        self._live = RequestWindow(outbox.live, sink, self.batch_size)
        self._backlog = RequestWindow(outbox.backlog, sink, self.batch_size)
        self.sent = 0
        self.rejected = 0
        self.last_success_ns: int | None = None

    def send_live(self) -> SendResult:
        """Send the next live rows; raises the errors of the sink, except for rejected rows."""
        return self._send(self._outbox.live, self._live.take(1))

    def send_backlog(self, *, overlap: bool) -> SendResult:
        """Send the next rows of the backlog, likewise.

        Args:
            overlap: Whether the rows after them are sent at the same time; the next call records
                these.
        """
        request = self._backlog.take(IN_FLIGHT_MAX if overlap else 1)
        return self._send(self._outbox.backlog, request)

    def discard(self) -> None:
        """Wait for requests in flight after a failure; their rows are sent again."""
        self._backlog.discard()

    def close(self) -> None:
        """Wait for requests in flight and close the sink."""
        self._backlog.discard()
        self._sink.close()

    def _send(self, stream: RowStream, request: SinkRequest | None) -> SendResult:
        if request is None:
            return SendResult(0, has_more=False)
        batch = request.batch
        if not self.batch_size.fits(batch):
            pieces = self._within_bytes(stream.rows(batch))
            self._split(stream, batch, deque(pieces))
            return SendResult(batch.points, request.is_full)
        try:
            request.finish()
        except Rejected as refusal:
            if refusal.too_large:
                self.batch_size.too_large(len(batch.lines))
            rows = stream.rows(batch)
            if len(rows) == 1:
                self._split(stream, batch, deque([rows]), refusal)
            else:
                self._split(stream, batch, deque(_halves(rows)))
        else:
            self._acknowledged(stream, batch, batch.seq, batch.points)
        return SendResult(batch.points, request.is_full)

    def _split(
        self,
        stream: RowStream,
        batch: RowBatch,
        pieces: deque[Sequence[OutboxRow]],
        refusal: Rejected | None = None,
    ) -> None:
        """Send pieces of a batch; bisect a rejected piece down to the row that causes it.

        The outbox records every piece that is done, so that little is repeated after a failure; a
        repetition is harmless, because it replaces the same points.

        Args:
            stream: The stream of the rows.
            batch: The batch.
            pieces: Its rows, in the order in which they are sent.
            refusal: The sink's answer to the first piece, if it was sent already.
        """
        # Rows are done in order, and the server's limits may have changed.
        self._backlog.discard()
        refused, reason = 0, ""
        try:
            while pieces and not self._stop.is_set():
                piece = pieces.popleft()
                refusal = refusal or self._refusal_of(piece)
                if refusal is None:
                    self._acknowledged(stream, batch, piece[-1].seq, len(piece))
                elif len(piece) > 1:
                    pieces.extendleft(reversed(_halves(piece)))
                else:
                    self._quarantine(stream, batch, piece[0], refusal)
                    refused, reason = refused + 1, refusal.reason
                refusal = None
        finally:
            if refused:
                logger.warning(
                    "sink %s: the server permanently rejected %d points; last reason: %s",
                    self._name,
                    refused,
                    reason,
                )

    def _refusal_of(self, piece: Sequence[OutboxRow]) -> Rejected | None:
        """Send rows; return the error if the server rejects some of them."""
        lines = "\n".join(row.line for row in piece).encode()
        try:
            self._sink.post(self._sink.encode(lines))
        except Rejected as refusal:
            if refusal.too_large:
                self.batch_size.too_large(len(lines))
            return refusal
        return None

    def _acknowledged(self, stream: RowStream, batch: RowBatch, seq: int, points: int) -> None:
        stream.done(batch, seq, points, ())
        self.batch_size.accepted()
        self.sent += points
        self.last_success_ns = self._clock.time_ns()

    def _quarantine(
        self, stream: RowStream, batch: RowBatch, row: OutboxRow, refusal: Rejected
    ) -> None:
        """Quarantine a rejected row, unless the server rejects everything."""
        if refusal.doubtful:
            try:
                self._sink.check()
            except Rejected as error:
                # A proxy, or a server that expects another scheme, rejects everything: keep the outbox.
                raise Misconfigured(
                    f"{error.reason}; even an empty write is rejected: check url and its scheme"
                ) from error
        stream.done(batch, row.seq, 0, [(row.line, refusal.reason)])
        self.rejected += 1

    def _within_bytes(self, rows: Sequence[OutboxRow]) -> list[Sequence[OutboxRow]]:
        """Divide rows into pieces of at most the size of a request."""
        pieces: list[Sequence[OutboxRow]] = []
        first, size_bytes = 0, 0
        for index, row in enumerate(rows):
            line_bytes = len(row.line.encode()) + 1
            size_bytes += line_bytes
            if size_bytes > self.batch_size.size_bytes and index > first:
                pieces.append(rows[first:index])
                first, size_bytes = index, line_bytes
        return [*pieces, rows[first:]] if rows else []


def _halves(rows: Sequence[OutboxRow]) -> tuple[Sequence[OutboxRow], Sequence[OutboxRow]]:
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]
