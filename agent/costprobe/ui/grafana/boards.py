"""The dashboards in this package, in Grafana's import format."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources


def boards() -> Mapping[str, str]:
    """Return the dashboards' JSON by file name."""
    folder = resources.files("costprobe.ui.grafana") / "dashboards"
    files = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".json")}
    return {name: files[name].read_text(encoding="utf-8") for name in sorted(files)}
