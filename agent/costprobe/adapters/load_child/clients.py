"""Clients of inference servers: each request has one deadline and one limit on the bytes it reads.

They have HTTP of their own, on a socket: each piece of a response is stamped right after the read that
received it, because times to the first token and between tokens are differences of these instants.
"""

from __future__ import annotations

import http.client
import io
import json
import select
import socket
import ssl
import time
import urllib.parse
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from costprobe_probes.wire import DeviceError, ProbeConfigError, digest

from costprobe.adapters.host.redaction import outside_text, read_secret
from costprobe.adapters.load_child.prompts import Prompt, Prompts
from costprobe.core.outside import bounded_json, check_regular

PORTS: Final = {"http": 80, "https": 443}
# Shorter than the excerpt of a response, so that an echoed token is always found and removed.
MAX_TOKEN_CHARS: Final = 2048
MAX_EXCERPT_CHARS: Final = 200
EXCERPT_BYTES: Final = 4096
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
READ_BYTES: Final = 64 * 1024
MAX_EVENT_BYTES: Final = 1024 * 1024
DRAIN_S: Final = 0.2
MAX_TOKENS: Final = 10_000_000
MAX_MODEL_NAMES: Final = 10
# Paths of the OpenAI API.
PATHS: Final = {"chat": "/chat/completions", "completions": "/completions"}
# Keys of generated text in a chunk; reasoning is generated text too.
_TEXTS: Final = {
    "chat": ("content", "reasoning_content", "reasoning", "refusal"),
    "completions": ("text",),
}
# Keys of tool calls in a chunk of a chat; an answer may consist of nothing else.
_TOOLS: Final = ("tool_calls", "function_call")
_IDENTITY: Final = ("root", "owned_by", "max_model_len")
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


class Reply(NamedTuple):
    """An answered request; times are CLOCK_MONOTONIC ns.

    Attributes:
        start_ns: Just before its first byte was sent, on an open connection.
        end_ns: When the response was complete.
        first_token_ns: Arrival of the first chunk of generated text; None without a stream.
        last_token_ns: Arrival of the last chunk.
        chunks: Chunks of generated text; None without a stream.
        tokens_in: Prompt tokens by the server's count; None without one.
        tokens_out: Generated tokens by the server's count; None without one.
        cached_tokens: Those of tokens_in that a prefix cache answered; None if it does not count
            them.
        arrivals_ns: Arrival of each chunk; None if they are not kept.
        scheduled_ns: Instant at which an open loop scheduled it; None in a closed loop.
    """

    start_ns: int
    end_ns: int
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    chunks: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens: int | None = None
    arrivals_ns: Sequence[int] | None = None
    scheduled_ns: int | None = None

    @property
    def begin_ns(self) -> int:
        """When its user began to wait: the scheduled instant, or the sending in a closed loop."""
        return self.start_ns if self.scheduled_ns is None else self.scheduled_ns


class Failed(NamedTuple):
    """A failed request; times are CLOCK_MONOTONIC ns.

    The exception itself is not kept: its traceback references frames with received data.

    Attributes:
        start_ns: Start, including a new connection.
        end_ns: Time of the failure.
        kind: Kind of the failure.
        message: Reason, for the operator.
        scheduled_ns: Instant at which an open loop scheduled it; None in a closed loop.
    """

    start_ns: int
    end_ns: int
    kind: str
    message: str
    scheduled_ns: int | None = None

    @property
    def begin_ns(self) -> int:
        """When its user began to wait: the scheduled instant, or the sending in a closed loop."""
        return self.start_ns if self.scheduled_ns is None else self.scheduled_ns


@dataclass(frozen=True)
class ServerTarget:
    """A server to probe.

    Attributes:
        host: Name or address.
        port: TCP port.
        path: The URL's path without a slash at its end.
        context: TLS settings; None for plain HTTP.
        token: Bearer token; None to send none.
    """

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None
    token: str | None = field(repr=False)

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


