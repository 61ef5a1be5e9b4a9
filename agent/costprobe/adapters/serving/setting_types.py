"""Types of configured values of services: addresses of metrics, and selectors of counters."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from costprobe.core.config.fields import has_port

METRICS_PATH = "/metrics"
MAX_REPLICAS = 64
_URL = re.compile(r"(https?)://([^/@\s?#]+)(/[^\s?#]*)?")
# A metric's name, perhaps with labels that it must have: name{label="value",other="value"}.
_LABEL = r'[A-Za-z_]\w*="[^"{}\\]*"'
SELECTOR = re.compile(rf"([A-Za-z_:][\w:]*)(?:\{{({_LABEL}(?:,{_LABEL})*)\}})?")


def _urls(value: object) -> object:
    """Parse one URL or several; METRICS_PATH is added to a URL without a path."""
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, list | tuple) or not all(isinstance(url, str) for url in urls):
        raise ValueError('write a URL, "http://127.0.0.1:8000/metrics", or a list of them')
    if not 1 <= len(urls) <= MAX_REPLICAS:
        raise ValueError(f"write 1 to {MAX_REPLICAS} URLs, one for each replica")
    return tuple(_with_path(url) for url in urls)


def _with_path(url: str) -> str:
    match = _URL.fullmatch(url)
    if match is None or not has_port(url) or len(url) > 500:  # noqa: PLR2004 - no real one is longer
        raise ValueError(
            "a URL is http(s)://host:port/path with a port from 1 to 65535, without user, query or"
            " fragment; a token"
            " goes into token_file"
        )
    return url if match[3] not in (None, "/") else f"{match[1]}://{match[2]}{METRICS_PATH}"


def _selector(value: object) -> object:
    if isinstance(value, str) and not SELECTOR.fullmatch(value):
        raise ValueError(
            'write the counter\'s name, or name{label="value"} where only a part of it counts'
        )
    return value


Urls = Annotated[tuple[str, ...], BeforeValidator(_urls)]
Selector = Annotated[str, BeforeValidator(_selector), Field(max_length=500)]
