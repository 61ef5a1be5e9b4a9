"""Connections of urllib3 with limits on the time and the size of an exchange, and its errors as ours.

urllib3's own timeouts apply to each read, so a server that sends a byte a second holds a request
for hours, and a response may have any size. Here every socket call is limited to the remaining time
of the exchange, and every received byte is counted. Errors of urllib3, http.client, ssl and the system
become DeliveryErrors.

The first request loads this file: a daemon that sends none does without urllib3.
"""

from __future__ import annotations

import http.client
import io
import os
import re
import selectors
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from costprobe.adapters.http.access import Destination
from costprobe.adapters.http.errors import DeliveryError, Misconfigured, RetryLater
from costprobe.adapters.http.limits import ExchangeLimits
from costprobe.core.outside import check_regular

# "Connection Attempt Delay" of RFC 8305, section 5.
NEXT_ADDRESS_S: Final = 0.25
# Rank of an address that answered last; the others are ranked by the time at which they did not.
ANSWERED: Final = -1.0
RANKS_MAX: Final = 256
# Family, type, protocol and address of a socket.
_Target = tuple[int, int, int, Any]
_OURS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError)
_WRAPPERS = (urllib3.exceptions.ProtocolError, urllib3.exceptions.ProxyError)
_TIMEOUTS = (TimeoutError, urllib3.exceptions.TimeoutError)
# The server closed the connection: it may be restarting.
_TLS_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

# UNABLE_TO_GET_ISSUER_CERT, and those of certificates that nobody trusted vouches for (x509_vfy.h).
_UNTRUSTED_CODES = {2, 18, 19, 20, 21}
# Of OpenSSL's X509_V_FLAG_X509_STRICT, which Python sets from 3.13 on: PATHLEN_INVALID_FOR_NON_CA to
# EC_KEY_EXPLICIT_PARAMS.
_STRICT_CODES = range(80, 95)
_TUNNEL = re.compile(r"Tunnel connection failed: (\d{3}).*", re.DOTALL)
_TUNNEL_DENIED = {"401", "403", "405", "407"}


class _ResponseTooLargeError(Exception):
    """A response's header, or the framing of its body, is larger than the limit."""


class _Exchange:
    """The remaining time and size of one exchange."""

    def __init__(self, limits: ExchangeLimits) -> None:
        now_s = time.monotonic()
        self._limits = limits
        self._total_ends_s = None if limits.total_s is None else now_s + limits.total_s
        self._step_ends_s = now_s + limits.step_s
        self._bytes_left = limits.max_header_bytes

    def begin_step(self) -> None:
        self._step_ends_s = time.monotonic() + self._limits.step_s

    def begin_body(self) -> None:
        self._bytes_left += self._limits.max_body_bytes + self._limits.max_header_bytes

    def left_s(self) -> float:
        ends_s = self._step_ends_s
        if self._total_ends_s is not None:
            ends_s = min(ends_s, self._total_ends_s)
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def received(self, count: int) -> None:
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise _ResponseTooLargeError


