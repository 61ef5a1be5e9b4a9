"""Where lines are posted: one address of one database, over a connection that is kept."""

from __future__ import annotations

import gzip
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

import urllib3

from agent.sinks.answers import words_of
from agent.sinks.bounded import pool_of
from agent.sinks.errors import Misconfigured, RetryLater
from agent.sinks.settings import SinkSettings

# The first level packs our lines ten times as tight; the ninth takes twelve times the processor
# time for a quarter less.
GZIP_LEVEL: Final = 1


class Answer:
    """What a server said.

    Attributes:
        status: HTTP status.
        headers: Names in any case.
        body: Its beginning, where it is long.
    """

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Endpoint:
    """Posts lines to one address.

    Args:
        settings: How to reach the server.
        path: Behind the settings' url.
        query: Of the address.
    """

    def __init__(self, settings: SinkSettings, path: str, query: Mapping[str, str]) -> None:
        self._settings = settings
        self._url = f"{settings.url.rstrip('/')}{path}?{urlencode(query)}"
        self._compresses = settings.proxy is not None or not is_loopback(settings.url)
        self._pool = pool_of(settings)

    def pack(self, lines: bytes) -> bytes:
        """The body of a request: compressed, unless it stays on this host."""
        return gzip.compress(lines, GZIP_LEVEL) if self._compresses else lines

    def post(self, body: bytes, authorization: str | None) -> Answer:
        """Posts a body that `pack` made; redirects are not followed.

        Raises:
            RetryLater: The server is away or does not answer in time.
            Misconfigured: It cannot prove who it is.
        """
        headers = {"User-Agent": "infercost", "Content-Type": "text/plain; charset=utf-8"}
        if self._compresses:
            headers["Content-Encoding"] = "gzip"
        if authorization is not None:
            headers["Authorization"] = authorization
        try:
            answer = self._pool.request(
                "POST", self._url, body=body, headers=headers, redirect=False
            )
        except urllib3.exceptions.SSLError as error:
            reason = words_of(error)
            raise Misconfigured(f"{reason}; is ca_file the server's authority?") from error
        except urllib3.exceptions.HTTPError as error:
            raise RetryLater(f"{self._settings.url}: {words_of(error)}") from error
        return Answer(answer.status, answer.headers, answer.data)

    def close(self) -> None:
        """Closes the connection; the next post makes another."""
        self._pool.clear()


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this one, where to compress costs more than to copy."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
