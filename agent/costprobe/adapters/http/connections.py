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
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from costprobe.adapters.http.access import Destination
from costprobe.adapters.http.errors import DeliveryError, Misconfigured, RetryLater
from costprobe.adapters.http.limits import ExchangeLimits
from costprobe.core.outside import check_regular

_OURS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError)
_WRAPPERS = (urllib3.exceptions.ProtocolError, urllib3.exceptions.ProxyError)
_TIMEOUTS = (TimeoutError, urllib3.exceptions.TimeoutError)
# The server closed the connection: it may be restarting.
_TLS_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


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
    _exchange: _Exchange | None = None
    _is_last = False

    def _new_conn(self) -> socket.socket:
        """Connect to the first of the host's addresses that accepts, within the step's time."""
        exchange = self._current()
        failure: OSError = TimeoutError()
        for family, kind, protocol, _, address in socket.getaddrinfo(
            self._dns_host, self.port, type=socket.SOCK_STREAM
        ):
            channel = _DeadlineSocket(family, kind, protocol)
            try:
                for option in self.socket_options or ():
                    channel.setsockopt(*option)
                channel.settimeout(exchange.left_s())
                channel.connect(address)
                # The TLS handshake takes over this timeout, for all its reads together.
                channel.settimeout(exchange.left_s())
            except OSError as error:
                channel.close()
                failure = error
            else:
                channel.exchange = exchange
                return channel
        raise failure

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
        channel = self.sock
        try:
            response = super().getresponse()
        except BaseException:
            # A response with an invalid header is not returned, but it holds the socket open.
            _close_now(channel)
            raise
        exchange.begin_body()
        try:
            content = _read(response, self.limits.max_body_bytes)
            is_truncated = len(content) == self.limits.max_body_bytes and bool(response.read(1))
        except BaseException:
            # It holds the socket open.
            response.close()
            raise
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
        """Close the connection; the next request opens another."""
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


def limit(pool: urllib3.PoolManager, limits: ExchangeLimits) -> urllib3.PoolManager:
    """Limit the exchanges of all connections that a pool opens from now on; return the pool.

    For a pool of our own and for one inside a library, such as influxdb-client's.
    """

    class Connection(_LimitedConnection):
        pass

    class TlsConnection(_LimitedTlsConnection):
        pass

    class Pool(urllib3.HTTPConnectionPool):
        ConnectionCls = Connection

    class TlsPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = TlsConnection

    Connection.limits = TlsConnection.limits = limits
    pool.pool_classes_by_scheme = {"http": Pool, "https": TlsPool}
    return pool


def translated(
    error: Exception, destination: Destination, limits: ExchangeLimits
) -> DeliveryError | None:
    """Return the DeliveryError of a failed request; None for an error that is not of a request.

    The reason contains the message of the system, never that of a library, which may contain parts
    of the request or the response.

    Args:
        error: The raised error.
        destination: Destination of the request.
        limits: Its limits.
    """
    if isinstance(error, _ResponseTooLargeError):
        most_bytes = limits.max_header_bytes
        return RetryLater(
            destination.message(f"the response has a header of more than {most_bytes} bytes")
        )
    if isinstance(error, DeliveryError):
        return error
    if not isinstance(error, _OURS):
        return None
    return _of_request(list(_causes(error)), destination, limits)


def _of_request(
    causes: Sequence[BaseException], destination: Destination, limits: ExchangeLimits
) -> DeliveryError:
    if any(isinstance(cause, _TIMEOUTS) for cause in causes):
        limit_s = limits.total_s or limits.step_s
        return RetryLater(destination.message(f"no response within {limit_s:g} s"))
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None and not isinstance(tls, _TLS_ENDED):
        words = getattr(tls, "verify_message", "") or tls.reason or "the server does not use TLS"
        host = urllib3.util.parse_url(destination.url).host or destination.name
        shown = words.replace(host, "the host")
        return Misconfigured(
            destination.message(f"TLS: {shown}; is ca_file the server's authority?")
        )
    if any(isinstance(cause, urllib3.exceptions.LocationValueError) for cause in causes):
        return Misconfigured(destination.message("not a valid http or https URL"))
    system = next((c for c in causes if isinstance(c, OSError) and c.strerror), None)
    if isinstance(system, OSError):
        return RetryLater(destination.message(f"{type(system).__name__}: {system.strerror}"))
    name = type(next((c for c in causes if not isinstance(c, _WRAPPERS)), causes[0])).__name__
    return RetryLater(destination.message(f"{name}: no complete response"))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it wraps; urllib3 stores the original among its arguments."""
    yield error
    for argument in error.args:
        if isinstance(argument, BaseException):
            yield from _causes(argument)
