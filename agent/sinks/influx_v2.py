"""InfluxDB 2.x and 3.x, and what takes their writes: line protocol to /api/v2/write.

Without the library of InfluxDB's makers, which would hold 13 MB for the life of the daemon.
"""

from __future__ import annotations

from agent.sinks.answers import judge
from agent.sinks.bounded import AT_ONCE
from agent.sinks.endpoint import Endpoint
from agent.sinks.errors import Misconfigured
from agent.sinks.settings import SinkSettings


class InfluxV2:
    """Writes to one bucket.

    Args:
        settings: How to reach it.
    """

    at_once = AT_ONCE

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        query = {"org": settings.org, "bucket": settings.bucket or "", "precision": "ns"}
        self._endpoint = Endpoint(settings, "/api/v2/write", query)

    def pack(self, lines: bytes) -> bytes:
        """The body of a request from lines, separated by line ends."""
        return self._endpoint.pack(lines)

    def post(self, body: bytes) -> None:
        """Writes what `pack` made.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses something in the lines.
            Misconfigured: Credentials, bucket or address are wrong.
        """
        # Read anew each time: it may have been rotated.
        token = self._settings.secret() or ""
        if not token.isascii():
            raise Misconfigured("the token has characters that no HTTP header can carry")
        answer = self._endpoint.post(body, f"Token {token}" if token else None)
        judge(answer.status, answer.headers, answer.body, [token] if token else [])

    def check(self) -> str:
        """Asks whether the bucket is there and we may write to it; says what it found.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses even nothing.
            Misconfigured: Credentials, bucket or address are wrong.
        """
        # A lone comment is line protocol without a point, checked like any other; InfluxDB 2
        # refuses a body of no bytes.
        self.post(self.pack(b"# infercost doctor"))
        return f"bucket {self._settings.bucket} takes writes"

    def close(self) -> None:
        """Closes the connection."""
        self._endpoint.close()
