"""Bounded HTTP requests: each has one deadline and one limit on the bytes it reads."""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from costprobe_probes.served.target import ServerTarget

MAX_ANSWER_BYTES = 16 * 1024 * 1024
READ_BYTES = 64 * 1024
EXCERPT_BYTES = 4096
DRAIN_S = 0.2
# Consumes a piece of a response with its arrival in CLOCK_MONOTONIC ns; returns True when done.
Consumer = Callable[[bytes, int], bool]


class Failure(Exception):  # noqa: N818 - an outcome of a request, counted by its kind
    """A request without a valid response.

    Args:
        kind: Short name; failures are counted by it.
        message: Reason for the operator; contains no secret.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Exchange(NamedTuple):
    """Start and end of a request with its response; times are CLOCK_MONOTONIC ns."""

    start_ns: int
    end_ns: int


class ServerConnection:
    """A persistent connection to a server, reconnected when necessary.

    The time of a request excludes connecting, because production clients reuse connections too.
    Proxies of the environment are not used, and redirects are not followed.

    Args:
        target: The server.
        timeout_s: Limit of a whole request, from connecting to the end of its response.

    Attributes:
        server: Server header of the last response; empty if absent.
    """

    def __init__(self, target: ServerTarget, timeout_s: float) -> None:
        self.server = ""
        self._target = target
        self._timeout_s = timeout_s
        self._http: http.client.HTTPConnection | None = None
        self._headers = {"Host": target.host_header, "User-Agent": "costprobe"}
        if target.token is not None:
            self._headers["Authorization"] = f"Bearer {target.token}"

    def exchange(self, method: str, path: str, body: bytes | None, consume: Consumer) -> Exchange:
        """Send a request and pass its response to a consumer as it arrives.

        Args:
            method: "GET" or "POST".
            path: From the server's root.
            body: JSON.
            consume: Consumes the response; may raise Failure.

        Raises:
            Failure: There is no complete response, or its status is not 2xx.
        """
        limits = _RequestLimits(time.monotonic() + self._timeout_s)
        done = False
        try:
            with _failures_translated(self._timeout_s):
                connection, channel = self._connected(limits)
                exchange = self._exchange(connection, channel, (method, path, body), consume)
            done = True
        finally:
            if not done:
                self.close()
        return exchange

    def excerpt(self, text: str) -> str:
        """Return a short single line of a server's text, with the bearer token removed."""
        return self._target.excerpt(text)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        connection, self._http = self._http, None
        if connection is not None:
            connection.close()

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        channel: _ServerSocket,
        request: tuple[str, str, bytes | None],
        consume: Consumer,
    ) -> Exchange:
        method, path, body = request
        limits = channel.limits
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body, {**self._headers, **headers})
        start_ns = channel.flush()
        with connection.getresponse() as response:
            self.server = self.excerpt(response.getheader("Server") or "")
            if response.status // 100 != 2:  # noqa: PLR2004 - the class of success
                raise Failure(f"http_{response.status}", self._excerpt(response))
            while data := response.read1(READ_BYTES):
                if consume(data, limits.received_ns):
                    end_ns = limits.received_ns
                    if not _is_drained(response, limits):
                        self.close()
                    return Exchange(start_ns, end_ns)
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
        return Exchange(start_ns, limits.received_ns)

    def _excerpt(self, response: http.client.HTTPResponse) -> str:
        try:
            return self.excerpt(response.read(EXCERPT_BYTES).decode(errors="replace"))
        except (OSError, http.client.HTTPException, ValueError, Failure):
            return ""

    def _connected(
        self, limits: _RequestLimits
    ) -> tuple[http.client.HTTPConnection, _ServerSocket]:
        """Return the open connection or a new one, with the limits of this request."""
        connection = self._http
        channel = None if connection is None else connection.sock
        if connection is not None and isinstance(channel, _ServerSocket) and not channel.is_stale():
            channel.limits = limits
            return connection, channel
        self.close()
        connection = http.client.HTTPConnection(self._target.host, self._target.port)
        channel = connection.sock = _ServerSocket(_connect(self._target, limits), limits)
        self._http = connection
        return connection, channel


