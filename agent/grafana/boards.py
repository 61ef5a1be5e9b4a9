"""The dashboards in this package, as Grafana reads them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources


def boards() -> Mapping[str, str]:
    """The dashboards' texts (JSON) by the names of their files."""
    folder = resources.files("agent.grafana") / "dashboards"
    found = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".json")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}
