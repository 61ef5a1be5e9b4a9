"""Incidents from their stored rows, and whether the daemon that wrote them is running."""

from __future__ import annotations

import os
from collections.abc import Iterable
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
