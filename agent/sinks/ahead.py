"""The next request is made while the one before it is on its way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from agent.sinks.streams import Pack, Rows


class Request(NamedTuple):
    """What is posted.

    Attributes:
        pack: The rows.
        body: What the sink made of them.
        is_full: Whether there may be more behind them.
    """

    pack: Pack
    body: bytes
    is_full: bool


class Ahead:
    """Makes requests, one of them beforehand in a thread of its own.

    The store's text and a compressed body are made without the interpreter's lock: what waits for
    a server costs nothing but the memory of one more request.

    Args:
        make_body: From lines to what is posted.
        name: Of the thread.
    """

    def __init__(self, make_body: Callable[[bytes], bytes], name: str) -> None:
        self._make_body = make_body
        self._name = name
        self._thread: ThreadPoolExecutor | None = None
        self._coming: tuple[Rows, int, Future[Request | None]] | None = None

    def take(self, stream: Rows, limit: int) -> Request | None:
        """The next request of a stream, at most `limit` points; None if nothing is left."""
        ready, coming, self._coming = None, self._coming, None
        if coming is not None and coming[0] is stream and coming[1] <= limit:
            try:
                ready = coming[2].result()
            except Exception:  # noqa: BLE001 - whatever it was, it is tried anew and then told
                ready = None
        if ready is not None and stream.is_next(ready.pack.seq):
            return ready
        pack = stream.pack(limit)
        return None if pack is None else self._request(pack, limit)

    def begin(self, stream: Rows, seq: int, limit: int) -> None:
        """Makes what comes behind a row, up to which all is about to be posted."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, self._name)
        self._coming = (stream, limit, self._thread.submit(self._made, stream, seq, limit))

    def drop(self) -> None:
        """Lets go of what was made: the order of what follows has changed."""
        self._coming = None

    def close(self) -> None:
        """Ends the thread."""
        self._coming = None
        if self._thread is not None:
            self._thread.shutdown()

    def _made(self, stream: Rows, seq: int, limit: int) -> Request | None:
        behind = stream.pack_behind(seq, limit)
        return self._request(behind, limit) if behind else None

    def _request(self, pack: Pack, limit: int) -> Request:
        return Request(pack, self._make_body(pack.lines), pack.points >= limit)
