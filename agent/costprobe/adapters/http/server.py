"""The HTTP server of the daemon's pages, based on the standard library, with limits.

A page is rendered at most once at a time. Connections are limited in total and per client
address, and each has deadlines. A connection without a complete request is closed in favour of a
new one, so that clients which open connections and send nothing, or a byte now and then, cannot
lock others out.

The Host header of a request must name this host, which prevents DNS rebinding.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Semaphore, Thread
from typing import Any, Final, NamedTuple

from costprobe.adapters.http.responses import (
    TEXT,
    CachedPage,
    PageResponse,
    PostRequest,
    json_error,
    text_error,
)

logger = logging.getLogger(__name__)


_IPV6_SITE_BITS: Final = 64
_PORT: Final = re.compile(r":\d{1,5}$")
JOIN_S: Final = 2.0
POLL_EVERY_S: Final = 0.2
OTHER: Final = "other"
MAX_BODY_BYTES: Final = 16 * 1024
# So much of a refused body is read: closing with unread bytes would reset the connection before our
# response arrives.
MAX_DISCARDED_BYTES: Final = 1 << 20
MAX_LENGTH_DIGITS: Final = 10
# Status, words and headers.
_Refusal = tuple[int, str, tuple[tuple[str, str], ...]]


class HttpLimits(NamedTuple):
    """Bounds of a server.

    Attributes:
        total: Most open connections.
        per_address: Most connections of one address outside this host; of IPv6, of one /64.
        reserve: Connections out of `total` for clients on this host, and for requests for a reserved
            page: others beyond the rest are answered with 503.
        request_s: Timeout in s of a request with its body, from the connection or the end of the
            previous response.
        response_s: Timeout in s of a response.
        page_s: Timeout in s of a wait for a page that is being rendered for another client.
        fresh_s: Maximum age in s of a cached page.
    """

    total: int = 16
    per_address: int = 6
    reserve: int = 4
    request_s: float = 5.0
    response_s: float = 15.0
    page_s: float = 5.0
    fresh_s: float = 1.0


LIMITS: Final = HttpLimits()


@dataclass(slots=True)
class _Slot:
    site: str
    ends_s: float
    is_waiting: bool = True


class ConnectionSlots:
    """The open connections of a server; for one thread at a time.

    Args:
        limits: Limits.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        # In the order of admission.
        self._slots: dict[Hashable, _Slot] = {}

    def admit(self, key: Hashable, address: str, now_s: float) -> tuple[bool, Hashable | None]:
        """Return whether a connection may stay open, and the one to close instead; None for none.

        Where there is no room it displaces the oldest one without a complete request, of the address
        with the most connections. One that may stay occupies a slot until `release`.

        Args:
            key: The connection.
            address: IP address of the client.
            now_s: Monotonic seconds.
        """
        limits, site = self._limits, site_of(address)
        numbers = Counter(slot.site for slot in self._slots.values())
        is_beyond = bool(site) and numbers[site] >= limits.per_address
        displaced = None
        if is_beyond or len(self._slots) >= limits.total - (limits.reserve if site else 0):
            waiting = {
                key: numbers[slot.site]
                for key, slot in self._slots.items()
                if slot.is_waiting and (slot.site == site or not is_beyond)
            }
            if not waiting:
                return False, None
            displaced = max(waiting, key=waiting.__getitem__)
            del self._slots[displaced]
        self._slots[key] = _Slot(site, now_s + limits.request_s)
        return True, displaced

    def has_request(self, key: Hashable, now_s: float) -> None:
        """Record that a connection's request is complete: it is not displaced any more."""
        slot = self._slots.get(key)
        if slot is not None and slot.is_waiting:
            slot.is_waiting, slot.ends_s = False, now_s + self._limits.response_s

    def awaits_request(self, key: Hashable, now_s: float) -> None:
        """Record that a response is complete, and the connection waits for the next request."""
        slot = self._slots.get(key)
        if slot is not None and not slot.is_waiting:
            slot.is_waiting, slot.ends_s = True, now_s + self._limits.request_s

    def release(self, key: Hashable) -> None:
        """Remove a closed connection; one that is not known is ignored."""
        self._slots.pop(key, None)

    def take_late(self, now_s: float) -> list[Hashable]:
        """Remove and return the connections past their deadline; the caller closes them."""
        late = [key for key, slot in self._slots.items() if now_s > slot.ends_s]
        for key in late:
            del self._slots[key]
        return late


