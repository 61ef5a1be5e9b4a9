"""What a page of the daemon says; apart from the server, which is loaded only where it serves."""

from __future__ import annotations

from typing import Final, NamedTuple

TEXT: Final = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What a page says."""

    status: int
    content_type: str
    body: bytes
