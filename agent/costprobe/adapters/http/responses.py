"""Responses of the pages, and their errors."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

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


def text_error(
    status: int, text: str, headers: tuple[tuple[str, str], ...], *, is_json: bool
) -> PageResponse:
    """Return the response to a request that is not handled."""
    if is_json:
        return json_error(status, text, *headers)
    return PageResponse(status, TEXT, f"{text}\n".encode(), headers)


class CachedPage:
    """A page, rendered by one thread at a time and cached for a short time.

    Args:
        path: Its path, for the log.
        make: Renders it; an exception is answered with 500 and logged.
        wait_s: Timeout in s of a wait for a page that is being rendered for another client.
        fresh_s: Maximum age in s of the cached page.
    """

    def __init__(
        self, path: str, make: Callable[[], PageResponse], wait_s: float, fresh_s: float
    ) -> None:
        self._path = path
        self._make = make
        self._wait_s = wait_s
        self._fresh_s = fresh_s
        self._lock = Lock()
        self._made: PageResponse | None = None
        self._made_s = 0.0

    def answer(self) -> PageResponse:
        """Return the cached page, or render it."""
        if not self._lock.acquire(timeout=self._wait_s):
            return PageResponse(503, TEXT, b"the page is still being rendered\n")
        try:
            if self._made is None or time.monotonic() - self._made_s > self._fresh_s:
                self._made, self._made_s = self._make(), time.monotonic()
        except Exception:
            logger.exception("page %s failed", self._path)
            return PageResponse(
                500, TEXT, b"the page could not be rendered; see the daemon's log\n"
            )
        else:
            return self._made
        finally:
            self._lock.release()
