"""The next request is made, and where a sink takes two at once sent, before its turn."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from agent.sinks.streams import Pack, Rows

# What arrived before its turn waits for it; if what comes before it is not to be had, not for ever.
WAITS_MAX: Final = 100


class Request(NamedTuple):
    """What is posted.

    Attributes:
        pack: The rows.
        body: What the sink made of them.
        is_full: Whether there may be more behind them.
        is_posted: Whether it was sent already.
        error: Why that failed, where it did.
    """

    pack: Pack
    body: bytes
    is_full: bool
    is_posted: bool = False
    error: Exception | None = None

    @property
    def has_arrived(self) -> bool:
        """Whether the server has acknowledged it."""
        return self.is_posted and self.error is None


class _Coming(NamedTuple):
    """A request that another thread makes, and perhaps sends."""

    stream: Rows
    limit: int
    made: Future[Request | None]


class Ahead:
    """Makes requests, one of them beforehand in a thread of its own, which may send it too.

    The store's text and a compressed body are made without the interpreter's lock: what waits for
    a server costs nothing but the memory of one more request. What was sent and acknowledged before
    its turn is kept until its turn comes, so that it is not sent again where the one before failed.

    Args:
        make_body: From lines to what is posted.
        post: Sends a body.
        name: Of the thread.
    """

    def __init__(
        self, make_body: Callable[[bytes], bytes], post: Callable[[bytes], None], name: str
    ) -> None:
        self._make_body = make_body
        self._post = post
        self._name = name
        self._thread: ThreadPoolExecutor | None = None
        self._coming: _Coming | None = None
        self._arrived: tuple[Rows, Request] | None = None
        self._waits = 0

    def take(self, stream: Rows, limit: int) -> Request | None:
        """The next request of a stream, at most `limit` points; None if nothing is left."""
        ready = self._ready(stream, limit)
        if ready is not None and stream.is_next(ready.pack.seq):
            self._arrived = None
            return ready
        pack = stream.pack(limit)
        return None if pack is None else self._request(pack, limit)

    def begin(self, stream: Rows, seq: int, limit: int, *, posts: bool = False) -> None:
        """Makes what comes behind a row, up to which all is about to be posted.

        Args:
            stream: Whose rows.
            seq: Place of that row.
            limit: At most so many points.
            posts: Whether it is sent as well.
        """
        if self._coming is not None or self._arrived is not None:
            return  # that one is made already, and the stream remembers where one begins
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, self._name)
        made = self._thread.submit(self._made, stream, seq, limit, posts=posts)
        self._coming = _Coming(stream, limit, made)

    def drop(self, stream: Rows) -> None:
        """Lets go of what was made of a stream, but for what has arrived: what is before it failed."""
        if self._coming is not None and self._coming.stream is stream:
            self._gather()

    def arrived(self) -> tuple[Rows, Request] | None:
        """What has arrived before its turn, and whose rows those are."""
        self._gather()
        return self._arrived

    def close(self) -> None:
        """Ends the thread."""
        self._coming = self._arrived = None
        if self._thread is not None:
            self._thread.shutdown()

    def _ready(self, stream: Rows, limit: int) -> Request | None:
        """What may be the next request of a stream."""
        coming = self._coming
        if coming is not None and coming.stream is not stream:
            return None  # rows of now wait for none of an outage
        request = self._gather()
        if self._arrived is None:
            return request if coming is not None and coming.limit <= limit else None
        if self._arrived[0] is not stream:
            return None
        self._waits += 1
        request = self._arrived[1]
        if self._waits > WAITS_MAX:
            self._arrived = None
        return request

    def _gather(self) -> Request | None:
        """What the thread made; it is remembered only where it has arrived."""
        coming, self._coming = self._coming, None
        if coming is None:
            return None
        try:
            request = coming.made.result()
        except Exception:  # noqa: BLE001 - whatever it was, it is tried anew and then told
            return None
        if request is not None and request.has_arrived:
            self._arrived, self._waits = (coming.stream, request._replace(body=b"")), 0
        return request

    def _made(self, stream: Rows, seq: int, limit: int, *, posts: bool) -> Request | None:
        behind = stream.pack_behind(seq, limit)
        if behind is None:
            return None
        request = self._request(behind, limit)
        if not posts:
            return request
        try:
            self._post(request.body)
        except Exception as error:  # noqa: BLE001 - it is met where its turn comes
            return request._replace(is_posted=True, error=error)
        return request._replace(is_posted=True)

    def _request(self, pack: Pack, limit: int) -> Request:
        return Request(pack, self._make_body(pack.lines), pack.points >= limit)
