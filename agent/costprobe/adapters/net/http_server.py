"""The HTTP server of the daemon's pages, based on the standard library, with limits."""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

from costprobe.adapters.net.connection_slots import SlotLimits
from costprobe.adapters.net.http_listener import HttpListener
from costprobe.adapters.net.page_response import TEXT, PageResponse

logger = logging.getLogger(__name__)

JOIN_S: Final = 2.0
POLL_EVERY_S: Final = 0.2
OTHER: Final = "other"
_PORT: Final = re.compile(r":\d{1,5}$")


class HttpLimits(NamedTuple):
    """Bounds of the server.

    Attributes:
        connections: Most open connections; one more displaces one without a complete request, or
            is closed unanswered.
        per_address: Most connections of one address outside this host.
        reserve: Connections out of `connections` for requests of this host for a page of `reserved`.
        request_s: Timeout in s of a request, from the connection to its last byte.
        connection_s: Timeout in s of a response.
        page_s: Timeout in s of a wait for a page that is being rendered for another client.
        fresh_s: Maximum age in s of a cached page.
    """

    connections: int = 16
    per_address: int = 6
    reserve: int = 4
    request_s: float = 5.0
    connection_s: float = 15.0
    page_s: float = 5.0
    fresh_s: float = 1.0


class HttpServer:
    """Serve GET and HEAD of fixed pages, one request per connection.

    A page is never rendered concurrently, so that one that hangs blocks only one thread.

    Args:
        pages: Renderer of each page, by path; an exception is answered with 500 and logged.
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
        accepted: Mapping[tuple[str, str], Callable[[], PageResponse]] | None = None,
        allowed_hosts: Collection[str] = (),
        reserved: Collection[str] = (),
    ) -> None:
        self._reserved = frozenset(reserved)
        self._limits = limits or HttpLimits()
        self._allowed_hosts = frozenset(name.lower() for name in allowed_hosts)
        self._pages = {path: _Page(path, make, self._limits) for path, make in pages.items()}
        self._accepted = {
            (path, media_type): _Page(path, make, self._limits)
            for (path, media_type), make in (accepted or {}).items()
        }
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
        self._listener = HttpListener((host, port), partial(_Handler, self), self._slot_limits())
        self.port = int(self._listener.server_address[1])
        self._thread = Thread(
            target=self._listener.serve_forever, args=(POLL_EVERY_S,), name="http", daemon=True
        )
        self._thread.start()

    def _slot_limits(self) -> SlotLimits:
        limits = self._limits
        return SlotLimits(
            limits.connections,
            limits.per_address,
            limits.reserve,
            limits.request_s,
            limits.connection_s,
        )

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
        page = self._page(path, accept)
        if not (host_is_local(host) or _name_of(host) in self._allowed_hosts):
            page_response = PageResponse(
                421, TEXT, b"the Host header must be an IP address, or in http.allowed_hosts\n"
            )
        elif page is None:
            page_response = PageResponse(
                404, TEXT, f"pages: {', '.join(sorted(self._pages))}\n".encode()
            )
        elif is_reserved and path not in self._reserved:
            page_response = PageResponse(503, TEXT, b"too many open connections; retry later\n")
        else:
            page_response = page.answer()
        with self._lock:
            self._answers[path if page else OTHER, page_response.status] += 1
        return page_response

    def _page(self, path: str, accept: str) -> _Page | None:
        """Return the page for a path, in the first media type of the Accept header that it has."""
        for entry in accept.split(","):
            page = self._accepted.get((path, entry.partition(";")[0].strip().lower()))
            if page is not None:
                return page
        return self._pages.get(path)

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


class _Page:
    """A page, rendered by one thread at a time and cached for a short time."""

    def __init__(self, path: str, make: Callable[[], PageResponse], limits: HttpLimits) -> None:
        self._path = path
        self._make = make
        self._limits = limits
        self._lock = Lock()
        self._made: PageResponse | None = None
        self._made_s = 0.0

    def answer(self) -> PageResponse:
        if not self._lock.acquire(timeout=self._limits.page_s):
            return PageResponse(503, TEXT, b"the page is still being rendered\n")
        try:
            if self._made is None or time.monotonic() - self._made_s > self._limits.fresh_s:
                self._made, self._made_s = self._make(), time.monotonic()
        except Exception:
            logger.exception("page %s failed", self._path)
            return PageResponse(
                500, TEXT, b"the page could not be rendered; see the daemon's log\n"
            )
        else:
            return self._made
        finally:
            self._lock.release()


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
        client_address: Any,  # noqa: ANN401 - as above
        server: HttpListener,
    ) -> None:
        self._server = pages
        self._listener = server
        super().__init__(request, client_address, server)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        """Log nothing: requests are counted instead."""

    def _answer(self, *, has_body: bool) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) > 1:
            self.send_error(400, "a request needs exactly one Host header")
            return
        is_reserved = self._listener.begin_response(self.request)
        response = self._server.answer(
            self.path.partition("?")[0],
            hosts[0] if hosts else "",
            self.headers.get("Accept", ""),
            is_reserved=is_reserved,
        )
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Connection", "close")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Vary", "Accept")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if has_body:
            self.wfile.write(response.body)


def host_is_local(host: str) -> bool:
    """Return whether a Host header names this host in a way that no DNS record can change.

    Args:
        host: The header's value: a name or an IP address, with an optional port; empty if there
            was no header.
    """
    name = _name_of(host)
    if name in {"", "localhost"}:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _name_of(host: str) -> str:
    """Return a Host header without its port, and without the dot at the end of a full name."""
    return _PORT.sub("", host).lower().removesuffix(".")
