"""Requests in flight: up to three while a backlog is drained, finished in the order of their rows."""

from __future__ import annotations

from collections import deque
from itertools import islice
from threading import Thread
from typing import Final

from costprobe.adapters.sinks.batching import BatchSize
from costprobe.adapters.sinks.outbox import RowStream
from costprobe.adapters.sinks.sink import Sink
from costprobe.core.outbox import RowBatch

# With fewer, processors of a server are idle while requests and responses are on their way.
IN_FLIGHT_MAX: Final = 3


class SinkRequest:
    """One request.

    Args:
        sink: Its destination.
        batch: The rows.
        is_full: Whether more rows may follow.
    """

    def __init__(self, sink: Sink, batch: RowBatch, *, is_full: bool) -> None:
        self.batch = batch
        self.is_full = is_full
        self._sink = sink
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Encode and send in another thread, which does not delay the end of the process."""
        if self._thread is None:
            self._thread = Thread(target=self._send, name="sink request", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Return once the rows are acknowledged; raises the errors of the sink.

        A request that was not started is sent by this thread.
        """
        if self._thread is None:
            self._send()
        self.wait()
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Return once a started request has ended, with any result."""
        if self._thread is not None:
            self._thread.join()

    def _send(self) -> None:
        try:
            self._sink.post(self._sink.encode(self.batch.lines))
        except BaseException as error:  # noqa: BLE001 - raised by `finish`
            self._error = error


class RequestWindow:
    """The requests of one stream of rows that are in flight, oldest first.

    Threads exist only while several requests are in flight. Not thread-safe.

    Args:
        stream: The rows.
        sink: Where they are sent.
        size: Size of a request.
    """

    def __init__(self, stream: RowStream, sink: Sink, size: BatchSize) -> None:
        self._stream = stream
        self._sink = sink
        self._size = size
        self._requests: deque[SinkRequest] = deque()

    def take(self, in_flight: int) -> SinkRequest | None:
        """Remove and return the oldest request; None if no rows are left.

        Args:
            in_flight: Number of requests that are in flight at the same time.
        """
        if not self._requests and not self._read():
            return None
        if in_flight > 1:
            self._fill(in_flight)
        return self._requests.popleft()

    def _fill(self, in_flight: int) -> None:
        """Start requests, and read one more, which is started as soon as one of them is done."""
        while len(self._requests) <= in_flight:
            newest = self._requests[-1]
            if not newest.is_full or not self._size.fits(newest.batch):
                break
            self._start(in_flight)
            if not self._read():
                break
        if len(self._requests) > 1:
            self._start(in_flight)

    def _start(self, in_flight: int) -> None:
        for request in islice(self._requests, in_flight):
            # A batch that does not fit is divided by the caller, once the requests before it are done.
            if self._size.fits(request.batch):
                request.start()

    def discard(self) -> None:
        """Wait for the requests in flight and discard their results; their rows are sent again."""
        while self._requests:
            self._requests.popleft().wait()

    def _read(self) -> bool:
        limit = self._size.limit()
        batch = self._stream.batch(limit, [request.batch for request in self._requests])
        if batch is None:
            return False
        self._size.observe(batch.points, len(batch.lines))
        self._requests.append(SinkRequest(self._sink, batch, is_full=batch.points >= limit))
        return True
