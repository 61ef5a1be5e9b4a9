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
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

from costprobe.adapters.http.responses import (
    TEXT,
    CachedPage,
    PageResponse,
    PostRequest,
    json_error,
)

logger = logging.getLogger(__name__)


# The request of a client that means to send one has arrived after this time.
SETTLED_S: Final = 0.2
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


class SlotLimits(NamedTuple):
    """Limits of the open connections of a server.

    Attributes:
        total: Most open connections.
        per_address: Most connections of one address outside this host; of IPv6, of one /64.
        reserve: Connections out of `total` for clients on this host.
        request_s: Timeout in s of a request with its body, from the connection or the end of the
            previous response.
        response_s: Timeout in s of a response.
    """

    total: int
    per_address: int
    reserve: int
    request_s: float
    response_s: float


class Admission(NamedTuple):
    """The decision on a new connection.

    Attributes:
        is_accepted: Whether it may stay open.
        is_reserved: Whether it uses the reserve.
        displaced: Connection to close instead; None for none.
    """

    is_accepted: bool
    is_reserved: bool = False
    displaced: Hashable | None = None


@dataclass(slots=True)
class _Slot:
    site: str
    began_s: float
    ends_s: float
    is_reserved: bool
    is_waiting: bool = True


class ConnectionSlots:
    """The open connections of a server; for one thread at a time.

    Args:
        limits: Limits.
    """

    def __init__(self, limits: SlotLimits) -> None:
        self._limits = limits
        # In the order of admission.
        self._slots: dict[Hashable, _Slot] = {}

    def admit(self, key: Hashable, address: str, now_s: float) -> Admission:
        """Decide on a new connection; one that is accepted occupies a slot until `release`.

        Args:
            key: The connection.
            address: IP address of the client.
            now_s: Monotonic seconds.
        """
        limits, site = self._limits, site_of(address)
        waiting = {key: slot for key, slot in self._slots.items() if slot.is_waiting}
        displaced, is_reserved = None, False
        if site and self._of(site) >= limits.per_address:
            displaced = _oldest(waiting, {site})
            is_accepted = displaced is not None
        elif len(self._slots) < limits.total - limits.reserve:
            is_accepted = True
        else:
            displaced = self._displaced(waiting, now_s, may_use_reserve=not site)
            is_reserved = displaced is None and not site and len(self._slots) < limits.total
            is_accepted = is_reserved or displaced is not None
        if displaced is not None:
            is_reserved = self._slots.pop(displaced).is_reserved
        if is_accepted:
            self._slots[key] = _Slot(site, now_s, now_s + limits.request_s, is_reserved)
        return Admission(is_accepted, is_reserved, displaced)

    def has_request(self, key: Hashable, now_s: float, response_s: float | None = None) -> None:
        """Record that a connection's request is complete: it is not displaced any more.

        Args:
            key: The connection.
            now_s: Monotonic seconds.
            response_s: Timeout of its response in s; the server's by default.
        """
        slot = self._slots.get(key)
        if slot is not None and slot.is_waiting:
            slot.is_waiting = False
            slot.ends_s = now_s + (self._limits.response_s if response_s is None else response_s)

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

    def _of(self, site: str) -> int:
        return sum(slot.site == site for slot in self._slots.values())

    def _displaced(
        self, waiting: Mapping[Hashable, _Slot], now_s: float, *, may_use_reserve: bool
    ) -> Hashable | None:
        """Return the connection that a new one displaces; None to use the reserve, or to refuse."""
        shared = {key: slot for key, slot in waiting.items() if not slot.is_reserved}
        settled = {key: slot for key, slot in shared.items() if slot.began_s < now_s - SETTLED_S}
        if settled:
            return _oldest(settled, _busiest_sites(settled))
        if may_use_reserve and len(self._slots) < self._limits.total:
            return None
        chosen = shared or (waiting if may_use_reserve else {})
        return _oldest(chosen, _busiest_sites(chosen))


