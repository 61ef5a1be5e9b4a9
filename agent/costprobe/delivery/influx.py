"""Sinks for InfluxDB 1, 2 and 3, and compatible databases.

InfluxDB 1.x takes line protocol at /write; 2.x, 3.x and compatible databases take it at
/api/v2/write. Both APIs share limits, compression and checks of responses.

influxdb-client sends through our HTTP client: requests with limits, and errors without secrets.
The library needs 13 MB, so it is imported when a client is constructed.
"""

from __future__ import annotations

import gzip
import importlib
import io
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlencode

from pydantic import Field

from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.http.access import (
    Destination,
    ExchangeLimits,
    Token,
    WithPassword,
    WithToken,
    basic,
    is_loopback,
)
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import (
    ACCEPTED,
    MAX_MESSAGE_CHARS,
    DeliveryError,
    Hints,
    HttpResponse,
    Misconfigured,
    Rejected,
    json_object,
    raise_for_status,
    server_message,
)
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S
from costprobe.delivery.contract import HttpSinkConfig, Sink

if TYPE_CHECKING:
    import urllib3


# Level 1 compresses line protocol to a tenth; level 9 saves a quarter of that for 12 times the CPU.
GZIP_LEVEL: Final = 1
HINTS: Final = Hints(
    not_found="check url, api, org, and that the bucket or database exists",
    unexpected="check url and api",
)
_NO_CONTENT = 204
_OWN_HEADERS = {"Content-Encoding", "User-Agent"}
_API_PATH = "/api/v2/"
_WRITE_PATH = "/api/v2/write"
_QUERY_PATH = "/api/v2/query"
_NO_SUCH_POLICY = b"retention policy not found"
_VERSION_CHARS_MAX = 40
# "partial write: points beyond retention policy dropped=3"; 2.x adds words before and after it.
_PARTIAL = re.compile(
    r"(?:[a-z ]+: )?partial write: .* dropped=(\d{1,9})(?: for database: .*)?", re.DOTALL
)


def http_client(config: HttpSinkConfig) -> HttpClient:
    """Return the client for a sink's server, with a persistent connection for each request in flight."""
    limits = ExchangeLimits(step_s=config.timeout_s)
    return HttpClient(
        limits,
        ca_file=config.ca_file,
        proxy=config.proxy,
        keep=2,
        further_headers=config.sent_headers,
    )


class HttpSink(Sink):
    """A sink that posts to one URL.

    Args:
        config: Its section of the configuration.
        clock: For a Retry-After date.
        url: The URL.
    """

    def __init__(self, config: HttpSinkConfig, clock: Clock, url: str) -> None:
        # For a server on this host, compression costs more than copying.
        self._is_compressed = config.proxy is not None or not is_loopback(config.url)
        self._clock = clock
        self._url = url
        self._http = http_client(config)

    def encode(self, points: bytes) -> bytes:
        """Return the body of a request."""
        return gzip.compress(points, GZIP_LEVEL) if self._is_compressed else points

    def _request(
        self, headers: Mapping[str, str], content_type: str, body: bytes
    ) -> tuple[HttpResponse, float, bool]:
        """Send a body; return the response, the UTC in s of it, and whether it came by TLS."""
        own = {"Content-Type": content_type}
        if self._is_compressed:
            own["Content-Encoding"] = "gzip"
        destination = Destination.parse(self._url)
        response = self._http.request("POST", destination, {**headers, **own}, body)
        return response, self._clock.time_ns() / NS_PER_S, destination.is_tls

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def _check_response(response: HttpResponse, now_s: float, *, is_tls: bool, is_write: bool) -> None:
    """Check the response to a request; the errors are those of `Sink.post`.

    A partial write has the server's count of rejected points; InfluxDB 2.0 answers it with 500. All
    databases acknowledge a write with 204: a response with content is that of another server, such
    as the login page of a proxy.
    """
    if is_write and response.status not in ACCEPTED:
        document = json_object(response.body) or {}
        partial = _PARTIAL.fullmatch(str(document.get("message") or document.get("error")))
        # InfluxDB 3 lists the rejected lines, each with its error.
        lines = document.get("data")
        lines = lines if isinstance(lines, list) else []
        if partial or lines:
            reason = f"HTTP {response.status}: {server_message(response.body)}"
            if lines and isinstance(lines[0], dict):
                reason += f": {outside_text(str(lines[0].get('error_message')), MAX_MESSAGE_CHARS)}"
            dropped = int(partial[1]) if partial else len(lines)
            raise Rejected(reason + response.via, dropped=dropped)
    raise_for_status(response, now_s=now_s, hints=HINTS, is_tls=is_tls)
    if is_write and response.status != _NO_CONTENT and response.body.strip():
        message = server_message(response.body)
        raise Misconfigured(
            f"HTTP {response.status}: {message}; not the response of a database: check url"
            f"{response.via}"
        )


