"""A connection to an inference server: each request has one deadline and one limit on the bytes it reads.

It has HTTP of its own, on a socket: each piece of a response is stamped right after the read that
received it, because times to the first token and between tokens are differences of these instants.
"""

from __future__ import annotations

import http.client
import io
import re
import select
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from costprobe_probes.wire import DeviceError, ProbeConfigError

from costprobe.adapters.host.redaction import outside_text, read_secret
from costprobe.core.outside import bounded_json, check_regular

# Shorter than the excerpt of a response, so that an echoed token is always found and removed.
_TOKEN: Final = re.compile(r"[!-~]{1,2048}")
_URL: Final = re.compile(r"https?://[!-~]+")
MAX_EXCERPT_CHARS: Final = 200
EXCERPT_BYTES: Final = 4096
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
READ_BYTES: Final = 64 * 1024
DRAIN_S: Final = 0.2

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
        headers: Headers of every request, which may be secret.
    """

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None
    headers: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """Host and port, as text."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


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
    invalid = ProbeConfigError(
        "url must be http://HOST:PORT or https://HOST:PORT, in printable ASCII, without a user, query or"
        " fragment: set token for a token"
    )
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise invalid from None
    if not _URL.fullmatch(url) or not host or "@" in parts.netloc or parts.query or parts.fragment:
        raise invalid
    context = _tls_context(ca_file) if parts.scheme == "https" else None
    all_headers = {"User-Agent": "costprobe", **(headers or {})}
    if token_file is not None:
        all_headers["Authorization"] = f"Bearer {_read_token(token_file, 'token')}"
    if key is not None:
        all_headers[key[0]] = _read_token(key[1], "key")
    port = port or (80 if context is None else 443)
    return ServerTarget(host, port, parts.path.rstrip("/"), context, all_headers)


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
    if not _TOKEN.fullmatch(token):
        raise ProbeConfigError(f"{option} {path}: must contain a token of one line of ASCII")
    return token


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


class Reply(NamedTuple):
    """A request that ended, with an answer or without; times are CLOCK_MONOTONIC ns.

    The exception of a failure is not kept: its traceback references frames with received data.

    Attributes:
        start_ns: Just before its first byte was sent, on an open connection; of a failure the start,
            including a new connection.
        end_ns: When the response was complete, or failed.
        arrivals_ns: Arrival of each chunk of generated text, at least one; None without a stream.
        tokens_in: Prompt tokens by the server's count; None without one.
        tokens_out: Generated tokens by the server's count; None without one.
        cached_tokens: Those of tokens_in that a prefix cache answered; None if it does not count
            them.
        scheduled_ns: Instant at which an open loop scheduled it; None in a closed loop.
        items: Items of the response, such as predictions.
        failure: Kind of the failure; empty if it was answered.
        message: Reason of the failure, for the operator.
    """

    start_ns: int
    end_ns: int
    arrivals_ns: Sequence[int] | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens: int | None = None
    scheduled_ns: int | None = None
    items: int = 1
    failure: str = ""
    message: str = ""

    @property
    def begin_ns(self) -> int:
        """When its user began to wait: the scheduled instant, or the sending in a closed loop."""
        return self.start_ns if self.scheduled_ns is None else self.scheduled_ns


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
        self._http = _LimitedHttp(target)

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        consume: Consumer,
        *,
        content_type: str = "application/json",
        status: int | None = None,
    ) -> Reply:
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
        connection = self._http
        try:
            with _failures_translated(self._timeout_s):
                connection.begin(self._timeout_s)
                connection.request(method, path, body, {**self._target.headers, **headers})
                start_ns = connection.flush()
                with connection.getresponse() as response:
                    self._server = response.getheader("Server") or ""
                    end_ns = connection.read(response, status, consume)
            return Reply(start_ns, end_ns)
        except BaseException:
            self.close()
            raise

    def collect(
        self,
        method: str,
        path: str,
        body: bytes | None,
        **expected: Any,  # noqa: ANN401 - of `exchange`
    ) -> tuple[Reply, bytes]:
        """Send a request; return its whole response. Arguments and errors are those of `exchange`."""
        content = bytearray()

        def add(data: bytes, _: int) -> bool:
            content.extend(data)
            return False

        return self.exchange(method, path, body, add, **expected), bytes(content)

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[Reply, Any]:
        """Send a request; return its response, which is JSON.

        Raises:
            Failure: There is no complete response, its status is not 2xx, or it is not JSON.
        """
        reply, content = self.collect(method, path, body)
        return reply, parse_json(content)

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
        self._http.close()


