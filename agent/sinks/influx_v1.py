"""InfluxDB 1.x: line protocol to /write."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from agent.sinks.answers import judge
from agent.sinks.bounded import AT_ONCE
from agent.sinks.endpoint import Endpoint
from agent.sinks.errors import Misconfigured
from agent.sinks.settings import SinkSettings

_NO_SUCH_POLICY = b"retention policy not found"


class InfluxV1:
    """Writes to one database of an InfluxDB 1.x.

    Args:
        settings: How to reach it.
    """

    at_once = AT_ONCE

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        query = {"db": settings.database or "", "precision": "ns"}
        if settings.retention_policy:
            query["rp"] = settings.retention_policy
        self._endpoint = Endpoint(settings, "/write", query)

    def pack(self, lines: bytes) -> bytes:
        """The body of a request from lines, separated by line ends."""
        return self._endpoint.pack(lines)

    def post(self, body: bytes) -> None:
        """Writes what `pack` made.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses something in the lines.
            Misconfigured: Credentials, database or address are wrong.
        """
        self._write(body)

    def check(self) -> str:
        """Asks whether the database is there and we may use it; says what it found.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses even nothing.
            Misconfigured: Credentials, database or address are wrong.
        """
        # An empty write is checked for its credentials, its database and its retention policy.
        version = self._write(self.pack(b"")).get("X-Influxdb-Version")
        # VictoriaMetrics says so too: it is the server's word, not our finding.
        server = f" (the server says it is InfluxDB {version})" if version else ""
        return f"database {self._settings.database} takes writes{server}"

    def close(self) -> None:
        """Closes the connection."""
        self._endpoint.close()

    def _write(self, body: bytes) -> Mapping[str, str]:
        authorization, secrets = self._credentials()
        answer = self._endpoint.post(body, authorization)
        if _NO_SUCH_POLICY in answer.body:
            # InfluxDB calls it an error of its own (500), but it will not pass by itself.
            policy = self._settings.retention_policy
            raise Misconfigured(
                f"HTTP {answer.status}: no retention policy {policy}; create or drop it"
            )
        judge(answer.status, answer.headers, answer.body, secrets)
        return answer.headers

    def _credentials(self) -> tuple[str | None, list[str]]:
        """The header, and what no message may hold of it."""
        if self._settings.user is None:
            return None, []
        # In UTF-8, as RFC 7617 has it and InfluxDB reads it.
        password = self._settings.secret() or ""
        pair = base64.b64encode(f"{self._settings.user}:{password}".encode()).decode()
        # No password at all is nothing to hide.
        return f"Basic {pair}", [password, pair] if password else []