class InfluxClient:
    """A client of the v2 API of one server.

    Its methods raise the errors of `Sink.post`; the library's own errors do not occur, because the
    status of each response is checked before the library processes it.

    Args:
        config: How to reach the server.
        org: Organization of writes.
        clock: For a Retry-After date.
        http: Sends the requests; None for a client of its own.

    Attributes:
        library: The `InfluxDBClient`, for its APIs of buckets, authorizations, tasks and queries.
        models: The package with the classes of their requests.
    """

    def __init__(
        self, config: HttpSinkConfig, org: str, clock: Clock, http: HttpClient | None = None
    ) -> None:
        self.models = _load_library()
        self._transport = _Transport(http or http_client(config), clock)
        self.library = self.models.InfluxDBClient(url=config.url.rstrip("/"), token="", org=org)
        self.library.api_client.rest_client.pool_manager = self._transport
        write_api = importlib.import_module("influxdb_client.client.write_api")
        self._write_api = self.library.write_api(write_options=write_api.SYNCHRONOUS)

    def use_token(self, token: str) -> None:
        """Set the token of future requests, in ASCII; empty for a server without tokens."""
        headers = self.library.api_client.default_headers
        # In one assignment each: another thread may be sending.
        if token:
            headers["Authorization"] = f"Token {token}"
        else:
            headers.pop("Authorization", None)

    def write(self, bucket: str, body: bytes, *, is_compressed: bool) -> None:
        """Write line protocol, times in ns.

        Args:
            bucket: The bucket.
            body: Line protocol, optionally compressed with gzip.
            is_compressed: Whether it is compressed.
        """
        self._transport.writes_gzip = is_compressed
        self._write_api.write(bucket, record=body)

    def version(self) -> str | None:
        """Return the version that the server reports; None if it reports none."""
        version = str(self.library.version())
        return None if version == "unknown" else version

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._transport.clear()