class _LimitedHttp(http.client.HTTPConnection):
    """A connection on which no call waits beyond the deadline of the request.

    Headers and body leave it together. Between two calls of the socket other threads may run, those of
    the requests that are sent at the same time: a request of several calls begins long before its end.

    Attributes:
        bytes_left: Bytes of the response that may still be read.
        received_ns: CLOCK_MONOTONIC ns right after the socket was read: bytes that arrived together have
            one arrival, whenever they are parsed.
    """

    def __init__(self, target: ServerTarget) -> None:
        super().__init__(target.host, target.port)
        # The Host header is without it.
        self.default_port = 80 if target.context is None else 443
        self._tls = target.context
        self._unsent = bytearray()
        self._ends_s = 0.0
        self.bytes_left = 0
        self.received_ns = 0

    def begin(self, timeout_s: float) -> None:
        """Begin a request, on a new connection if the server ended this one or sent what nobody asked for."""
        self._ends_s = time.monotonic() + timeout_s
        self.bytes_left = MAX_ANSWER_BYTES
        self._unsent.clear()
        if self.sock is not None:
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            if poll.poll(0):
                self.close()
        if self.sock is None:
            self.connect()

    def connect(self) -> None:
        """Connect to the first address of the host that accepts."""
        failure: OSError = TimeoutError()
        for *kind, _, place in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            channel = socket.socket(*kind)
            try:
                self.limit(channel).connect(place)
                # The rest of a long request must not wait for an acknowledgement.
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.limit(channel)
                tls = self._tls and self._tls.wrap_socket(channel, server_hostname=self.host)
            except OSError as error:
                channel.close()
                failure = error
            else:
                self.sock = tls or channel
                return
        raise failure

    def send(self, data: Any) -> None:  # noqa: ANN401 - bytes, as http.client sends them
        """Keep a part of a request until `flush`."""
        self._unsent += data

    def flush(self) -> int:
        """Send the request; return when its first byte was sent, in CLOCK_MONOTONIC ns."""
        channel, content = cast("socket.socket", self.sock), bytes(self._unsent)
        # With a timeout the socket would be polled first, which is a call of its own.
        channel.settimeout(0)
        start_ns = time.monotonic_ns()
        # A server that rejects a request may not read all of it; its response is available nevertheless.
        with suppress(BrokenPipeError):
            try:
                sent = channel.send(content)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent = 0
            if sent < len(content):
                self.limit(channel).sendall(content[sent:])
        return start_ns

    def response_class(self, channel: Any, **options: Any) -> http.client.HTTPResponse:  # type: ignore[override] # noqa: ANN401 - as http.client calls it
        """Return a response that is read within the limits."""
        response = http.client.HTTPResponse(channel, **options)
        reader = _Reader(channel, response.fp.detach(), self)
        response.fp = io.BufferedReader(reader, READ_BYTES)
        return response

    def read(
        self, response: http.client.HTTPResponse, status: int | None, consume: Consumer
    ) -> int:
        """Pass a response of the expected status to a consumer; return the arrival of its last piece."""
        if response.status not in (range(200, 300) if status is None else (status,)):
            wanted = "" if status is None else f"expected HTTP {status}: "
            raise Failure(f"http_{response.status}", f"{wanted}{_reason(response)}")
        while data := response.read1(READ_BYTES):
            if consume(data, end_ns := self.received_ns):
                # The rest has a short time, so that the connection can be reused.
                self._ends_s = min(self._ends_s, time.monotonic() + DRAIN_S)
                try:
                    while response.read1(READ_BYTES):
                        pass
                except _FAILURES:
                    self.close()
                return end_ns
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return self.received_ns

    def limit(self, channel: socket.socket) -> socket.socket:
        """Let the next call of a socket wait for what is left of the time; return it."""
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        channel.settimeout(left_s)
        return channel


class _Reader(io.RawIOBase):
    """Reads of a socket within the limits of a request."""

    def __init__(self, channel: socket.socket, raw: io.RawIOBase, limits: _LimitedHttp) -> None:
        self._channel, self._raw, self._limits = channel, raw, limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # what BufferedReader gives
        limits = self._limits
        if limits.bytes_left <= 0:
            raise Failure("too_large", f"the response has more than {MAX_ANSWER_BYTES} bytes")
        limits.limit(self._channel)
        count = self._raw.readinto(buffer[: limits.bytes_left]) or 0
        limits.received_ns = time.monotonic_ns()
        limits.bytes_left -= count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


_FAILURES = (OSError, http.client.HTTPException, ValueError, Failure)


def _reason(response: http.client.HTTPResponse) -> str:
    """Return what a response without success says."""
    try:
        return excerpt(response.read(EXCERPT_BYTES).decode(errors="replace"))
    except _FAILURES:
        return ""


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
