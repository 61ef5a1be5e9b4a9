"""A connection to an inference server: each request has one deadline and one limit on the bytes it reads.

It has HTTP of its own, on a socket: each piece of a response is stamped right after the read that
received it, because times to the first token and between tokens are differences of these instants.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from costprobe_probes.wire import DeviceError, ProbeConfigError

from costprobe.adapters.host.redaction import outside_text, read_secret
from costprobe.core.outside import bounded_json, check_regular

PORTS: Final = {"http": 80, "https": 443}
# Shorter than the excerpt of a response, so that an echoed token is always found and removed.
MAX_TOKEN_CHARS: Final = 2048
MAX_EXCERPT_CHARS: Final = 200
EXCERPT_BYTES: Final = 4096
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
READ_BYTES: Final = 64 * 1024
DRAIN_S: Final = 0.2
_FIRST_PRINTABLE: Final = "!"
_LAST_PRINTABLE: Final = "~"

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


class ServerError(DeviceError):
    """The server cannot be used; the text states the fix."""


@dataclass(frozen=True)
class ServerTarget:
    """A server to probe.

    Attributes:
        host: Name or address.
        port: TCP port.
        path: The URL's path without a slash at its end.
        context: TLS settings; None for plain HTTP.
        token: Bearer token; None to send none.
        headers: Further headers, which may be secret.
    """

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None
    token: str | None = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Host and port, as text."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The Host header: without the default port of the scheme."""
        usual = PORTS["http" if self.context is None else "https"]
        return self.name.rpartition(":")[0] if self.port == usual else self.name


def parse_target(
    url: str,
    ca_file: str | None,
    token_file: str | None,
    headers: Mapping[str, str] | None = None,
    key: tuple[str, str] | None = None,
) -> ServerTarget:
    """Parse the address of a server and read its files.

    Args:
        url: http:// or https://, host, port, and the base path of its API.
        ca_file: Certificates to trust instead of the system's.
        token_file: File with a bearer token.
        headers: Further headers.
        key: Name of a further header, and the file with its value; None for none.

    Raises:
        ProbeConfigError: The URL is malformed, or a file cannot be used.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise ProbeConfigError("url is malformed: set it to http://HOST:PORT") from None
    if scheme not in PORTS or not host:
        raise ProbeConfigError("url must be http://HOST:PORT or https://HOST:PORT")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ProbeConfigError("url must not have a user, query or fragment: set token for a token")
    if not _is_plain(host) or not _is_plain(parts.path or "/"):
        raise ProbeConfigError("url must be printable ASCII without spaces")
    context = _tls_context(ca_file) if scheme == "https" else None
    token = None if token_file is None else _read_token(token_file, "token")
    further = {
        **(headers or {}),
        **({} if key is None else {key[0]: _read_token(key[1], "key")}),
    }
    port = port or PORTS[scheme]
    return ServerTarget(host, port, parts.path.rstrip("/"), context, token, further)


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    try:
        if ca_file is not None:
            check_regular(ca_file)
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        reason = "contains no certificates" if isinstance(error, ssl.SSLError) else error.strerror
        raise ProbeConfigError(f"ca_file {ca_file}: cannot be used ({reason})") from None


def _read_token(path: str, option: str) -> str:
    try:
        token = read_secret(Path(path), "token")
    except ValueError as error:
        raise ProbeConfigError(f"{option} {error}") from None
    # A library would quote a token that is not a valid header in its error.
    if len(token) > MAX_TOKEN_CHARS or not _is_plain(token):
        raise ProbeConfigError(f"{option} {path}: must contain a token of one line of ASCII")
    return token


def _is_plain(text: str) -> bool:
    return all(_FIRST_PRINTABLE <= c <= _LAST_PRINTABLE for c in text)


def excerpt(text: str) -> str:
    """Return a short single line of a server's text, without the token."""
    return " ".join(outside_text(text, MAX_EXCERPT_CHARS).split())