class _Transport:
    """Replaces the urllib3 pool in influxdb-client.

    Attributes:
        writes_gzip: Whether the bodies of writes are compressed. The library would compress at
            level 9, and in the thread that waits for the server.
    """

    def __init__(self, http: HttpClient, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self.writes_gzip = False

    def request(
        self,
        method: str,
        url: str,
        body: bytes | str | None = None,
        fields: Sequence[tuple[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
        **_options: Any,  # noqa: ANN401 - the library's timeout and the like, which are ours here
    ) -> urllib3.HTTPResponse:
        """Send a request as urllib3's pool does; raises for every status but 2xx."""
        import urllib3  # noqa: PLC0415 - the first request loads it

        destination = Destination.parse(f"{url}?{urlencode(fields)}" if fields else url)
        content = body.encode() if isinstance(body, str) else body
        is_write = _WRITE_PATH in url
        passed_headers = {k: v for k, v in (headers or {}).items() if k not in _OWN_HEADERS}
        if is_write and self.writes_gzip:
            passed_headers["Content-Encoding"] = "gzip"
        response = self._http.request(method, destination, passed_headers, content)
        now_s = self._clock.time_ns() / NS_PER_S
        is_tls = destination.is_tls
        _check_response(response, now_s, is_tls=is_tls, is_write=is_write)
        is_object = is_write or _QUERY_PATH in url or json_object(response.body) is not None
        if _API_PATH in url and not is_object:
            size = f" of at most {len(response.body)} bytes" if response.is_truncated else ""
            raise Misconfigured(f"{destination.name}: the response is not a JSON object{size}")
        return urllib3.HTTPResponse(
            # The library decodes every body as UTF-8.
            body=io.BytesIO(response.body.decode(errors="replace").encode()),
            headers=response.headers,
            status=response.status,
            preload_content=False,
        )

    def clear(self) -> None:
        """Close the connection; named as the library requires."""
        self._http.close()


def _load_library() -> Any:  # noqa: ANN401 - a module
    """Import influxdb-client without numpy, which it uses only for data frames and needs 12 MB.

    An entry of None makes the import of numpy fail as if it were not installed, which the library
    supports.
    """
    had_numpy = "numpy" in sys.modules
    if not had_numpy:
        sys.modules["numpy"] = None  # type: ignore[assignment] # as the import system defines it
    try:
        return importlib.import_module("influxdb_client")
    finally:
        if not had_numpy:
            del sys.modules["numpy"]


class InfluxV1Config(WithPassword, HttpSinkConfig):
    """A database of InfluxDB 1.x."""

    api: Literal["v1"] = Field(description="InfluxDB 1.x.", examples=["v1"])
    database: str = Field(description="Database.", examples=["costprobe"])
    retention_policy: str | None = Field(
        None,
        description="Retention policy; by default that of the database.",
        examples=["autogen"],
    )


class InfluxV1(HttpSink):
    """Writes to one database.

    Args:
        config: Its section of the configuration.
        clock: For a Retry-After date.
    """

    def __init__(self, config: InfluxV1Config, clock: Clock) -> None:
        self._config = config
        query = {"db": config.database, "precision": "ns"}
        if config.retention_policy:
            query["rp"] = config.retention_policy
        super().__init__(config, clock, f"{config.url.rstrip('/')}/write?{urlencode(query)}")

    def post(self, body: bytes) -> None:
        """Write what `encode` returned; raises as `Sink.post` does."""
        self._write(body)

    def check(self) -> str:
        """Write nothing, which the server checks for credentials, database and retention policy."""
        version = self._write(self.encode(b"")).get("x-influxdb-version")
        # VictoriaMetrics sends this header, too: it does not prove that the server is InfluxDB.
        server = f" (the server reports InfluxDB {version})" if version else ""
        return f"database {self._config.database} accepts writes{server}"

    def _write(self, body: bytes) -> Mapping[str, str]:
        user = self._config.user
        headers = {} if user is None else basic(user, self._config.password)
        response, now_s, is_tls = self._request(headers, "text/plain; charset=utf-8", body)
        if _NO_SUCH_POLICY in response.body:
            # InfluxDB responds with 500, but a retry cannot succeed.
            policy = self._config.retention_policy
            raise Misconfigured(
                f"HTTP {response.status}: no retention policy {policy}; create it, or remove"
                " retention_policy"
            )
        _check_response(response, now_s, is_tls=is_tls, is_write=True)
        return response.headers


class InfluxV2Config(WithToken, HttpSinkConfig):
    """A bucket of InfluxDB 2.x, a database of 3.x, or VictoriaMetrics."""

    api: Literal["v2"] = Field(
        description='"v2" for InfluxDB 2.x, 3.x and VictoriaMetrics; "v1" for InfluxDB 1.x.',
        examples=["v2"],
    )
    org: str = Field("", description="Organization.", examples=["ml"])
    bucket: str = Field(description="Bucket, or database of 3.x.", examples=["costprobe"])
    token: Token | None = Field(
        None,
        description="Location of a token that may write.",
        examples=["file:/etc/costprobe/influxdb.token"],
    )


class InfluxV2(HttpSink):
    """Writes to one bucket, through influxdb-client's write API.

    Args:
        config: Its section of the configuration.
        clock: For a Retry-After date.
    """

    def __init__(self, config: InfluxV2Config, clock: Clock) -> None:
        super().__init__(config, clock, config.url)
        self._config = config
        self._client = InfluxClient(config, config.org, clock, self._http)

    def post(self, body: bytes) -> None:
        """Write what `encode` returned; raises as `Sink.post` does."""
        token = self._config.token
        self._client.use_token("" if token is None else token.read_ascii())
        self._client.write(self._config.bucket, body, is_compressed=self._is_compressed)

    def check(self) -> str:
        """Write a comment, which the server checks for its token and bucket like any other line."""
        # InfluxDB 2 rejects an empty body.
        try:
            self.post(self.encode(b"# costprobe doctor"))
        except Misconfigured as error:
            # InfluxDB 1.6 has no such API: the message includes its version.
            raise Misconfigured(
                error.reason + self._claimed_version(), unauthorized=error.unauthorized
            ) from None
        return f"bucket {self._config.bucket} accepts writes{self._claimed_version()}"

    def _claimed_version(self) -> str:
        version = None
        # The problem is reported by the result of the write.
        with suppress(DeliveryError):
            version = self._client.version()
        shown = outside_text(version or "", _VERSION_CHARS_MAX)
        return f" (the server reports InfluxDB {shown})" if shown else ""