class _DeadlineSocket(socket.socket):
    """A socket whose calls are limited to the remaining time of the exchange."""

    exchange: _Exchange | None = None

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ANN401 - a buffer, as the base class has it
        if self.exchange is None:
            return super().recv_into(buffer, nbytes, flags)
        self.settimeout(self.exchange.left_s())
        count = super().recv_into(buffer, nbytes, flags)
        self.exchange.received(count)
        return count

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        # TLS within a proxy's TLS reads so.
        if self.exchange is None:
            return super().recv(bufsize, flags)
        self.settimeout(self.exchange.left_s())
        data = super().recv(bufsize, flags)
        self.exchange.received(len(data))
        return data

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: ANN401 - a buffer, as the base class has it
        # TLS sends with one call for each record.
        if self.exchange is not None:
            self.settimeout(self.exchange.left_s())
        return super().send(data, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:  # noqa: ANN401 - a buffer, as the base class has it
        if self.exchange is not None:
            self.settimeout(self.exchange.left_s())
        super().sendall(data, flags)


class _DeadlineTlsSocket(_DeadlineSocket, ssl.SSLSocket):  # type: ignore[misc] # the bases name the buffer differently
    """The same, over TLS."""


def _close_now(channel: socket.socket | None) -> None:
    """Close a socket also if a file of it is open; one within a proxy's TLS is left to the collector."""
    if isinstance(channel, socket.socket):
        with suppress(OSError):
            handle = channel.detach()
            if handle >= 0:
                os.close(handle)


def tls_context(ca_file: Path | str | None) -> ssl.SSLContext:
    """A TLS context for limited connections.

    Args:
        ca_file: Certificates to trust; None for the system's.

    Raises:
        OSError: The file cannot be read, or contains no certificate (ssl.SSLError).
    """
    if ca_file is not None:
        check_regular(ca_file)
    context = ssl.create_default_context(cafile=ca_file)
    context.sslsocket_class = _DeadlineTlsSocket
    return context


class _LimitedConnection(HTTPConnection):
    """A connection whose exchanges have limits; subclasses set `limits`."""

    limits: ExchangeLimits
    ranks: dict[Any, float]
    socket_path: str | None
    _exchange: _Exchange | None = None
    _is_last = False
    _address: Any = None

    def _new_conn(self) -> socket.socket:
        """Connect to the first address that accepts, within the step's time (RFC 8305).

        Each next address is tried after NEXT_ADDRESS_S, while the earlier attempts continue.
        """
        exchange, failure = self._current(), OSError()
        waiting = deque(self._addresses())
        tried: dict[_DeadlineSocket, Any] = {}
        with selectors.PollSelector() as attempts:
            try:
                while waiting or attempts.get_map():
                    if waiting:
                        try:
                            channel = self._begun(tried, waiting.popleft())
                        except OSError as error:
                            failure = error
                            continue
                        attempts.register(channel, selectors.EVENT_WRITE)
                    left_s = exchange.left_s()
                    wait_s = min(left_s, NEXT_ADDRESS_S) if waiting else left_s
                    for ready, _ in attempts.select(wait_s):
                        channel = cast("_DeadlineSocket", ready.fileobj)
                        attempts.unregister(channel)
                        code = channel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                        if code:
                            failure = OSError(code, os.strerror(code))
                            continue
                        # The TLS handshake takes over this timeout, for all its reads together.
                        channel.settimeout(exchange.left_s())
                        channel.exchange = exchange
                        self._address = tried.pop(channel)
                        return channel
            finally:
                for channel, address in tried.items():
                    self._rank(address, time.monotonic())
                    channel.close()
        raise failure

    def _addresses(self) -> Iterable[_Target]:
        """Return what to connect to, in this order: the families alternate (RFC 8305)."""
        if self.socket_path is not None:
            return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, self.socket_path)]
        order = {}
        nth: Counter[int] = Counter()
        for family, kind, protocol, _, address in socket.getaddrinfo(
            self._dns_host, self.port, type=socket.SOCK_STREAM
        ):
            nth[family] += 1
            order[family, kind, protocol, address] = self.ranks.get(address, 0.0), nth[family]
        return sorted(order, key=order.__getitem__)

    def _begun(self, tried: dict[_DeadlineSocket, Any], target: _Target) -> _DeadlineSocket:
        """Begin to connect to an address."""
        family, kind, protocol, address = target
        channel = _DeadlineSocket(family, kind, protocol)
        tried[channel] = address
        channel.setblocking(False)
        if family != socket.AF_UNIX:
            for option in self.socket_options or ():
                channel.setsockopt(*option)
        with suppress(BlockingIOError):
            channel.connect(address)
        return channel

    def _rank(self, address: Any, rank: float) -> None:  # noqa: ANN401 - as its family has it
        """Remember that an address answered (ANSWERED), or the monotonic s at which it did not."""
        if len(self.ranks) >= RANKS_MAX:
            self.ranks.clear()
        self.ranks[address] = rank

    def connect(self) -> None:
        """Connect, with the TLS handshake and a proxy's tunnel."""
        self._current().begin_step()
        super().connect()
        self._limit_socket()

    def request(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as urllib3 calls it
        """Send a request; `getresponse` reads the whole response, regardless of the options."""
        if self.sock is None:
            self.connect()
        self._is_last = (options.get("headers") or {}).get("Connection") == "close"
        self._current().begin_step()
        self._limit_socket()
        super().request(*args, **{**options, "preload_content": False, "decode_content": False})

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override] # as urllib3 has it
        """Return the response, truncated to the size limit; `is_truncated` reports a truncation.

        Raises:
            TimeoutError: It was not complete in time.
            _ResponseTooLargeError: Its header or framing is too large.
        """
        exchange = self._current()
        exchange.begin_step()
        channel, response = self.sock, None
        try:
            response = super().getresponse()
            exchange.begin_body()
            content = _read(response, self.limits.max_body_bytes)
            is_truncated = len(content) == self.limits.max_body_bytes and bool(response.read(1))
        except BaseException:
            # Both hold the socket open; a response with an invalid header is not returned.
            if response is None:
                _close_now(channel)
            else:
                response.close()
            raise
        self._rank(self._address, ANSWERED)
        self._exchange = None
        if is_truncated or self._is_last:
            # A server may close the connection without a header, and the next request would fail.
            response.close()
            self.close()
        limited = _LimitedResponse(
            body=io.BytesIO(content),
            headers=response.headers,
            status=response.status,
            version=response.version,
            reason=response.reason,
            preload_content=False,
            decode_content=False,
            enforce_content_length=False,
        )
        limited.is_truncated = is_truncated
        return limited

    def close(self) -> None:
        """Close the connection; the next request opens another.

        After an exchange without an answer it prefers another address of the host.
        """
        if self._exchange is not None:
            self._rank(self._address, time.monotonic())
        super().close()
        self._exchange = None

    def _tunnel(self) -> None:
        self._limit_socket()
        super()._tunnel()

    def _limit_socket(self) -> None:
        # TLS within a proxy's TLS is an object around the socket.
        channel = getattr(self.sock, "socket", self.sock)
        if isinstance(channel, _DeadlineSocket):
            channel.exchange = self._exchange

    def _current(self) -> _Exchange:
        if self._exchange is None:
            self._exchange = _Exchange(self.limits)
        return self._exchange


