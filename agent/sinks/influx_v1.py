"""InfluxDB 1.x: line protocol to /write."""

from __future__ import annotations

import gzip
from urllib.parse import urlencode

import urllib3

from agent.sinks.answers import judge
from agent.sinks.errors import Misconfigured, RetryLater
from agent.sinks.settings import SinkSettings

GZIP_LEVEL = 1


class InfluxV1:
    """Writes to one database of an InfluxDB 1.x.

    Args:
        settings: How to reach it.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=1,
            cert_reqs="CERT_REQUIRED",
            ca_certs=str(settings.ca_file) if settings.ca_file else None,
            timeout=urllib3.Timeout(total=settings.timeout_s),
            retries=False,
        )

    def send(self, lines: bytes) -> None:
        """Writes lines, separated by line ends.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses something in the lines.
            Misconfigured: Credentials, database or address are wrong.
        """
        settings = self._settings
        query = {"db": settings.database or "", "precision": "ns"}
        if settings.retention_policy:
            query["rp"] = settings.retention_policy
        status, headers, body = self._request(
            "POST", f"/write?{urlencode(query)}", gzip.compress(lines, GZIP_LEVEL)
        )
        judge(status, headers, body)

    def check(self) -> str:
        """Asks whether the database is there and we may use it; says what it found.

        Raises:
            RetryLater: The server is away or busy.
            Misconfigured: Credentials, database or address are wrong.
        """
        status, headers, body = self._request("GET", "/ping", None)
        version = headers.get("X-Influxdb-Version", "unknown version")
        judge(status, headers, body)
        # An empty write is checked for its credentials and its database, and writes nothing.
        self.send(b"")
        return f"InfluxDB {version}, database {self._settings.database}"

    def close(self) -> None:
        """Closes the connection."""
        self._pool.clear()

    def _request(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[int, urllib3.HTTPHeaderDict, bytes]:
        headers = {"User-Agent": "infercost"}
        if body is not None:
            headers |= {"Content-Encoding": "gzip", "Content-Type": "text/plain; charset=utf-8"}
        password = self._settings.secret()
        if self._settings.user is not None:
            credentials = f"{self._settings.user}:{password or ''}"
            headers |= urllib3.make_headers(basic_auth=credentials)
        url = self._settings.url.rstrip("/") + path
        try:
            answer = self._pool.request(method, url, body=body, headers=headers, redirect=False)
        except urllib3.exceptions.SSLError as error:
            raise Misconfigured(f"TLS: {error}; set ca_file to the server's authority") from error
        except urllib3.exceptions.HTTPError as error:
            raise RetryLater(f"{type(error).__name__}: {self._settings.url}") from error
        return answer.status, answer.headers, answer.data
