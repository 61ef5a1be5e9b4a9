"""Incidents from their stored rows, and whether the daemon that wrote them is running."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from costprobe.core.records import Point

STALE_S: Final = 45.0


def incidents_of(rows: Iterable[Point]) -> list[dict[str, Any]]:
    """Return incidents from rows of `alert` in time order, without those that never fired.

    Times are UTC in ns; `resolved_ns` is None while it is firing.
    """
    incidents: dict[str, dict[str, Any]] = {}
    for row in rows:
        identity = str(row.fields.get("id", ""))
        state = row.tags.get("state")
        incident = incidents.setdefault(
            identity,
            {"id": identity, "name": row.tags.get("rule"), "fired_ns": None, "resolved_ns": None},
        )
        incident["labels"] = {
            tag: value for tag, value in row.tags.items() if tag not in {"rule", "state"}
        }
        incident |= {
            name: row.fields.get(name) for name in ("severity", "summary", "detail", "cause")
        }
        if state == "firing" and incident["fired_ns"] is None:
            incident["fired_ns"] = row.time_ns
        if state == "resolved":
            incident["resolved_ns"] = row.time_ns
    return [incident for incident in incidents.values() if incident["fired_ns"] is not None]


def is_running(status: dict[str, Any]) -> bool:
    """Return whether the status is recent and the daemon's process exists (or is not visible)."""
    if status["state"] != "running" or status["age_s"] > STALE_S:
        return False
    try:
        os.kill(status["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def hidden_changes(
    detectable: Iterable[Mapping[str, Any]], device: str = "", probe: str = ""
) -> list[str]:
    """Return a line for each probe whose noise hides changes that a rule of the configuration asks for.

    Args:
        detectable: The smallest change that each series shows.
        device: Only of this device's probe, without its name; empty for all.
        probe: Name of that probe.
    """
    worst: dict[tuple[str, str], Mapping[str, Any]] = {}
    for series in detectable:
        least_pct, asked_pct = series["min_detectable_pct"], series["at_least_pct"]
        if least_pct is None or asked_pct is None or least_pct <= asked_pct:
            continue
        key = series["device"], series["probe"]
        if (not device or key == (device, probe)) and (
            key not in worst or least_pct > worst[key]["min_detectable_pct"]
        ):
            worst[key] = series
    return [
        ("" if device else f"{of_probe} on {of_device}: ")
        + f"changes of the {series['metric']} below {math.ceil(series['min_detectable_pct'])} % are within"
        f" the noise; rule {series['rule']} asks for {series['at_least_pct']:g} %"
        for (of_device, of_probe), series in worst.items()
    ]


def noisy_services(found: Iterable[Mapping[str, Any]], service: str = "") -> list[str]:
    """Return a line for each service of which no change is found.

    Args:
        found: The services, with their noise.
        service: Only this one, without its name; empty for all.
    """
    return [
        ("" if service else f"{one['service']}: ")
        + f"its work takes {one['noise_pct']:.0f} % more or less by itself at the same load: no drift of"
        " it is found"
        for one in found
        if service in ("", one["service"])
    ]
