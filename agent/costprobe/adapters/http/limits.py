"""The limits of an HTTP exchange."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """The limits of one exchange: a request and its response.

    Attributes:
        step_s: Time limit of each step in s: to connect (with the TLS handshake), to send the
            request, and to receive the response.
        total_s: Time limit of all steps together in s; None for no such limit.
        max_body_bytes: A longer body is truncated, and the connection closed.
        max_header_bytes: A longer response header fails, and so does a body whose framing (chunk
            sizes, trailers) is longer than that.
    """

    step_s: float
    total_s: float | None = None
    max_body_bytes: int = 64 << 10
    max_header_bytes: int = 64 << 10
