"""HTTP requests within bounds: each has one deadline and one budget for all the bytes it reads."""

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

from probes.served.target import Target

MAX_ANSWER_BYTES = 16 * 1024 * 1024
READ_BYTES = 64 * 1024
EXCERPT_BYTES = 4096
DRAIN_S = 0.2
# What takes the pieces of an answer with their instants of arrival in CLOCK_MONOTONIC ns, and
# says True when it needs no more.
Take = Callable[[bytes, int], bool]


class Failure(Exception):  # noqa: N818 - a request's outcome, counted by its kind
    """A request that brought no answer to count.

    Args:
        kind: Short name to count it by.
        words: What happened, for the operator; holds no secret.
    """

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class Exchange(NamedTuple):
    """When an exchange began and ended; times are CLOCK_MONOTONIC ns."""

    start_ns: int
    end_ns: int


class Connection:
    """A connection to a server, kept between requests and made anew where it has to be.

    Connecting is no part of a request's time: a client that serves keeps its connections too.
    Proxies of the environment are not used, and redirects not followed.

    Args:
        target: The server.
        timeout_s: Of a whole request, from connecting to the end of its answer.

    Attributes:
        server: What the last answer's Server header said, "" if nothing.
    """

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.server = ""
        self._target = target
        self._timeout_s = timeout_s
        self._http: http.client.HTTPConnection | None = None
        self._headers = {"Host": target.host_header, "User-Agent": "infercost"}
        if target.token is not None:
            self._headers["Authorization"] = f"Bearer {target.token}"

    def exchange(self, method: str, path: str, body: bytes | None, take: Take) -> Exchange:
        """Sends a request and hands its answer on as it comes.

        Args:
            method: "GET" or "POST".
            path: From the server's root.
            body: JSON.
            take: Takes the answer; may raise Failure.

        Raises:
            Failure: There is no answer to the end, or one that is not of the kind 2xx.
        """
        bounds = _Bounds(time.monotonic() + self._timeout_s)
        done = False
        try:
            with _told(self._timeout_s):
                connection = self._connected(bounds)
                exchange = self._exchange(connection, bounds, (method, path, body), take)
            done = True
        finally:
            if not done:
                self.close()
        return exchange

    def words(self, text: str) -> str:
        """What a server said, short and in one line, without our token."""
        return self._target.words(text)

    def close(self) -> None:
        """Closes the connection; the next request makes a new one."""
        connection, self._http = self._http, None
        if connection is not None:
            connection.close()

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        bounds: _Bounds,
        request: tuple[str, str, bytes | None],
        take: Take,
    ) -> Exchange:
        method, path, body = request
        more = {} if body is None else {"Content-Type": "application/json"}
        start_ns = time.monotonic_ns()
        # A server that refuses may not read all; its answer is there all the same.
        with suppress(BrokenPipeError):
            connection.request(method, path, body, {**self._headers, **more})
        with connection.getresponse() as response:
            self.server = self.words(response.getheader("Server") or "")
            if response.status // 100 != 2:  # noqa: PLR2004 - the class of success
                raise Failure(f"http_{response.status}", self._excerpt(response))
            while True:
                data = response.read1(READ_BYTES)
                now_ns = time.monotonic_ns()
                if not data:
                    break
                if take(data, now_ns):
                    if not _is_drained(response, bounds):
                        self.close()
                    return Exchange(start_ns, now_ns)
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
        return Exchange(start_ns, now_ns)

    def _excerpt(self, response: http.client.HTTPResponse) -> str:
        try:
            return self.words(response.read(EXCERPT_BYTES).decode(errors="replace"))
        except (OSError, http.client.HTTPException, ValueError, Failure):
            return ""

    def _connected(self, bounds: _Bounds) -> http.client.HTTPConnection:
        """The kept connection, or a new one; either reads within the bounds."""
        connection = self._http
        channel = None if connection is None else connection.sock
        if connection is not None and isinstance(channel, _Channel) and not channel.is_stale():
            channel.bounds = bounds
            return connection
        self.close()
        connection = http.client.HTTPConnection(self._target.host, self._target.port)
        connection.sock = _Channel(_opened(self._target, bounds), bounds)
        self._http = connection
        return connection


class _Bounds:
    """How long a request may still take, and how much it may still read."""

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s
        self.bytes_left = MAX_ANSWER_BYTES

    def left_s(self) -> float:
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _Channel:
    """A socket as http.client uses one, with no call that waits beyond the request's deadline."""

    def __init__(self, channel: socket.socket, bounds: _Bounds) -> None:
        self.bounds = bounds
        self._socket = channel

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(self.bounds.left_s())
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._socket, self.bounds), READ_BYTES)

    def close(self) -> None:
        self._socket.close()

    def is_stale(self) -> bool:
        """Whether there is something to read before anything was asked: an end, or rubbish."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))


class _BoundedReader(io.RawIOBase):
    """Reads of a socket, all of them within one deadline and one budget of bytes."""

    def __init__(self, channel: socket.socket, bounds: _Bounds) -> None:
        self._socket = channel
        # The socket stays open while this is, as http.client expects it to.
        self._raw = channel.makefile("rb", buffering=0)
        self._bounds = bounds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # what BufferedReader gives
        if self._bounds.bytes_left <= 0:
            raise Failure("too_large", f"its answer has more than {MAX_ANSWER_BYTES} bytes")
        self._socket.settimeout(self._bounds.left_s())
        count = self._raw.readinto(buffer[: self._bounds.bytes_left]) or 0
        self._bounds.bytes_left -= count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _opened(target: Target, bounds: _Bounds) -> socket.socket:
    """A connection to the first of the host's addresses that takes one."""
    failure: OSError = TimeoutError("timed out")
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, place in found:
        channel = socket.socket(family, kind, protocol)
        try:
            channel.settimeout(bounds.left_s())
            channel.connect(place)
            # Headers and body are two writes: the second must not wait for an acknowledgement.
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.context is None:
                return channel
            channel.settimeout(bounds.left_s())
            return target.context.wrap_socket(channel, server_hostname=target.host)
        except OSError as error:
            channel.close()
            failure = error
    raise failure


def _is_drained(response: http.client.HTTPResponse, bounds: _Bounds) -> bool:
    """Reads what lies behind an answer's end, soon, so that the connection can be kept."""
    bounds.ends_s = min(bounds.ends_s, time.monotonic() + DRAIN_S)
    try:
        while response.read1(READ_BYTES):
            pass
    except (OSError, http.client.HTTPException, ValueError, Failure):
        return False
    return not response.length


@contextmanager
def _told(timeout_s: float) -> Iterator[None]:
    """Turns what goes wrong within into failures; never with a library's text on what it read."""
    try:
        yield
    except (TimeoutError, socket.timeout):  # noqa: UP041 - two classes before Python 3.10
        raise Failure("timeout", f"no whole answer within {timeout_s:g} s") from None
    except ConnectionRefusedError:
        raise Failure("refused", "the connection was refused") from None
    except ConnectionError:
        raise Failure("broken", "it closed the connection before it had answered") from None
    except ssl.SSLError as error:
        words = getattr(error, "verify_message", "") or error.reason or "no TLS is spoken there"
        raise Failure("tls", words) from None
    except OSError as error:
        raise Failure("unreachable", error.strerror or type(error).__name__) from None
    except http.client.IncompleteRead:
        raise Failure("truncated", "its answer ends before its end") from None
    except http.client.LineTooLong:
        raise Failure("too_large", "a line of its headers is too long") from None
    except (http.client.HTTPException, ValueError) as error:
        raise Failure("bad_http", f"its answer is no HTTP ({type(error).__name__})") from None
