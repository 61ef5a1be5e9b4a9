"""What a server of the v2 API says that it is, by the library of InfluxDB's makers.

Loaded only where an operator asks: it is 13 MB that the daemon would hold for nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from agent.sinks.bounded import bounded
from agent.sinks.settings import SinkSettings

_VERSION_CHARS_MAX = 40


def server_version(settings: SinkSettings) -> str | None:
    """The version that a server's ping answers with; None if it does not say. Sends no secret."""
    client = _load_client().InfluxDBClient(
        url=settings.url,
        token="",
        timeout=max(1, int(settings.timeout_s * 1000)),
        verify_ssl=True,
        ssl_ca_cert=str(settings.ca_file) if settings.ca_file else None,
        retries=False,
        proxy=settings.proxy,
    )
    try:
        bounded(client.api_client.rest_client.pool_manager)
        version = str(client.version())
    except Exception:  # noqa: BLE001 - it is an aside; what is wrong is told by the write itself
        return None
    finally:
        client.close()
    is_said = version.isprintable() and version != "unknown"
    return version[:_VERSION_CHARS_MAX] if is_said else None


def _load_client() -> Any:  # noqa: ANN401 - a module
    """The library, without the numpy that it would load for data frames.

    An entry of None makes an import fail as if numpy were not installed, which the library
    provides for.
    """
    had = "numpy" in sys.modules
    if not had:
        sys.modules["numpy"] = None  # type: ignore[assignment] # as the import system defines it
    try:
        return importlib.import_module("influxdb_client")
    finally:
        if not had:
            del sys.modules["numpy"]
