"""Shared by both write APIs of InfluxDB: limits, compression and checks of responses."""

from __future__ import annotations

import gzip
from typing import Final

from costprobe.adapters.net.client import HttpClient
from costprobe.adapters.net.destination import is_loopback
from costprobe.adapters.net.errors import Misconfigured
from costprobe.adapters.net.further_headers import FurtherHeaders
from costprobe.adapters.net.limits import ExchangeLimits
from costprobe.adapters.net.status import ACCEPTED, Hints, HttpResponse, server_message
from costprobe.adapters.sinks.settings import HttpSinkConfig

# Level 1 compresses line protocol to a tenth; level 9 saves a quarter of that for 12 times the CPU.
GZIP_LEVEL: Final = 1
HINTS: Final = Hints(
    not_found="check url, api, org, and that the bucket or database exists",
    unexpected="check url and api",
)
_NO_CONTENT = 204


def http_client(config: HttpSinkConfig) -> HttpClient:
    """Return the client for a sink's server, with a persistent connection for each request in flight."""
    limits = ExchangeLimits(step_s=config.timeout_s)
    return HttpClient(
        limits,
        ca_file=config.ca_file,
        proxy=config.proxy,
        keep=2,
        further_headers=FurtherHeaders(config),
    )


def is_compressed(config: HttpSinkConfig) -> bool:
    """Return whether bodies are compressed; they are not for a server on this host."""
    return config.proxy is not None or not is_loopback(config.url)


def compress(points: bytes) -> bytes:
    """Compress the body of a request."""
    return gzip.compress(points, GZIP_LEVEL)


def check_acknowledged(response: HttpResponse) -> None:
    """Check that a 2xx response is that of a database: all of them respond with 204.

    Raises:
        Misconfigured: The response has content, such as the login page of a proxy.
    """
    if response.status in ACCEPTED and response.status != _NO_CONTENT and response.body.strip():
        message = server_message(response.body)
        raise Misconfigured(
            f"HTTP {response.status}: {message}; not the response of a database: check url"
        )