def _busiest_sites(slots: Mapping[Hashable, _Slot]) -> set[str]:
    counts = Counter(slot.site for slot in slots.values())
    most = max(counts.values(), default=0)
    return {site for site, count in counts.items() if count == most}


def _oldest(slots: Mapping[Hashable, _Slot], sites: set[str]) -> Hashable | None:
    return next((key for key, slot in slots.items() if slot.site in sites), None)


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
        limits: SlotLimits,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._slots = ConnectionSlots(limits)
        self._reserved: set[Any] = set()
        self._lock = Lock()
        self.broken = 0
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Handle a connection in a thread, if it gets a slot."""
        with self._lock:
            admission = self._slots.admit(request, str(client_address[0]), time.monotonic())
            if admission.is_reserved:
                self._reserved.add(request)
        if admission.displaced is not None:
            self._close_late([admission.displaced])
        if not admission.is_accepted:
            self._count_broken()
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Handle a connection, and release its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._slots.release(request)
                self._reserved.discard(request)

    def begin_response(self, request: Any) -> bool:  # noqa: ANN401 - a socket, as the base has it
        """Record that a request is complete; return whether its connection uses the reserve."""
        with self._lock:
            self._slots.has_request(request, time.monotonic())
            return request in self._reserved

    def service_actions(self) -> None:
        """Close connections past their deadline: a socket timeout would only cover each read."""
        with self._lock:
            late = self._slots.take_late(time.monotonic())
        self._close_late(late)

    def _close_late(self, late: Iterable[Any]) -> None:
        """End connections; their threads then end, too."""
        for request in late:
            self._count_broken()
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as the base has it
        """Log errors, except those of a client that disconnected."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("an HTTP request failed", exc_info=error)

    def _count_broken(self) -> None:
        with self._lock:
            self.broken += 1


