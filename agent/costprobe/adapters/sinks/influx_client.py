"""influxdb-client over our HTTP client: requests with limits, and errors without secrets.

The library needs 13 MB, so it is imported when a client is constructed.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from costprobe.adapters.net.destination import Destination
from costprobe.adapters.net.errors import Misconfigured
from costprobe.adapters.net.status import json_object, raise_for_status
from costprobe.adapters.sinks.influx_write import HINTS, check_acknowledged, http_client
from costprobe.adapters.sinks.settings import HttpSinkConfig
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

if TYPE_CHECKING:
    import urllib3

_OWN_HEADERS = {"Content-Encoding", "User-Agent"}
_API_PATH = "/api/v2/"
_WRITE_PATH = "/api/v2/write"
_QUERY_PATH = "/api/v2/query"


class InfluxClient:
    """A client of the v2 API of one server.

    Its methods raise the errors of `Sink.post`; the library's own errors do not occur, because the
    status of each response is checked before the library processes it.

    Args:
        config: How to reach the server.
        org: Organization of writes.
        clock: For a Retry-After date.

    Attributes:
        library: The `InfluxDBClient`, for its APIs of buckets, authorizations, tasks and queries.
        models: The package with the classes of their requests.
    """

    def __init__(self, config: HttpSinkConfig, org: str, clock: Clock) -> None:
        self.models = _load_library()
        self._transport = _Transport(config, clock)
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
        self._transport.secrets = (token,) if token else ()

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
        secrets: Secrets of the requests, which no message may contain.
        writes_gzip: Whether the bodies of writes are compressed. The library would compress at
            level 9, and in the thread that waits for the server.
    """

    def __init__(self, config: HttpSinkConfig, clock: Clock) -> None:
        self._http = http_client(config)
        self._clock = clock
        self.secrets: Sequence[str] = ()
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
        import urllib3  # noqa: PLC0415 - loaded by the first request

        destination = Destination.parse(f"{url}?{urlencode(fields)}" if fields else url)
        content = body.encode() if isinstance(body, str) else body
        is_write = _WRITE_PATH in url
        passed_headers = {k: v for k, v in (headers or {}).items() if k not in _OWN_HEADERS}
        if is_write and self.writes_gzip:
            passed_headers["Content-Encoding"] = "gzip"
        response = self._http.request(method, destination, passed_headers, content)
        raise_for_status(
            response,
            now_s=self._clock.time_ns() / NS_PER_S,
            secrets=self.secrets,
            hints=HINTS,
            is_tls=destination.is_tls,
        )
        if is_write:
            check_acknowledged(response)
        elif _API_PATH in url and _QUERY_PATH not in url and json_object(response.body) is None:
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
