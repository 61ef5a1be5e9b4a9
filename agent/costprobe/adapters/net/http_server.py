"""The HTTP server of the daemon's pages, based on the standard library, with limits."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

from costprobe.adapters.net.cached_page import CachedPage
from costprobe.adapters.net.connection_slots import SlotLimits
from costprobe.adapters.net.host_header import host_is_local, name_of_host
from costprobe.adapters.net.http_listener import HttpListener
from costprobe.adapters.net.page_response import TEXT, PageResponse, PostRequest, json_error

logger = logging.getLogger(__name__)

JOIN_S: Final = 2.0
POLL_EVERY_S: Final = 0.2
OTHER: Final = "other"
MAX_BODY_BYTES: Final = 16 * 1024
# A longer body is read up to this length: closing with unread bytes would reset the connection before
# our response.
MAX_DISCARDED_BYTES: Final = 1 << 20
MAX_LENGTH_DIGITS: Final = 10


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
        if not (host_is_local(host) or name_of_host(host) in self._allowed_hosts):
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

    def do_POST(self) -> None:
        if not self._server.has_posts:
            self.send_error(501, "Unsupported method ('POST')")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._send(json_error(411, "a POST needs a Content-Length"))
            return
        size = int(length[:MAX_LENGTH_DIGITS])
        if size > MAX_BODY_BYTES or len(length) > MAX_LENGTH_DIGITS:
            self.rfile.read(min(size, MAX_DISCARDED_BYTES))
            self._send(json_error(413, f"a body has at most {MAX_BODY_BYTES} bytes"))
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