def parse_json(content: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON per RFC 8259.

    Raises:
        Failure: It is malformed, or too large.
    """
    try:
        return bounded_json(content, is_strict=True)
    except ValueError:
        raise Failure("bad_json", "the response is not JSON") from None


class _Sent(NamedTuple):
    """A request with what is expected of its response."""

    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    status: int | None

    def accepts(self, status: int) -> bool:
        return status // 100 == 2 if self.status is None else status == self.status  # noqa: PLR2004 - the class of success


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
    """

    def __init__(self, target: ServerTarget, timeout_s: float) -> None:
        self._server = ""
        self._target = target
        self._timeout_s = timeout_s
        self._http: http.client.HTTPConnection | None = None
        self._headers = {
            "Host": target.host_header,
            "User-Agent": "costprobe",
            **target.headers,
        }
        if target.token is not None:
            self._headers["Authorization"] = f"Bearer {target.token}"

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        consume: Consumer,
        *,
        content_type: str = "application/json",
        status: int | None = None,
    ) -> Exchange:
        """Send a request and pass its response to a consumer as it arrives.

        Args:
            method: "GET" or "POST".
            path: From the server's root.
            body: Its body.
            consume: Consumes the response; may raise Failure.
            content_type: Type of the body.
            status: The expected status; None for any of the class 2xx.

        Raises:
            Failure: There is no complete response, or it has another status.
        """
        headers = {} if body is None else {"Content-Type": content_type}
        request = _Sent(method, path, body, {**self._headers, **headers}, status)
        limits = _RequestLimits(time.monotonic() + self._timeout_s)
        done = False
        try:
            with _failures_translated(self._timeout_s):
                connection, channel = self._connected(limits)
                exchange = self._exchange(connection, channel, request, consume)
            done = True
        finally:
            if not done:
                self.close()
        return exchange

    def collect(
        self,
        method: str,
        path: str,
        body: bytes | None,
        **expected: Any,  # noqa: ANN401 - of `exchange`
    ) -> tuple[Exchange, bytes]:
        """Send a request; return its whole response. Arguments and errors are those of `exchange`."""
        content = bytearray()

        def add(data: bytes, _: int) -> bool:
            content.extend(data)
            return False

        return self.exchange(method, path, body, add, **expected), bytes(content)

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[Exchange, Any]:
        """Send a request; return its response, which is JSON.

        Raises:
            Failure: There is no complete response, its status is not 2xx, or it is not JSON.
        """
        exchange, content = self.collect(method, path, body)
        return exchange, parse_json(content)

    def query(self, method: str, path: str) -> Any:  # noqa: ANN401 - any JSON value
        """Query an optional endpoint of the server; None if it does not answer.

        Args:
            method: "GET", or "POST" with an empty object.
            path: From the server's root.
        """
        try:
            return self.request(method, path, b"{}" if method == "POST" else None)[1]
        except Failure:
            return None

    @property
    def server(self) -> str:
        """Server header of the last response; empty if absent."""
        return excerpt(self._server)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        connection, self._http = self._http, None
        if connection is not None:
            connection.close()

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        channel: _ServerSocket,
        request: _Sent,
        consume: Consumer,
    ) -> Exchange:
        limits = channel.limits
        connection.request(request.method, request.path, request.body, request.headers)
        start_ns = channel.flush()
        with connection.getresponse() as response:
            self._server = response.getheader("Server") or ""
            if not request.accepts(response.status):
                wanted = f"expected HTTP {request.status}: " if request.status else ""
                raise Failure(f"http_{response.status}", f"{wanted}{_reason(response)}")
            while data := response.read1(READ_BYTES):
                if consume(data, limits.received_ns):
                    end_ns = limits.received_ns
                    if not _is_drained(response, limits):
                        self.close()
                    return Exchange(start_ns, end_ns)
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
        return Exchange(start_ns, limits.received_ns)

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


def _reason(response: http.client.HTTPResponse) -> str:
    """Return what a response without success says."""
    try:
        return excerpt(response.read(EXCERPT_BYTES).decode(errors="replace"))
    except (OSError, http.client.HTTPException, ValueError, Failure):
        return ""


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
    except TimeoutError:
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