class _RequestLimits:
    """Remaining time and bytes of a request, and when its last bytes arrived.

    Attributes:
        received_ns: CLOCK_MONOTONIC ns right after the socket was read: bytes that arrived together have
            one arrival, whenever they are parsed.
    """

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s
        self.bytes_left = MAX_ANSWER_BYTES
        self.received_ns = time.monotonic_ns()

    def left_s(self) -> float:
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _ServerSocket:
    """A socket for http.client in which no call waits beyond the deadline of the request.

    Headers and body leave it together. Between two calls of the socket other threads may run, those of
    the requests that are sent at the same time: a request of several calls begins long before its end.
    """

    def __init__(self, channel: socket.socket, limits: _RequestLimits) -> None:
        self.limits = limits
        self._socket = channel
        self._unsent = bytearray()

    def sendall(self, data: bytes) -> None:
        """Keep a part of a request until `flush`."""
        self._unsent += data

    def flush(self) -> int:
        """Send the request; return when its first byte was sent, in CLOCK_MONOTONIC ns."""
        content = bytes(self._unsent)
        self._unsent.clear()
        # With a timeout the socket would be polled first, which is a call of its own.
        self._socket.settimeout(0)
        start_ns = time.monotonic_ns()
        # A server that rejects a request may not read all of it; its response is available nevertheless.
        with suppress(BrokenPipeError):
            try:
                sent = self._socket.send(content)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent = 0
            if sent < len(content):
                self._socket.settimeout(self.limits.left_s())
                self._socket.sendall(content[sent:])
        return start_ns

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._socket, self.limits), READ_BYTES)

    def close(self) -> None:
        self._socket.close()

    def is_stale(self) -> bool:
        """Return whether there is data before a request was sent: end of file or malformed data."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))


class _DeadlineReader(io.RawIOBase):
    """Reads of a socket within one deadline and one limit of bytes."""

    def __init__(self, channel: socket.socket, limits: _RequestLimits) -> None:
        self._socket = channel
        # The socket stays open as long as this reader, as http.client expects.
        self._raw = channel.makefile("rb", buffering=0)
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # what BufferedReader gives
        if self._limits.bytes_left <= 0:
            raise Failure("too_large", f"the response has more than {MAX_ANSWER_BYTES} bytes")
        self._socket.settimeout(self._limits.left_s())
        count = self._raw.readinto(buffer[: self._limits.bytes_left]) or 0
        self._limits.received_ns = time.monotonic_ns()
        self._limits.bytes_left -= count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _connect(target: ServerTarget, limits: _RequestLimits) -> socket.socket:
    """Connect to the first address of the host that accepts."""
    failure: OSError = TimeoutError("timed out")
    addresses = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, place in addresses:
        channel = socket.socket(family, kind, protocol)
        try:
            channel.settimeout(limits.left_s())
            channel.connect(place)
            # The rest of a long request must not wait for an acknowledgement.
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.context is None:
                return channel
            channel.settimeout(limits.left_s())
            return target.context.wrap_socket(channel, server_hostname=target.host)
        except OSError as error:
            channel.close()
            failure = error
    raise failure


def _is_drained(response: http.client.HTTPResponse, limits: _RequestLimits) -> bool:
    """Read the rest of a response within DRAIN_S, so that the connection can be reused."""
    limits.ends_s = min(limits.ends_s, time.monotonic() + DRAIN_S)
    try:
        while response.read1(READ_BYTES):
            pass
    except (OSError, http.client.HTTPException, ValueError, Failure):
        return False
    return not response.length


@contextmanager
def _failures_translated(timeout_s: float) -> Iterator[None]:
    """Translate exceptions to Failure, without a library's text, which may contain received data."""
    try:
        yield
    except (TimeoutError, socket.timeout):  # noqa: UP041 - two classes before Python 3.10
        raise Failure("timeout", f"no complete response within {timeout_s:g} s") from None
    except ConnectionRefusedError:
        raise Failure("refused", "the connection was refused") from None
    except ConnectionError:
        raise Failure("broken", "the server closed the connection before it responded") from None
    except ssl.SSLError as error:
        reason = (
            getattr(error, "verify_message", "") or error.reason or "the server does not use TLS"
        )
        raise Failure("tls", reason) from None
    except OSError as error:
        raise Failure("unreachable", error.strerror or type(error).__name__) from None
    except http.client.IncompleteRead:
        raise Failure("truncated", "the response was truncated") from None
    except http.client.LineTooLong:
        raise Failure("too_large", "a header line is too long") from None
    except (http.client.HTTPException, ValueError) as error:
        raise Failure("bad_http", f"the response is not HTTP ({type(error).__name__})") from None
