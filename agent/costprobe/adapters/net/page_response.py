"""Request and response of a page; separate from the server, which is imported only if it is used."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class PageResponse(NamedTuple):
    """The response to a request for a page."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class PostRequest(NamedTuple):
    """A complete POST request.

    Attributes:
        authorization: The Authorization header; empty without one.
        body: Its body.
        client: IP address of the client.
    """

    authorization: str
    body: bytes
    client: str


def json_error(status: int, text: str, *headers: tuple[str, str]) -> PageResponse:
    """Return the response to a POST request that failed: `{"error": text}`."""
    return PageResponse(status, JSON, json.dumps({"error": text}).encode() + b"\n", headers)
