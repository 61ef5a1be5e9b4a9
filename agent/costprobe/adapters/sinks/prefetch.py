"""Prepares the next request of a backlog while the current one is being sent."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from costprobe.adapters.sinks.outbox import BacklogStream
from costprobe.core.outbox import RowBatch


class EncodedBatch(NamedTuple):
    """A prepared request.

    Attributes:
        batch: The rows.
        body: The rows as encoded by the sink.
        is_full: Whether more rows may follow.
    """

    batch: RowBatch
    body: bytes
    is_full: bool

    @classmethod
    def of(
        cls, batch: RowBatch | None, encode: Callable[[bytes], bytes], limit: int
    ) -> EncodedBatch | None:
        """Encode a batch that was read with `limit`; None without rows."""
        if batch is None:
            return None
        return cls(batch, encode(batch.lines), batch.points >= limit)


class Prefetch:
    """Reads and encodes at most one request of a backlog in advance, in a thread of its own.

    SQLite builds the text, and zlib compresses it, without the interpreter's lock: both overlap
    with the wait for the server.

    Args:
        backlog: The stream of rows.
        encode: Encodes lines to the body of a request.
        name: Name of the thread.
    """

    def __init__(self, backlog: BacklogStream, encode: Callable[[bytes], bytes], name: str) -> None:
        self._backlog = backlog
        self._encode = encode
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        self._next: Future[EncodedBatch | None] | None = None

    def take(self, limit: int) -> EncodedBatch | None:
        """Return the next request, at most `limit` points; None if no rows are left."""
        prepared, self._next = self._next, None
        if prepared is not None and prepared.exception() is None:
            request = prepared.result()
            if request is not None:
                return request
        # After an error of the prefetch the rows are read again, which raises if it still fails.
        return EncodedBatch.of(self._backlog.batch(limit), self._encode, limit)

    def start(self, after: RowBatch, limit: int) -> None:
        """Start to prepare the rows after `after`, at most `limit`."""
        if self._next is None:
            self._executor = self._executor or ThreadPoolExecutor(1, self._name)
            self._next = self._executor.submit(self._prepare, after, limit)

    def discard(self) -> None:
        """Discard the prepared request, because the request before it failed."""
        self._next = None

    def close(self) -> None:
        """End the thread."""
        self.discard()
        if self._executor is not None:
            self._executor.shutdown()

    def _prepare(self, after: RowBatch, limit: int) -> EncodedBatch | None:
        return EncodedBatch.of(self._backlog.batch_after(after, limit), self._encode, limit)
