"""InfluxDB 2.x and 3.x, and what takes their writes: influxdb-client to /api/v2/write."""

from __future__ import annotations

import gzip
import importlib
import sys
from typing import Any, NoReturn

import urllib3

from agent.sinks.answers import judge, words_of
from agent.sinks.bounded import bounded
from agent.sinks.errors import Misconfigured, RetryLater
from agent.sinks.settings import SinkSettings

# The client's own is level 9, which takes twelve times the processor time for a quarter less.
GZIP_LEVEL = 1


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
        # What no message may hold.
        self._secrets: tuple[str, ...] = ()

    def send(self, lines: bytes) -> None:
        """Writes lines, separated by line ends.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses something in the lines.
            Misconfigured: Credentials, bucket or address are wrong.
        """
        try:
            answer = self._post(gzip.compress(lines, GZIP_LEVEL))
        except self._exception as error:
            self._refused(error)
        except urllib3.exceptions.HTTPError as error:
            raise RetryLater(f"{self._settings.url}: {words_of(error)}") from error
        except UnicodeDecodeError as error:
            raise RetryLater(f"{self._settings.url}: the answer is no text") from error
        judge(answer.status, answer.getheaders(), answer.data.encode(), self._secrets)

    def check(self) -> str:
        """Asks whether the bucket is there and we may write to it; says what it found.

        Raises:
            RetryLater: The server is away or busy.
            Rejected: It refuses even nothing.
            Misconfigured: Credentials, bucket or address are wrong.
        """
        # A lone comment is line protocol without a point, checked like any other; InfluxDB 2
        # refuses a body of no bytes.
        self.send(b"# infercost doctor")
        return f"bucket {self._settings.bucket} takes writes"

    def close(self) -> None:
        """Closes the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _post(self, body: bytes) -> Any:  # noqa: ANN401 - the client's answer
        if self._client is None:
            self._client = self._connected()
        settings, api = self._settings, self._client.api_client
        self._library.WriteService(api).post_write(
            settings.org,
            settings.bucket,
            body,
            precision="ns",
            content_encoding="gzip",
            content_type="text/plain; charset=utf-8",
        )
        return api.last_response

    def _connected(self) -> Any:  # noqa: ANN401 - the client
        settings = self._settings
        token = settings.secret() or ""
        if not token.isascii():
            raise Misconfigured("the token has characters that no HTTP header can carry")
        self._secrets = (token,) if token else ()
        client = self._library.InfluxDBClient(
            url=settings.url,
            token=token,
            org=settings.org,
            # No time at all would mean no limit at all to the client.
            timeout=max(1, int(settings.timeout_s * 1000)),
            verify_ssl=True,
            ssl_ca_cert=str(settings.ca_file) if settings.ca_file else None,
            retries=False,
            proxy=settings.proxy,
        )
        bounded(client.api_client.rest_client.pool_manager)
        return client

    def _refused(self, error: Any) -> NoReturn:  # noqa: ANN401 - the client's exception
        if not error.status:
            reason = " ".join(str(error.reason).split())
            raise Misconfigured(f"{reason}; is ca_file the server's authority?") from error
        body = error.body or ""
        try:
            judge(int(error.status), error.headers or {}, body.encode(), self._secrets)
        except Misconfigured as misconfigured:
            if misconfigured.unauthorized:
                # The token may have been rotated: the next attempt reads it anew.
                self.close()
            raise
        raise RetryLater(f"HTTP {error.status}: the client takes it for a failure") from error
