"""The response of a page; separate from the server, which is imported only if it is used."""

from __future__ import annotations

from typing import Final, NamedTuple

TEXT: Final = "text/plain; charset=utf-8"


class PageResponse(NamedTuple):
    """The response to a request for a page."""

    status: int
    content_type: str
    body: bytes
