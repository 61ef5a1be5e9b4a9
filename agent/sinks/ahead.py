"""The next requests are made, and where a sink takes two at once sent, before their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, Event
from typing import Final, NamedTuple

from agent.sinks.streams import Pack, Rows

# While two are on their way a third is made.
SENT_AHEAD: Final = 3
MADE_AHEAD: Final = 1
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
    """A request that other threads make, and perhaps send."""

    stream: Rows
    limit: int
    made: Future[Request | None]
    posted: Future[Request | None]


class Ahead:
    """Makes requests, some of them beforehand in threads of its own, which may send them too.

    The store's text and a compressed body are made without the interpreter's lock: what waits for
    a server costs nothing but the memory of a few requests. What was sent and acknowledged before
    its turn is kept until its turn comes, so that it is not sent again where one before it failed.

    Args:
        make_body: From lines to what is posted.
        post: Sends a body.
        name: Of the threads.
        at_once: Most requests that are on their way together.
    """

    def __init__(
        self,
        make_body: Callable[[bytes], bytes],
        post: Callable[[bytes], None],
        name: str,
        at_once: int = 1,
    ) -> None:
        self._make_body = make_body
        self._post = post
        self._name = name
        self._at_once = at_once
        self._maker: ThreadPoolExecutor | None = None
        self._posters: ThreadPoolExecutor | None = None
        self._on_their_way = BoundedSemaphore(at_once)
        self._line: deque[_Coming] = deque()
        # Set by a failure, for those behind it in the line.
        self._halted = Event()
        self._arrived: list[tuple[Rows, Request]] = []
        self._waits = 0

    def take(self, stream: Rows, limit: int) -> Request | None:
        """The next request of a stream, at most `limit` points; None if nothing is left."""
        request = self._first(stream, limit) or self._due(stream)
        if request is not None:
            return request
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
        if self._arrived or (self._line and self._line[0].stream is not stream):
            return  # first comes what is there already
        while len(self._line) < (SENT_AHEAD if posts else MADE_AHEAD):
            before = self._line[-1].made if self._line else None
            self._maker = self._maker or ThreadPoolExecutor(1, f"{self._name} making")
            made = self._maker.submit(self._made, stream, before, seq, limit)
            posted = made
            if posts:
                self._posters = self._posters or ThreadPoolExecutor(self._at_once, self._name)
                posted = self._posters.submit(self._posted, made)
            self._line.append(_Coming(stream, limit, made, posted))

    def post(self, body: bytes) -> None:
        """Sends a body once few enough others are on their way; raises what came of it."""
        with self._on_their_way:
            self._post(body)

    def drop(self, stream: Rows) -> None:
        """Lets go of what was made of a stream, but for what has arrived: what is before it failed."""
        if not self._line or self._line[0].stream is stream:
            self._gather()

    def arrived(self) -> list[tuple[Rows, Request]]:
        """What has arrived before its turn, in its order, and whose rows those are."""
        self._gather()
        return self._arrived

    def close(self) -> None:
        """Ends the threads."""
        self._halted.set()
        self._line.clear()
        self._arrived = []
        for threads in (self._maker, self._posters):
            if threads is not None:
                threads.shutdown()

    def _first(self, stream: Rows, limit: int) -> Request | None:
        """The first of the line, if it is what is next of a stream; if not, the line is let go of."""
        if not self._line or self._line[0].stream is not stream:
            return None  # rows of now wait for none of an outage
        coming = self._line[0]
        request = _outcome(coming)
        is_too_large = coming.limit > limit and not (request and request.is_posted)
        if request is None or is_too_large or not stream.is_next(request.pack.seq):
            self._gather()
            return None
        self._line.popleft()
        return request

    def _due(self, stream: Rows) -> Request | None:
        """What has arrived and whose turn has come."""
        for index, (whose, request) in enumerate(self._arrived):
            if whose is stream:
                if stream.is_next(request.pack.seq):
                    del self._arrived[index]
                    return request
                self._waits += 1
        if self._waits > WAITS_MAX:
            self._arrived = []
        return None

    def _gather(self) -> None:
        """Ends the line; of it is remembered what has arrived."""
        self._halted.set()
        while self._line:
            coming = self._line.popleft()
            request = _outcome(coming)
            if request is not None and request.has_arrived:
                self._arrived.append((coming.stream, request._replace(body=b"")))
                self._waits = 0
        self._halted.clear()

    def _made(
        self, stream: Rows, before: Future[Request | None] | None, seq: int, limit: int
    ) -> Request | None:
        if before is not None:
            request = before.result()  # one thread makes all: it is there
            if request is None or not request.is_full:
                return None
            seq = request.pack.seq
        if self._halted.is_set():
            return None
        behind = stream.pack_behind(seq, limit)
        return None if behind is None else self._request(behind, limit)

    def _posted(self, made: Future[Request | None]) -> Request | None:
        request = made.result()
        if request is None or self._halted.is_set():
            return request
        try:
            self.post(request.body)
        except Exception as error:  # noqa: BLE001 - it is met where its turn comes
            self._halted.set()
            return request._replace(is_posted=True, error=error)
        return request._replace(is_posted=True)

    def _request(self, pack: Pack, limit: int) -> Request:
        return Request(pack, self._make_body(pack.lines), pack.points >= limit)


def _outcome(coming: _Coming) -> Request | None:
    """What became of a request; None where it could not be made."""
    try:
        return coming.posted.result()
    except Exception:  # noqa: BLE001 - whatever it was, it is tried anew and then told
        return None