class _LimitedTlsConnection(_LimitedConnection, HTTPSConnection):
    """The same, over TLS."""

    def connect(self) -> None:
        """Connect, with a context whose sockets have limits."""
        if self.ssl_context is None:
            self.ssl_context = tls_context(self.ca_certs)
        super().connect()


class _LimitedResponse(urllib3.HTTPResponse):
    """A response that was read completely, or up to the limit."""

    is_truncated = False


def _read(response: urllib3.BaseHTTPResponse, most_bytes: int) -> bytes:
    """Read up to `most_bytes`; raise if the body is shorter than its Content-Length."""
    parts, left = [], most_bytes
    while left and (part := response.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def limit(
    pool: urllib3.PoolManager,
    limits: ExchangeLimits,
    ranks: dict[Any, float],
    socket_path: str | None = None,
) -> urllib3.PoolManager:
    """Limit the exchanges of all connections that a pool opens from now on; return the pool.

    Args:
        pool: The pool.
        limits: Limits of each exchange.
        ranks: Which addresses answered and which did not; updated.
        socket_path: Unix socket to connect to, whatever the host of a URL; None for TCP.
    """
    shared = {"limits": limits, "ranks": ranks, "socket_path": socket_path}
    connection = type("Connection", (_LimitedConnection,), shared)
    tls_connection = type("TlsConnection", (_LimitedTlsConnection,), shared)
    pool.pool_classes_by_scheme = {
        "http": type("Pool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": connection}),
        "https": type("TlsPool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": tls_connection}),
    }
    return pool


def translated(
    error: Exception, destination: Destination, limits: ExchangeLimits, via: str = ""
) -> DeliveryError | None:
    """Return the DeliveryError of a failed request; None for an error that is not of a request.

    The reason contains the message of the system, never that of a library, which may contain parts
    of the request or the response.

    Args:
        error: The raised error.
        destination: Destination of the request.
        limits: Its limits.
        via: The proxy, for the end of the reason; empty without one.
    """
    if isinstance(error, DeliveryError):
        return error
    if isinstance(error, _ResponseTooLargeError):
        most_bytes = limits.max_header_bytes
        is_wrong, words = False, f"the response has a header of more than {most_bytes} bytes"
    elif isinstance(error, _OURS):
        is_wrong, words = _of_request(list(_causes(error)), destination, limits)
    else:
        return None
    reason = destination.message(words + via)
    return Misconfigured(reason) if is_wrong else RetryLater(reason)


def _of_request(
    causes: Sequence[BaseException], destination: Destination, limits: ExchangeLimits
) -> tuple[bool, str]:
    """Return whether only an operator can fix it, and the reason."""
    if any(isinstance(cause, _TIMEOUTS) for cause in causes):
        return False, f"no response within {limits.total_s or limits.step_s:g} s"
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None and not isinstance(tls, _TLS_ENDED):
        words = getattr(tls, "verify_message", "") or tls.reason or "the server does not use TLS"
        host = urllib3.util.parse_url(destination.url).host or destination.name
        code, hint = getattr(tls, "verify_code", 0), ""
        if code in _UNTRUSTED_CODES:
            hint = "; is ca_file the server's authority?"
        elif code in _STRICT_CODES:
            hint = (
                "; RFC 5280 requires it, and Python checks it from version 3.13 on: issue the"
                " certificate again"
            )
        return True, f"TLS: {words.replace(host, 'the host')}{hint}"
    if any(isinstance(cause, urllib3.exceptions.LocationValueError) for cause in causes):
        return True, "not a valid http or https URL"
    system = next((c for c in causes if isinstance(c, OSError) and c.strerror), None)
    if isinstance(system, OSError):
        return False, f"{type(system).__name__}: {system.strerror}"
    if refused := next(filter(None, map(_TUNNEL.fullmatch, map(str, causes))), None):
        return refused[
            1
        ] in _TUNNEL_DENIED, f"the proxy refused the connection with HTTP {refused[1]}"
    name = type(next((c for c in causes if not isinstance(c, _WRAPPERS)), causes[0])).__name__
    return False, f"{name}: no complete response"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it wraps; urllib3 stores the original among its arguments."""
    yield error
    for argument in error.args:
        if isinstance(argument, BaseException):
            yield from _causes(argument)
