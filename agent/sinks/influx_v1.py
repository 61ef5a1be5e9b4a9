"""InfluxDB 1.x: line protocol to /write."""

from __future__ import annotations

import base64
import gzip
from typing import Any
from urllib.parse import urlencode

import urllib3

from agent.sinks.answers import judge, words_of
from agent.sinks.bounded import bounded
from agent.sinks.errors import Misconfigured, RetryLater
from agent.sinks.settings import SinkSettings

# The first level packs our lines ten times as tight; the ninth takes twelve times the processor
# time for a quarter less.
GZIP_LEVEL = 1
_NO_SUCH_POLICY = b"retention policy not found"


class InfluxV1:
    """Writes to one database of an InfluxDB 1.x.

    Args:
        settings: How to reach it.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        query = {"db": settings.database or "", "precision": "ns"}
        if settings.retention_policy:
            query["rp"] = settings.retention_policy
        self._url = f"{settings.url.rstrip('/')}/write?{urlencode(query)}"
        options: dict[str, Any] = {
            "num_pools": 1,
            "maxsize": 1,
            "cert_reqs": "CERT_REQUIRED",
            "ca_certs": str(settings.ca_file) if settings.ca_file else None,
            "timeout": urllib3.Timeout(total=settings.timeout_s),
            "retries": False,
        }
        self._pool = bounded(
            urllib3.ProxyManager(settings.proxy, **options)
            if settings.proxy
            else urllib3.PoolManager(**options)
        )

    def send(self, lines: bytes) -> None:
        """Writes lines, separated by line ends.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses something in the lines.
            Misconfigured: Credentials, database or address are wrong.
        """
        self._write(lines)

    def check(self) -> str:
        """Asks whether the database is there and we may use it; says what it found.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses even nothing.
            Misconfigured: Credentials, database or address are wrong.
        """
        # An empty write is checked for its credentials, its database and its retention policy.
        version = self._write(b"").get("X-Influxdb-Version")
        # VictoriaMetrics says so too: it is the server's word, not our finding.
        server = f" (the server says it is InfluxDB {version})" if version else ""
        return f"database {self._settings.database} takes writes{server}"

    def close(self) -> None:
        """Closes the connection."""
        self._pool.clear()

    def _write(self, lines: bytes) -> urllib3.HTTPHeaderDict:
        secrets: list[str] = []
        status, headers, body = self._post(gzip.compress(lines, GZIP_LEVEL), secrets)
        if _NO_SUCH_POLICY in body:
            # InfluxDB calls it an error of its own (500), but it will not pass by itself.
            policy = self._settings.retention_policy
            raise Misconfigured(f"HTTP {status}: no retention policy {policy}; create or drop it")
        judge(status, headers, body, secrets)
        return headers

    def _post(self, body: bytes, secrets: list[str]) -> tuple[int, urllib3.HTTPHeaderDict, bytes]:
        headers = {
            "User-Agent": "infercost",
            "Content-Encoding": "gzip",
            "Content-Type": "text/plain; charset=utf-8",
        }
        if self._settings.user is not None:
            # In UTF-8, as RFC 7617 has it and InfluxDB reads it.
            password = self._settings.secret() or ""
            pair = base64.b64encode(f"{self._settings.user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
            # What the server may repeat of it; no password at all is nothing to hide.
            secrets += [password, pair] if password else []
        try:
            answer = self._pool.request(
                "POST", self._url, body=body, headers=headers, redirect=False
            )
        except urllib3.exceptions.SSLError as error:
            reason = words_of(error)
            raise Misconfigured(f"{reason}; is ca_file the server's authority?") from error
        except urllib3.exceptions.HTTPError as error:
            raise RetryLater(f"{self._settings.url}: {words_of(error)}") from error
        return answer.status, answer.headers, answer.data