class HttpLimits(NamedTuple):
    """Bounds of the server.

    Attributes:
        slots: Limits of the connections. One beyond the total displaces one without a complete
            request, or is closed unanswered; the reserve is for requests for a page of `reserved`.
        page_s: Timeout in s of a wait for a page that is being rendered for another client.
        fresh_s: Maximum age in s of a cached page.
    """

    slots: SlotLimits = SlotLimits(
        total=16, per_address=6, reserve=4, request_s=5.0, response_s=15.0
    )
    page_s: float = 5.0
    fresh_s: float = 1.0


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
        reserved: Paths of pages that are answered to clients on this host also while all other
            connections are in use.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], PageResponse]],
        limits: HttpLimits | None = None,
        *,
        posts: Mapping[str, Callable[[PostRequest], PageResponse]] | None = None,
        accepted: Mapping[tuple[str, str], Callable[[], PageResponse]] | None = None,
        allowed_hosts: Collection[str] = (),
        reserved: Collection[str] = (),
    ) -> None:
        self._reserved = frozenset(reserved)
        self._limits = limits or HttpLimits()
        self._allowed_hosts = frozenset(name.lower() for name in allowed_hosts)
        self._pages = {path: self._cached(path, make) for path, make in pages.items()}
        self._accepted = {
            (path, media_type): self._cached(path, make)
            for (path, media_type), make in (accepted or {}).items()
        }
        self._posts = dict(posts or {})
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
        self._listener = HttpListener((host, port), partial(_Handler, self), self._limits.slots)
        self.port = int(self._listener.server_address[1])
        self._thread = Thread(
            target=self._listener.serve_forever, args=(POLL_EVERY_S,), name="http", daemon=True
        )
        self._thread.start()

    def is_alive(self) -> bool:
        """Return whether it answers requests."""
        return self._thread is not None and self._thread.is_alive()

    def answer(
        self, path: str, host: str, accept: str = "", *, is_reserved: bool = False
    ) -> PageResponse:
        """Return the response to a request.

        Args:
            path: Path of the request, without the query.
            host: The Host header; empty without one.
            accept: The Accept header; empty without one.
            is_reserved: Whether its connection uses the reserve.
        """
        response = self._refusal(path, host, self._pages, "POST", is_reserved=is_reserved)
        if response is None:
            response = self._page(path, accept).answer()
        return self._counted(path, response)

    def answer_post(
        self, path: str, host: str, request: PostRequest, *, is_reserved: bool = False
    ) -> PageResponse:
        """Return the response to a POST request; arguments as of `answer`."""
        response = self._refusal(path, host, self._posts, "GET, HEAD", is_reserved=is_reserved)
        if response is None:
            try:
                response = self._posts[path](request)
            except Exception:
                logger.exception("POST of %s failed", path)
                response = json_error(500, "the request failed; see the daemon's log")
        elif response.content_type == TEXT:
            words = response.body.decode().rstrip()
            response = json_error(response.status, words, *response.headers)
        return self._counted(path, response)

    @property
    def has_posts(self) -> bool:
        """Whether there are paths for POST requests."""
        return bool(self._posts)

    def _refusal(
        self,
        path: str,
        host: str,
        known: Collection[str],
        others: str,
        *,
        is_reserved: bool,
    ) -> PageResponse | None:
        """Return why a request is not handled; None if it is."""
        if not (host_is_local(host) or _name_of_host(host) in self._allowed_hosts):
            words = b"the Host header must be an IP address, or in http.allowed_hosts\n"
            return PageResponse(421, TEXT, words)
        if path not in known:
            if path not in self._pages and path not in self._posts:
                return _not_found([*self._pages, *self._posts])
            return PageResponse(405, TEXT, f"only {others}\n".encode(), (("Allow", others),))
        if is_reserved and path not in self._reserved:
            return PageResponse(503, TEXT, b"too many open connections; retry later\n")
        return None

    def _counted(self, path: str, response: PageResponse) -> PageResponse:
        is_known = path in self._pages or path in self._posts
        with self._lock:
            self._answers[path if is_known else OTHER, response.status] += 1
        return response

    def _cached(self, path: str, make: Callable[[], PageResponse]) -> CachedPage:
        return CachedPage(path, make, self._limits.page_s, self._limits.fresh_s)

    def _page(self, path: str, accept: str) -> CachedPage:
        """Return the page for a path, in the first media type of the Accept header that it has."""
        for entry in accept.split(","):
            page = self._accepted.get((path, entry.partition(";")[0].strip().lower()))
            if page is not None:
                return page
        return self._pages[path]

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

    server_version = "costprobe"
    sys_version = ""
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"

    def __init__(
        self,
        pages: HttpServer,
        request: Any,  # noqa: ANN401 - a socket, as the base has it
        client_address: Any,  # noqa: ANN401 - as the base has it
        server: HttpListener,
    ) -> None:
        self._server = pages
        self._listener = server
        super().__init__(request, client_address, server)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_POST(self) -> None:
        if not self._server.has_posts:
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
            self._answer(has_body=True, body=body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        """Log nothing: requests are counted instead."""

    def _answer(self, *, has_body: bool, body: bytes | None = None) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) > 1:
            self.send_error(400, "a request needs exactly one Host header")
            return
        is_reserved = self._listener.begin_response(self.request)
        path, host = self.path.partition("?")[0], hosts[0] if hosts else ""
        if body is None:
            accept = self.headers.get("Accept", "")
            response = self._server.answer(path, host, accept, is_reserved=is_reserved)
        else:
            authorization = self.headers.get("Authorization", "")
            request = PostRequest(authorization, body, str(self.client_address[0]))
            response = self._server.answer_post(path, host, request, is_reserved=is_reserved)
        self._send(response, has_body=has_body)

    def _refuse(self, response: PageResponse) -> None:
        """Respond to a request without its body, and discard what the client sends meanwhile."""
        self._send(response)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.rfile.read(MAX_DISCARDED_BYTES)

    def _send(self, response: PageResponse, *, has_body: bool = True) -> None:
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
        if has_body:
            self.wfile.write(response.body)


def _not_found(paths: Collection[str]) -> PageResponse:
    return PageResponse(404, TEXT, f"pages: {', '.join(sorted(paths))}\n".encode())