def parse_target(url: str, ca_file: str | None, token_file: str | None) -> ServerTarget:
    """Parse the address of a server and read its files.

    Args:
        url: http:// or https://, host, port, and the base path of its API.
        ca_file: Certificates to trust instead of the system's.
        token_file: File with a bearer token.

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
        raise ProbeConfigError(
            "url must not have a user, query or fragment: set token_file for a token"
        )
    if not _is_plain(host) or not _is_plain(parts.path or "/"):
        raise ProbeConfigError("url must be printable ASCII without spaces")
    context = _tls_context(ca_file) if scheme == "https" else None
    token = None if token_file is None else _read_token(token_file)
    return ServerTarget(host, port or PORTS[scheme], parts.path.rstrip("/"), context, token)


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    try:
        if ca_file is not None:
            check_regular(ca_file)
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        reason = "contains no certificates" if isinstance(error, ssl.SSLError) else error.strerror
        raise ProbeConfigError(f"ca_file {ca_file}: cannot be used ({reason})") from None


def _read_token(path: str) -> str:
    try:
        token = read_secret(Path(path), "token")
    except ValueError as error:
        raise ProbeConfigError(f"token_file {error}") from None
    # A library would quote a token that is not a valid header in its error.
    if len(token) > MAX_TOKEN_CHARS or not _is_plain(token):
        raise ProbeConfigError(f"token_file {path}: must contain a token of one line of ASCII")
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

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[Exchange, Any]:
        """Send a request; return its response, which is JSON.

        Raises:
            Failure: There is no complete response, its status is not 2xx, or it is not JSON.
        """
        content = bytearray()

        def collect(data: bytes, _: int) -> bool:
            content.extend(data)
            return False

        exchange = self.exchange(method, path, body, collect)
        return exchange, parse_json(bytes(content))

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
        request: tuple[str, str, bytes | None],
        consume: Consumer,
    ) -> Exchange:
        method, path, body = request
        limits = channel.limits
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body, {**self._headers, **headers})
        start_ns = channel.flush()
        with connection.getresponse() as response:
            self._server = response.getheader("Server") or ""
            if response.status // 100 != 2:  # noqa: PLR2004 - the class of success
                raise Failure(f"http_{response.status}", _reason(response))
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


# Sends one inference and reads its response; raises Failure if there is no valid one.
Request = Callable[[ServerConnection], Reply]


class ServerClient(Protocol):
    """A client of one kind of server, constructed from a request and the path of its URL."""

    def next_request(self) -> Request:
        """Return the next inference, ready to be sent."""

    def prepare(self, connection: ServerConnection) -> None:
        """Send what a load curve needs to know before its first request; most clients need nothing.

        Raises:
            Failure: There is no valid response.
        """

    def facts(self, connection: ServerConnection) -> Mapping[str, str]:
        """Return the identity of the workload, with model and version as reported by the server."""

    def cache_hits(self, connection: ServerConnection) -> int | None:
        """Return the requests that the server's response cache has answered; None if unknown."""

    def model_names(self, connection: ServerConnection) -> list[str]:
        """Return the models of the server; empty if it does not list them."""


class EventStream:
    """Split a stream into events; buffer one incomplete event of at most MAX_EVENT_BYTES."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._bytes = 0

    def feed(self, content: bytes) -> list[bytes]:
        """Add received bytes; return the data of the events that they complete.

        Raises:
            Failure: A line or an event is too long.
        """
        events = []
        *complete, incomplete = content.split(b"\n")
        for end in complete:
            line = b"".join([*self._line, end]).rstrip(b"\r")
            self._line.clear()
            self._count(len(end))
            event = self._add_line(line)
            if event is not None:
                events.append(event)
        self._line.append(incomplete)
        self._count(len(incomplete))
        return events

    def _add_line(self, line: bytes) -> bytes | None:
        """Add a line; return the data of the event that it ends, if any."""
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value[1:] if value.startswith(b" ") else value)
            return None
        event = b"\n".join(self._data) if self._data else None
        self._data.clear()
        self._bytes = 0
        return event

    def _count(self, size: int) -> None:
        # At least one byte for each piece: empty pieces take memory too.
        self._bytes += size + 1
        if self._bytes > MAX_EVENT_BYTES:
            raise Failure("too_large", f"an event has more than {MAX_EVENT_BYTES} bytes")


class OpenAiClient:
    """Send prompts to one model.

    Args:
        request: With api, model, prompt, vary_prompt, max_tokens and seed; with `load` of a load
            curve the arrival of each chunk is kept, too.
        base_path: Path of the URL, with or without the API's /v1.

    Raises:
        ProbeConfigError: No such API, or the file of prompts cannot be used.
    """

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        self._api, self._model = request["api"], request["model"]
        self._prompts = Prompts(request)
        self._keeps_arrivals = bool(request.get("load"))
        if self._api not in PATHS:
            raise ProbeConfigError(f"no api {self._api!r}; known: {', '.join(sorted(PATHS))}")
        self._root = base_path.removesuffix("/v1")
        self._path = self._root + "/v1" + PATHS[self._api]
        self._seed = request["seed"]

    def next_request(self) -> Request:
        """Return the request of the next prompt, which reads the stream of tokens."""
        return partial(self._answer, self._body(self._prompts.next()))

    def prepare(self, connection: ServerConnection) -> None:
        """Learn how the server counts tokens, with two requests, if prompts have given lengths.

        Raises:
            Failure: There is no valid response.
        """
        self._prompts.calibrate(
            lambda prompt: self._answer(self._body(prompt), connection).tokens_in
        )

    def _answer(self, body: bytes, connection: ServerConnection) -> Reply:
        stream = _TokenStream(self._api, keeps_arrivals=self._keeps_arrivals)
        exchange = connection.exchange("POST", self._path, body, stream.consume)
        return stream.reply(exchange)

    def _body(self, prompt: Prompt) -> bytes:
        is_chat = self._api == "chat"
        messages = {"messages": [{"role": "user", "content": prompt.text}]}
        body = {
            "model": self._model,
            **(messages if is_chat else {"prompt": prompt.text}),
            "max_tokens": prompt.max_tokens,
            # An extension of vLLM, SGLang and others.
            **({"ignore_eos": True} if prompt.ignores_end else {}),
            "temperature": 0,
            "seed": self._seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(body).encode()

    def cache_hits(self, connection: ServerConnection) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: the API has no response cache; answers report cached tokens themselves."""
        return None

    def facts(self, connection: ServerConnection) -> dict[str, str]:
        """Return the identity of the workload, with model and version as reported by the server."""
        facts = {"api": self._api, **self._prompts.facts()}
        for entry in self._listed_models(connection):
            if entry["id"] == self._model:
                identity = {name: entry.get(name) for name in _IDENTITY}
                facts.update((k, excerpt(str(v))) for k, v in identity.items() if v)
        version = connection.query("GET", f"{self._root}/version")
        if isinstance(version, dict) and isinstance(version.get("version"), str):
            facts["server_version"] = excerpt(version["version"])
        return facts

    def model_names(self, connection: ServerConnection) -> list[str]:
        """Return the models that the server lists."""
        entries = self._listed_models(connection)[:MAX_MODEL_NAMES]
        return [excerpt(entry["id"]) for entry in entries]

    def _listed_models(self, connection: ServerConnection) -> list[dict[str, Any]]:
        answer = connection.query("GET", f"{self._root}/v1/models")
        listed = answer.get("data") if isinstance(answer, dict) else None
        entries = listed if isinstance(listed, list) else []
        return [x for x in entries if isinstance(x, dict) and isinstance(x.get("id"), str)]