def site_of(address: str) -> str:
    """Return what counts as one client: an IPv4 address, an IPv6 /64; empty for this host.

    Args:
        address: An IP address; other text is one client too.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address or "?"
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if parsed.is_loopback:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, _IPV6_SITE_BITS), strict=False))
    return str(parsed)


def host_is_local(host: str) -> bool:
    """Return whether a Host header names this host in a way that no DNS record can change.

    Args:
        host: The header's value: a name or an IP address, with an optional port; empty if there
            was no header.
    """
    name = _name_of_host(host)
    if name in {"", "localhost"}:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _name_of_host(host: str) -> str:
    """Return a Host header without its port, and without the dot at the end of a full name."""
    return _PORT.sub("", host).lower().removesuffix(".")


class HttpListener(ThreadingHTTPServer):
    """Serve each connection in a thread, within slots, and close those that take too long.

    Args:
        address: IP address and port to bind.
        handler: Handles the requests of a connection; calls `begin_response` for each.
        limits: Limits of the connections.

    Attributes:
        broken: Connections closed without a complete response: too slow, or above the limit.
    """

    daemon_threads = True
    block_on_close = False
    # With the default of 5 a burst of connections waits for the kernel's next attempt, a second.
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: Callable[..., BaseHTTPRequestHandler],
        limits: HttpLimits,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._slots = ConnectionSlots(limits)
        self._lock = Lock()
        self.broken = 0
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Handle a connection in a thread, if it gets a slot."""
        with self._lock:
            is_accepted, displaced = self._slots.admit(
                request, str(client_address[0]), time.monotonic()
            )
        self._end([] if displaced is None else [displaced])
        if is_accepted:
            super().process_request(request, client_address)
        else:
            self._end([request])
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Handle a connection, and release its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._slots.release(request)

    def begin_response(self, request: Any) -> None:  # noqa: ANN401 - a socket, as the base has it
        """Record that a request is complete."""
        with self._lock:
            self._slots.has_request(request, time.monotonic())

    def service_actions(self) -> None:
        """End connections past their deadline: a socket timeout would only cover each read."""
        with self._lock:
            late = self._slots.take_late(time.monotonic())
        self._end(late)

    def _end(self, requests: Iterable[Any]) -> None:
        """End connections without a complete response; their threads then end, too."""
        for request in requests:
            with self._lock:
                self.broken += 1
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as the base has it
        """Log errors, except those of a client that disconnected."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("an HTTP request failed", exc_info=error)


class HttpServer:
    """Serve GET and HEAD of fixed pages, and POST of others, one request per connection.

    A page is never rendered concurrently, so that one that hangs blocks only one thread.

    Args:
        pages: Renderer of each page, by path; an exception is answered with 500 and logged.
        posts: Handler of POST requests, by path, likewise; bodies have at most MAX_BODY_BYTES.
        limits: Bounds of the server.
        accepted: Renderer of a page, by path and media type, for clients whose Accept header names
            that media type.
        allowed_hosts: Names that the Host header may have, beside localhost and IP addresses. A
            request for any other name is rejected, which prevents DNS rebinding.
        reserved: Paths of pages that are answered also while all other connections are in use.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], PageResponse]],
        limits: HttpLimits = LIMITS,
        *,
        posts: Mapping[str, Callable[[PostRequest], PageResponse]] | None = None,
        accepted: Mapping[tuple[str, str], Callable[[], PageResponse]] | None = None,
        allowed_hosts: Collection[str] = (),
        reserved: Collection[str] = (),
    ) -> None:
        self._limits = limits
        self._allowed_hosts = frozenset(name.lower() for name in allowed_hosts)
        made = {**{(path, ""): make for path, make in pages.items()}, **(accepted or {})}
        self._pages = {
            (path, kind): CachedPage(path, make, limits.page_s, limits.fresh_s)
            for (path, kind), make in made.items()
        }
        self.posts = dict(posts or {})
        self._reserved = frozenset(reserved)
        self._unreserved = Semaphore(limits.total - limits.reserve)
        self._lock = Lock()
        self._answers: Counter[tuple[str, int]] = Counter()
        self._listener: HttpListener | None = None
        self._thread: Thread | None = None
        self.port = 0

    def start(self, host: str, port: int) -> None:
        """Start answering; may be called once.

        Args:
            host: An IP address.
            port: TCP port; 0 for any free port, see `port`.

        Raises:
            OSError: The address cannot be bound.
        """
        self._listener = HttpListener((host, port), partial(_Handler, self), self._limits)
        self.port = int(self._listener.server_address[1])
        self._thread = Thread(
            target=self._listener.serve_forever, args=(POLL_EVERY_S,), name="http", daemon=True
        )
        self._thread.start()

    def is_alive(self) -> bool:
        """Return whether it answers requests."""
        return self._thread is not None and self._thread.is_alive()

    @contextmanager
    def answer(
        self, path: str, host: str, accept: str, post: PostRequest | None
    ) -> Iterator[PageResponse]:
        """Give the response to a request, which is in work until it is sent.

        Args:
            path: Path of the request, without the query.
            host: The Host header; empty without one.
            accept: The Accept header; empty without one.
            post: The request, if it is a POST.
        """
        is_known = (path, "") in self._pages or path in self.posts
        is_reserved = path in self._reserved
        is_free = is_reserved or self._unreserved.acquire(blocking=False)
        try:
            refusal = self._refusal(path, host, is_post=post is not None)
            if refusal is None and not is_free:
                refusal = 503, "too many open connections; retry later", ()
            if refusal is not None:
                response = text_error(*refusal, is_json=post is not None)
            elif post is not None:
                response = self._posted(path, post)
            else:
                response = self._page(path, accept).answer()
            with self._lock:
                self._answers[path if is_known else OTHER, response.status] += 1
            yield response
        finally:
            if is_free and not is_reserved:
                self._unreserved.release()

    def _refusal(self, path: str, host: str, *, is_post: bool) -> _Refusal | None:
        """Return why a request is not handled; None if it is."""
        if not (host_is_local(host) or _name_of_host(host) in self._allowed_hosts):
            return 421, "the Host header must be an IP address, or in http.allowed_hosts", ()
        is_page, is_posted = (path, "") in self._pages, path in self.posts
        if is_posted if is_post else is_page:
            return None
        if is_page or is_posted:
            others = "GET, HEAD" if is_post else "POST"
            return 405, f"only {others}", (("Allow", others),)
        paths = sorted({*self.posts, *(path for path, _ in self._pages)})
        return 404, f"pages: {', '.join(paths)}", ()

    def _posted(self, path: str, post: PostRequest) -> PageResponse:
        try:
            return self.posts[path](post)
        except Exception:
            logger.exception("POST of %s failed", path)
            return json_error(500, "the request failed; see the daemon's log")

    def _page(self, path: str, accept: str) -> CachedPage:
        """Return the page for a path, in the first media type of the Accept header that it has."""
        kinds = (entry.partition(";")[0].strip().lower() for entry in accept.split(","))
        return next(
            (self._pages[path, kind] for kind in kinds if (path, kind) in self._pages),
            self._pages[path, ""],
        )

    def answers(self) -> dict[tuple[str, int], int]:
        """Return the number of responses by page ("other" for unknown paths) and status."""
        with self._lock:
            return dict(self._answers)

    @property
    def broken(self) -> int:
        """Connections closed without a complete response: too slow, or above the limit."""
        return self._listener.broken if self._listener is not None else 0

    def close(self) -> None:
        """Stop answering and release the address; may be called twice, and without a start."""
        if self._listener is not None and self.is_alive():
            self._listener.shutdown()
            self._listener.server_close()
        if self._thread is not None:
            self._thread.join(JOIN_S)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: HttpListener
    server_version = "costprobe"
    sys_version = ""
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"

    def __init__(self, pages: HttpServer, *connection: Any) -> None:  # noqa: ANN401 - as the base has them
        self._pages = pages
        super().__init__(*connection)

    def do_GET(self) -> None:
        self._answer(None)

    do_HEAD = do_GET  # noqa: N815 - the base's own name

    def do_POST(self) -> None:
        if not self._pages.posts:
            self.send_error(501, "Unsupported method ('POST')")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse(json_error(411, "a POST needs a Content-Length"))
            return
        if len(length) > MAX_LENGTH_DIGITS or (size := int(length)) > MAX_BODY_BYTES:
            self._refuse(json_error(413, f"a body has at most {MAX_BODY_BYTES} bytes"))
            return
        body = self.rfile.read(size)
        if len(body) == size:
            authorization = self.headers.get("Authorization", "")
            self._answer(PostRequest(authorization, body, str(self.client_address[0])))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        """Log nothing: requests are counted instead."""

    def _answer(self, post: PostRequest | None) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) > 1:
            self.send_error(400, "a request needs exactly one Host header")
            return
        self.server.begin_response(self.request)
        path, accept = self.path.partition("?")[0], self.headers.get("Accept", "")
        with self._pages.answer(path, "".join(hosts), accept, post) as response:
            self._send(response)

    def _refuse(self, response: PageResponse) -> None:
        """Respond to a request without its body, and discard what the client sends meanwhile."""
        self._send(response)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.rfile.read(MAX_DISCARDED_BYTES)

    def _send(self, response: PageResponse) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        for name, value in response.headers:
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Vary", "Accept")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
