"""urllib3 with one limit on the time and the size of an exchange, and its errors as ours.

urllib3's own timeouts apply to each read, so a server that sends a byte a second holds a request
for hours, and a response may have any size. Here each wait for the server is limited to the remaining
time of the exchange, and every byte of its header and framing is counted. Errors of urllib3,
http.client, ssl and the system become DeliveryErrors.

The first request loads this file: a daemon that sends none does without urllib3.
"""

from __future__ import annotations

import http.client
import io
import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from costprobe.adapters.http.access import Destination, ExchangeLimits
from costprobe.adapters.http.errors import DeliveryError, Misconfigured, RetryLater
from costprobe.core.outside import check_regular

# Without a limit on the whole exchange: to connect, to send the request, to receive the response.
STEPS: Final = 3
# Each of several addresses has this time at first: one of them may be dead.
FIRST_ATTEMPT_S: Final = 0.25
UNANSWERED_MAX: Final = 256
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


class Exchange(threading.local):
    """What is left of a thread's exchange, and the addresses that did not answer it.

    Args:
        limits: Limits of each exchange.
        unanswered: By address, the monotonic s at which it did not answer; shared, and updated.
    """

    def __init__(self, limits: ExchangeLimits, unanswered: dict[Any, float]) -> None:
        self._limits = limits
        self._unanswered = unanswered
        self._ends_s = 0.0
        self._bytes_left = 0
        self.address: Any = None
        self.body = b""
        self.is_truncated = False

    def begin(self) -> None:
        """Begin an exchange."""
        limits = self._limits
        self._ends_s = time.monotonic() + (limits.total_s or STEPS * limits.step_s)
        self._bytes_left = limits.max_header_bytes

    def left_s(self) -> float:
        """Return how long to wait for the server next.

        Raises:
            TimeoutError: No time is left.
        """
        left_s = min(self._ends_s - time.monotonic(), self._limits.step_s)
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def received(self, count: int) -> None:
        """Count bytes of a response.

        Raises:
            _ResponseTooLargeError: There are too many.
        """
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise _ResponseTooLargeError

    def read(self, response: urllib3.BaseHTTPResponse) -> None:
        """Read a response's body up to the limit, into `body` and `is_truncated`."""
        most_bytes = self._limits.max_body_bytes
        self._bytes_left += most_bytes + self._limits.max_header_bytes
        parts, left = [], most_bytes
        # A body that is shorter than its Content-Length is an error of the read after its end.
        while left and (part := response.read(left)):
            parts.append(part)
            left -= len(part)
        self.body, self.is_truncated = b"".join(parts), not left and bool(response.read(1))

    def rank(self, address: Any) -> float:  # noqa: ANN401 - as its family has it
        """Return an address's place among others: those last that did not answer."""
        return self._unanswered.get(address, 0.0)

    def answered(self, *, is_ok: bool) -> None:
        """Record whether the last address answered."""
        if is_ok:
            self._unanswered.pop(self.address, None)
        elif self.address is not None:
            if len(self._unanswered) >= UNANSWERED_MAX:
                self._unanswered.clear()
            self._unanswered[self.address] = time.monotonic()
        self.address = None


class _Reader(io.RawIOBase):
    """Reads of a socket within the limits of an exchange."""

    def __init__(self, channel: socket.socket, raw: io.RawIOBase, exchange: Exchange) -> None:
        self._channel, self._raw, self._exchange = channel, raw, exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a buffer, as the base class has it
        self._channel.settimeout(self._exchange.left_s())
        count = self._raw.readinto(buffer) or 0
        self._exchange.received(count)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Connection(HTTPConnection):
    """A connection within the limits of the exchange; subclasses set its first attributes.

    Attributes:
        exchange: What is left of the exchange of each thread.
        is_kept: Whether it is kept for further requests.
        socket_path: Unix socket to connect to; None for TCP.
    """

    exchange: Exchange
    is_kept: bool
    socket_path: str | None
    record_bytes = 1 << 30
    _address: Any = None
    _response: http.client.HTTPResponse | None = None

    def _new_conn(self) -> socket.socket:
        """Connect to the first address that accepts, within the remaining time."""
        targets: list[Any] = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", self.socket_path)]
        if self.socket_path is None:
            targets = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
            targets.sort(key=lambda target: self.exchange.rank(target[-1]))
        failure = OSError()
        for most_s in (FIRST_ATTEMPT_S, math.inf) if len(targets) > 1 else (math.inf,):
            for target in targets:
                try:
                    return self._connected(target, most_s)
                except OSError as error:
                    failure = error
                    self.exchange.answered(is_ok=False)
        raise failure

    def _connected(self, target: Any, most_s: float) -> socket.socket:  # noqa: ANN401 - of getaddrinfo
        channel = socket.socket(*target[:3])
        self._address = self.exchange.address = target[-1]
        try:
            channel.settimeout(min(self.exchange.left_s(), most_s))
            channel.connect(self._address)
            if self.socket_path is None:
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The TLS handshake takes over this timeout, for all its reads together.
            channel.settimeout(self.exchange.left_s())
        except BaseException:
            channel.close()
            raise
        return channel

    def send(self, data: Any) -> None:  # noqa: ANN401 - bytes, as urllib3 sends them
        """Send a part of a request."""
        if self.sock is None:
            self.connect()
        self.exchange.address = self._address
        view = memoryview(data)
        for begin in range(0, len(view), self.record_bytes):
            cast("socket.socket", self.sock).settimeout(self.exchange.left_s())
            super().send(view[begin : begin + self.record_bytes])

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override] # as urllib3 has it
        """Return the response, whose body is then in the exchange."""
        try:
            response = super().getresponse()
            self.exchange.read(response)
        except BaseException:
            # It holds the socket open; urllib3 returns none with an invalid header.
            if self._response is not None:
                self._response.close()
            raise
        if self.exchange.is_truncated or not self.is_kept:
            # A server may close the connection without a header, and the next request would fail.
            response.close()
            self.close()
        return response

    def response_class(self, channel: Any, **options: Any) -> http.client.HTTPResponse:  # type: ignore[override] # noqa: ANN401 - as http.client calls it
        """Return a response that is read within the limits."""
        response = self._response = http.client.HTTPResponse(channel, **options)
        raw = response.fp.detach()
        response.fp = io.BufferedReader(_Reader(channel, raw, self.exchange))
        return response


class _TlsConnection(_Connection, HTTPSConnection):
    """The same, over TLS, which waits for each of its records for itself."""

    record_bytes = 16 << 10


def tls_context(ca_file: Path | str | None) -> ssl.SSLContext:
    """A TLS context.

    Args:
        ca_file: Certificates to trust; None for the system's.

    Raises:
        OSError: The file cannot be read, or contains no certificate (ssl.SSLError).
    """
    if ca_file is not None:
        check_regular(ca_file)
    return ssl.create_default_context(cafile=ca_file)


def limit(pool: urllib3.PoolManager, **shared: Any) -> urllib3.PoolManager:  # noqa: ANN401 - of several types
    """Limit the exchanges of all connections that a pool opens from now on; return the pool.

    Args:
        pool: The pool.
        shared: The first attributes of its connections.
    """
    connection = type("Connection", (_Connection,), shared)
    tls_connection = type("TlsConnection", (_TlsConnection,), shared)
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