class _TokenStream:
    """Parse the events of a response and record when generated text arrived."""

    def __init__(self, api: str, *, keeps_arrivals: bool) -> None:
        self._texts = _TEXTS[api]
        self._arrivals = array("q") if keeps_arrivals else None
        self._is_chat = api == "chat"
        self._events = EventStream()
        self._chunks = 0
        self._first_ns = self._last_ns = 0
        self._tokens: tuple[int, int] | None = None
        self._cached_tokens: int | None = None
        self._is_finished = False

    def consume(self, data: bytes, now_ns: int) -> bool:
        for event in self._events.feed(data):
            if event.strip() == b"[DONE]":
                self._is_finished = True
                return True
            self._chunk(parse_json(event), now_ns)
        return False

    def reply(self, exchange: Exchange) -> Reply:
        if not self._is_finished:
            raise Failure("truncated", "the stream of tokens was truncated")
        if not self._chunks:
            raise Failure("no_tokens", "the model generated nothing for this prompt")
        tokens_in, tokens_out = self._tokens or (None, None)
        return Reply(
            exchange.start_ns,
            exchange.end_ns,
            self._first_ns,
            self._last_ns,
            self._chunks,
            tokens_in,
            tokens_out,
            self._cached_tokens,
            arrivals_ns=self._arrivals,
        )

    def _chunk(self, chunk: object, now_ns: int) -> None:
        if not isinstance(chunk, dict):
            raise Failure("bad_answer", "an event of the stream is not an object")
        if chunk.get("error"):
            raise Failure("server_error", "the server reported an error within the stream")
        choices = chunk.get("choices") or [{}]
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise Failure("bad_answer", "an event of the stream has no choices")
        piece = choice.get("delta") if self._is_chat else choice
        if isinstance(piece, dict) and self._is_generated(piece):
            self._first_ns = self._first_ns or now_ns
            self._last_ns = now_ns
            self._chunks += 1
            if self._arrivals is not None:
                self._arrivals.append(now_ns)
        # Not every server ends with [DONE].
        self._is_finished = self._is_finished or choice.get("finish_reason") is not None
        if isinstance(chunk.get("usage"), dict):
            self._tokens = _tokens(chunk["usage"])
            self._cached_tokens = _cached_tokens(chunk["usage"])

    def _is_generated(self, piece: dict[str, Any]) -> bool:
        if any(_is_text(piece.get(name)) for name in self._texts):
            return True
        return self._is_chat and any(piece.get(name) for name in _TOOLS)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _tokens(usage: dict[str, Any]) -> tuple[int, int] | None:
    """Return tokens in and out; None if the server does not count generated tokens."""
    tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if tokens_in is None or tokens_out is None or tokens_out == 0:
        return None
    counts = _count(tokens_in), _count(tokens_out)
    if counts[0] is None or counts[1] is None:
        raise Failure("bad_answer", "the usage object has no token counts")
    return counts[0], counts[1]


