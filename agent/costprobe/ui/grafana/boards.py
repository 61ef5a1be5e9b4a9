"""The dashboards in this package, in Grafana's import format."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Final

INFLUXDB: Final = "influxdb"
# Kinds of data source that the dashboards query.
EDITIONS: Final = (INFLUXDB, "prometheus")


def boards(edition: str = INFLUXDB) -> Mapping[str, str]:
    """Return the dashboards' JSON by file name.

    Args:
        edition: One of EDITIONS.
    """
    folder = resources.files("costprobe.ui.grafana") / "dashboards"
    if edition != INFLUXDB:
        folder /= edition
    files = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".json")}
    return {name: files[name].read_text(encoding="utf-8") for name in sorted(files)}
