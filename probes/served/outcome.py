"""What becomes of a request to a server, and what a kind of server must be able to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from probes.errors import DeviceError
from probes.served.http import Connection, Failure


class ServerError(DeviceError):
    """The server cannot be used; the text says how to mend it."""


class Reply(NamedTuple):
    """An answered request; times are CLOCK_MONOTONIC ns.

    Attributes:
        start_ns: Just before its first byte was sent, on a connection that was already there.
        end_ns: When the answer was complete.
        first_token_ns: When the first piece of generated text came; None if there is no stream.
        last_token_ns: When the last one came.
        chunks: Pieces of generated text; None if there is no stream.
        tokens_in: Tokens of the prompt, as the server says; None if it does not.
        tokens_out: Tokens generated, as the server says; None if it does not.
    """

    start_ns: int
    end_ns: int
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    chunks: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


class Failed(NamedTuple):
    """A request that brought no answer to count; times are CLOCK_MONOTONIC ns.

    Not the exception itself: its context holds the frames, and those what was received.

    Attributes:
        start_ns: When it began, with its connection if that was new.
        end_ns: When it failed.
        kind: What it is counted by.
        words: What happened.
    """

    start_ns: int
    end_ns: int
    kind: str
    words: str


class ServerKind(Protocol):
    """How a kind of server is spoken to; made from a request and the path of its URL."""

    def send(self, connection: Connection) -> Reply:
        """Sends one inference and takes its answer.

        Raises:
            Failure: There is no answer to count.
        """

    def facts(self, connection: Connection) -> Mapping[str, str]:
        """What identifies the work, and what the server says of its model and version."""

    def offers(self, connection: Connection) -> list[str]:
        """Names of the models that the server offers; none if it does not say."""


def parsed(content: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """JSON as the standard has it, so without NaN.

    Raises:
        Failure: It is none.
    """
    try:
        return json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError):
        # Without the cause: its text holds what was received.
        raise Failure("bad_json", "its answer is no JSON") from None


def asked(connection: Connection, method: str, path: str) -> Any:  # noqa: ANN401 - any JSON value
    """What the server says at a path where it need not say anything; None if it does not.

    Args:
        connection: To the server.
        method: "GET", or "POST" with an empty object.
        path: From the server's root.
    """
    content = bytearray()

    def take(data: bytes, _: int) -> bool:
        content.extend(data)
        return False

    try:
        connection.exchange(method, path, b"{}" if method == "POST" else None, take)
        return parsed(bytes(content))
    except Failure:
        return None


def _refuse(constant: str) -> None:
    raise ValueError(constant)