def _cached_tokens(usage: dict[str, Any]) -> int | None:
    """Return the prompt tokens that a prefix cache answered; None if the server does not count them."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return _count(cached)


def _count(value: Any) -> int | None:  # noqa: ANN401 - any JSON value
    """Return a count of tokens, None if it is none; some servers write 7.0 for 7."""
    is_number = type(value) in (int, float) and 0 <= value <= MAX_TOKENS
    return round(value) if is_number else None


class KserveClient:
    """Send fixed tensors to one model.

    Args:
        request: Request with model, inputs, and version if it is fixed.
        base_path: Path of the URL, with or without the protocol's /v2.
    """

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        self._root = base_path if base_path.endswith("/v2") else base_path + "/v2"
        self._model = f"{self._root}/models/{urllib.parse.quote(request['model'], safe='')}"
        self._version = str(request.get("version") or "")
        if self._version:
            self._model += f"/versions/{urllib.parse.quote(self._version, safe='')}"
        self._inputs = digest(json.dumps(request["inputs"], sort_keys=True).encode())
        self._body = json.dumps({"inputs": request["inputs"]}).encode()

    def next_request(self) -> Request:
        """Return the same request each time: it sends the tensors and validates those of the response."""
        return self._send

    def _send(self, connection: ServerConnection) -> Reply:
        exchange, answer = connection.request("POST", f"{self._model}/infer", self._body)
        _check_tensors(answer)
        return Reply(exchange.start_ns, exchange.end_ns)

    def prepare(self, connection: ServerConnection) -> None:
        """Do nothing: each request has the same tensors."""

    def facts(self, connection: ServerConnection) -> dict[str, str]:
        """Return the identity of the workload, with model and version as reported by the server."""
        facts = {"inputs": self._inputs, "version": self._version or "server default"}
        server = connection.query("GET", self._root)
        model = connection.query("GET", self._model)
        for answer, names in (
            (server, {"name": "server_name", "version": "server_version"}),
            (model, {"platform": "platform", "versions": "model_versions"}),
        ):
            if isinstance(answer, dict):
                values = {fact: answer.get(name) for name, fact in names.items()}
                facts.update((k, excerpt(str(v))) for k, v in values.items() if v)
        return facts

    def cache_hits(self, connection: ServerConnection) -> int | None:
        """Return the hits of Triton's response cache, from its statistics extension."""
        answer = connection.query("GET", f"{self._model}/stats")
        entries = answer.get("model_stats") if isinstance(answer, dict) else None
        if not isinstance(entries, list):
            return None
        counts = [_cache_hits(entry) for entry in entries]
        known_counts = [count for count in counts if count is not None]
        return sum(known_counts) if known_counts else None

    def model_names(self, connection: ServerConnection) -> list[str]:
        """Return the models in the server's repository, if it supports that extension."""
        listed = connection.query("POST", f"{self._root}/repository/index")
        entries = listed[:MAX_MODEL_NAMES] if isinstance(listed, list) else []
        names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        return [excerpt(name) for name in names if isinstance(name, str)]


def _cache_hits(entry: object) -> int | None:
    """Return the cache hits in the statistics of one version of a model."""
    for name in ("inference_stats", "cache_hit", "count"):
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry if type(entry) is int else None


def _check_tensors(answer: object) -> None:
    """Raise Failure unless the response has tensors whose lengths match their shapes."""
    outputs = answer.get("outputs") if isinstance(answer, dict) else None
    if not isinstance(outputs, list) or not outputs:
        raise Failure("bad_answer", "the response has no outputs")
    for output in outputs:
        if not isinstance(output, dict) or not isinstance(output.get("name"), str):
            raise Failure("bad_answer", "an output of the response has no name")
        shape, data = output.get("shape"), output.get("data")
        if not isinstance(shape, list) or not isinstance(data, list):
            raise Failure("bad_answer", "an output of the response has no shape or no data")
        if _length(data) != _product(shape):
            raise Failure("bad_answer", "the length of an output does not match its shape")


def _product(shape: list[Any]) -> int:
    product = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise Failure("bad_answer", "an output of the response has an invalid shape")
        product *= size
    return product


def _length(data: list[Any]) -> int:
    """Count the elements of a flat or nested tensor; the depth of JSON is bounded."""
    if not data or not isinstance(data[0], list):
        return len(data)  # fast path: the server waits for its next request
    return sum(_length(x) if isinstance(x, list) else 1 for x in data)
