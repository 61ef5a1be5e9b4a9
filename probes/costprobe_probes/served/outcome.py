"""Outcomes of requests, and the contract of a server client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from costprobe_probes.bounded import parse_bounded
from costprobe_probes.errors import DeviceError
from costprobe_probes.served.http import Failure, ServerConnection


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


def parse_json(content: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON per RFC 8259, without NaN.

    Raises:
        Failure: It is malformed.
    """
    try:
        return parse_bounded(content)
    except ValueError:
        raise Failure("bad_json", "the response is not JSON") from None


def query(connection: ServerConnection, method: str, path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Query an optional endpoint of the server; None if it does not answer.

    Args:
        connection: ServerConnection to the server.
        method: "GET", or "POST" with an empty object.
        path: From the server's root.
    """
    content = bytearray()

    def collect(data: bytes, _: int) -> bool:
        content.extend(data)
        return False

    try:
        connection.exchange(method, path, b"{}" if method == "POST" else None, collect)
        return parse_json(bytes(content))
    except Failure:
        return None
