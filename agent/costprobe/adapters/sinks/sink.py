"""The contract of a sink: see docs/contributing/sinks.md."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Sink(ABC):
    """A destination of the series; constructed with its section of the configuration and a clock.

    `encode` and `post` are called by up to three threads at a time. The constructor does not connect:
    the first `post` does, and the first one after a failure. A sink neither buffers nor retries: the
    delivery worker posts the same points again after an error.
    """

    @abstractmethod
    def encode(self, points: bytes) -> bytes:
        """Return the body of a request.

        Args:
            points: Line protocol in UTF-8, one point a line, times in ns.
        """

    @abstractmethod
    def post(self, body: bytes) -> None:
        """Send what `encode` returned; return once it is acknowledged.

        Raises:
            RetryLater: The same body may be accepted later.
            Rejected: A part of it, or its size, will never be accepted.
            Misconfigured: Only an operator can fix it.
        """

    def check(self) -> str:
        """Test the destination without storing a point; return the result as text.

        Raises:
            RetryLater, Rejected, Misconfigured: As `post` does.
        """
        return "no check for this kind of sink"

    def close(self) -> None:  # noqa: B027 - a sink without a connection has nothing to close
        """Close the connection, if there is one. May be called twice."""
