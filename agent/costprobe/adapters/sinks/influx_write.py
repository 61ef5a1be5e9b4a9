"""What both write APIs of InfluxDB share: limits, compression and the meaning of a response."""

from __future__ import annotations

import gzip
from typing import Final

from costprobe.adapters.net.client import HttpClient
from costprobe.adapters.net.destination import is_loopback
from costprobe.adapters.net.errors import Misconfigured
from costprobe.adapters.net.limits import ExchangeLimits
from costprobe.adapters.net.status import ACCEPTED, Hints, HttpResponse, server_message
from costprobe.adapters.sinks.settings import HttpSinkConfig

# Level 1 shrinks line protocol to a tenth; level 9 needs twelve times the CPU for a quarter less.
GZIP_LEVEL: Final = 1
HINTS: Final = Hints(
    not_found="check url, api, org, and that the bucket or database exists",
    unexpected="check url and api",
)
_NO_CONTENT = 204


def http_client(config: HttpSinkConfig) -> HttpClient:
    """The client for a sink's server: one connection, which is kept."""
    limits = ExchangeLimits(step_s=config.timeout_s)
    return HttpClient(limits, ca_file=config.ca_file, proxy=config.proxy, keep=1)


def is_compressed(config: HttpSinkConfig) -> bool:
    """Whether bodies are compressed: not if they stay on this host, where copying is cheaper."""
    return config.proxy is not None or not is_loopback(config.url)


def compress(points: bytes) -> bytes:
    """The body of a compressed request."""
    return gzip.compress(points, GZIP_LEVEL)


def check_acknowledged(response: HttpResponse) -> None:
    """Check that a response with a 2xx status is a database's: each answers a write with 204.

    Raises:
        Misconfigured: It has content, as the login page of a proxy does.
    """
    if response.status in ACCEPTED and response.status != _NO_CONTENT and response.body.strip():
        message = server_message(response.body)
        raise Misconfigured(
            f"HTTP {response.status}: {message}; not the response of a database: check url"
        )
