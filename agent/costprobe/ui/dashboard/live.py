"""Live updates by server-sent events: the newest state, to a bounded number of listeners.

One task polls the store for all listeners, and only while there are any. A slow listener receives
the newest state when it reads again, not a queue of old ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from costprobe.adapters.http.server import site_of
from costprobe.adapters.store.database import StoreError

LIVE_PATH = "/api/live"
LISTENERS_MAX = 32
# Of one address outside this host.
LISTENERS_PER_ADDRESS = LISTENERS_MAX // 4
POLL_EVERY_S = 1.0
HEARTBEAT_S = 15.0
# A listener that reads nothing for this long has disconnected.
SEND_TIMEOUT_S = 20.0
# Longest duration of a stream; browsers reconnect, which frees streams of lost clients.
LIFETIME_S = 3600.0
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
# Inode, size and time of change of each file of the store.
_Version = tuple[tuple[int, int, int], ...]


class Listener:
    """The pending message of one open page: at most one, the newest.

    Args:
        site: The page's address, as `site_of` returns it.
    """

    def __init__(self, site: str = "") -> None:
        self.site = site
        self.message: bytes | None = None
        self.news = asyncio.Event()

    def put(self, message: bytes) -> None:
        """Replace the pending message."""
        self.message = message
        self.news.set()

    async def take(self, timeout_s: float) -> bytes:
        """Return the newest message, or a comment that keeps the connection open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.news.wait()
        self.news.clear()
        message, self.message = self.message, None
        return b": keep-alive\n\n" if message is None else message


class Live:
    """Notify every listener when the store changes.

    Args:
        store: File of the store.
        document: Builds the message; may raise StoreError.
        poll_every_s: Seconds between two polls of the file.
        listeners_max: Most listeners at a time.
    """

    def __init__(
        self,
        store: Path,
        document: Callable[[], dict[str, Any]],
        poll_every_s: float = POLL_EVERY_S,
        listeners_max: int = LISTENERS_MAX,
    ) -> None:
        self._store = store
        self._document = document
        self._poll_every_s = poll_every_s
        self._listeners_max = listeners_max
        self._listeners: set[Listener] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._is_closed = False

    def close(self) -> None:
        """End every stream, and accept no more."""
        self._is_closed = True
        for listener in self._listeners:
            listener.news.set()
        if self._watcher is not None:
            self._watcher.cancel()

    async def endpoint(self, request: Request) -> LiveStream | PlainTextResponse:
        """Respond to `/api/live`."""
        site = site_of(request.client.host if request.client else "")
        of_site = sum(listener.site == site for listener in self._listeners)
        is_full = len(self._listeners) >= self._listeners_max
        if self._is_closed or is_full or (site and of_site >= LISTENERS_PER_ADDRESS):
            text = "too many open pages; this one reconnects automatically\n"
            return PlainTextResponse(text, 503, {"retry-after": "15"})
        return LiveStream(self, site)

    @asynccontextmanager
    async def listening(self, site: str) -> AsyncIterator[Listener]:
        """Add a listener of a site, with the current state as its first message."""
        listener = Listener(site)
        self._listeners.add(listener)
        # Before the first message is read: a later commit is a change.
        version = self._version()
        try:
            listener.put(await asyncio.to_thread(self._message))
            if self._watcher is None and not self._is_closed:
                self._watcher = asyncio.create_task(self._watch(version))
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._watcher is not None:
                self._watcher.cancel()
                self._watcher = None

    async def messages(self, listener: Listener) -> AsyncIterator[bytes]:
        """Yield the messages of a listener until its time limit or the end of the server."""
        ends_s = asyncio.get_running_loop().time() + LIFETIME_S
        while not self._is_closed and asyncio.get_running_loop().time() < ends_s:
            yield await listener.take(HEARTBEAT_S)

    async def _watch(self, previous: _Version) -> None:
        while True:
            await asyncio.sleep(self._poll_every_s)
            version = self._version()
            if version == previous:
                continue
            previous = version
            message = await asyncio.to_thread(self._message)
            for listener in self._listeners:
                listener.put(message)

    def _version(self) -> _Version:
        """Return a value that changes with each commit: in WAL mode the size of the log."""
        return tuple(_stamp(Path(f"{self._store}{suffix}")) for suffix in ("", "-wal"))

    def _message(self) -> bytes:
        try:
            return event("now", self._document())
        except StoreError as error:
            return event("trouble", {"error": str(error)})


class LiveStream:
    """The stream of one listener, as an ASGI response.

    Args:
        live: Source of the messages.
        site: The listener's address, as `site_of` returns it.
    """

    def __init__(self, live: Live, site: str) -> None:
        self._live = live
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the listener disconnects or reads nothing for too long."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        leaving = asyncio.create_task(_left(receive))
        sending = asyncio.create_task(self._send_all(send))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leaving, sending):
                task.cancel()
            results = await asyncio.gather(leaving, sending, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, TimeoutError | OSError):
                raise error

    async def _send_all(self, send: Send) -> None:
        async with self._live.listening(self._site) as listener:
            await send(_chunk(b"retry: 3000\n\n"))
            async for message in self._live.messages(listener):
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send(_chunk(message))
        await send({"type": "http.response.body", "body": b""})


def event(name: str, document: dict[str, Any]) -> bytes:
    """Format a named server-sent event; JSON has no line ends, so it is one line of data."""
    return f"event: {name}\ndata: {json.dumps(document, allow_nan=False)}\n\n".encode()


def _chunk(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns)
