"""InfluxDB 2.x and 3.x, and what takes their writes: influxdb-client to /api/v2/write."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import urllib3

from agent.sinks.answers import judge
from agent.sinks.errors import Misconfigured, RetryLater
from agent.sinks.settings import SinkSettings


def load_client() -> Any:  # noqa: ANN401 - a module
    """The influxdb_client package, without the numpy that it would load for data frames.

    An entry of None makes an import fail as if numpy were not installed, which the client
    provides for; it saves the daemon some 12 MB, and nothing else in it uses numpy.
    """
    had = "numpy" in sys.modules
    if not had:
        sys.modules["numpy"] = None  # type: ignore[assignment] # as the import system defines it
    try:
        return importlib.import_module("influxdb_client")
    finally:
        if not had:
            del sys.modules["numpy"]


class InfluxV2:
    """Writes to one bucket.

    Args:
        settings: How to reach it.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._library = load_client()
        self._exception = importlib.import_module("influxdb_client.rest").ApiException
        self._client: Any = None
        self._write: Any = None

    def send(self, lines: bytes) -> None:
        """Writes lines, separated by line ends.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses something in the lines.
            Misconfigured: Credentials, bucket or address are wrong.
        """
        if self._client is None:
            self._connect()
        settings = self._settings
        try:
            self._write.write(bucket=settings.bucket, org=settings.org, record=lines)
        except self._exception as error:
            self._translate(error)
        except urllib3.exceptions.HTTPError as error:
            raise RetryLater(f"{type(error).__name__}: {settings.url}") from error

    def check(self) -> str:
        """Asks whether the bucket is there and we may write to it; says what it found.

        Raises:
            RetryLater: The server is away or busy.
            Misconfigured: Credentials, bucket or address are wrong.
        """
        # A lone comment is valid line protocol without a point: it is checked and writes nothing.
        self.send(b"# infercost doctor")
        return f"bucket {self._settings.bucket} takes writes"

    def close(self) -> None:
        """Closes the connection."""
        client, self._client, self._write = self._client, None, None
        if client is not None:
            client.close()

    def _connect(self) -> None:
        settings = self._settings
        self._client = self._library.InfluxDBClient(
            url=settings.url,
            token=settings.secret() or "",
            org=settings.org,
            timeout=int(settings.timeout_s * 1000),
            enable_gzip=True,
            verify_ssl=True,
            ssl_ca_cert=str(settings.ca_file) if settings.ca_file else None,
            retries=False,
        )
        options = importlib.import_module("influxdb_client.client.write_api").SYNCHRONOUS
        self._write = self._client.write_api(write_options=options)

    def _translate(self, error: Any) -> None:  # noqa: ANN401 - the client's exception
        if not error.status:
            reason = " ".join(str(error.reason).split())
            raise Misconfigured(f"TLS: {reason}; set ca_file to the server's authority") from None
        body = error.body or b""
        if isinstance(body, str):
            body = body.encode()
        try:
            judge(int(error.status), dict(error.headers or {}), body)
        except Misconfigured as misconfigured:
            if misconfigured.unauthorized:
                # The token may have been rotated: the next attempt reads it anew.
                self.close()
            raise
