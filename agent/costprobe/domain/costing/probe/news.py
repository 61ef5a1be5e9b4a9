"""Events for changes of software or board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costprobe.core.records import BOARD, Event, ProbeResult


def software_event(
    result: ProbeResult, before: Mapping[str, Any], now: Mapping[str, Any], time_ns: int
) -> Event:
    """Return the event of changed software or another board.

    Args:
        result: The first run after the change.
        before: Names and versions of the previous run's software; its board's identity as BOARD.
        now: The same of this run.
        time_ns: UTC in ns of the end of the steady-state window.
    """
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    changed_part = (
        "another board" if changed == [BOARD] else f"other software: {', '.join(changed)}"
    )
    return Event(
        kind="software",
        severity="info",
        title=f"{result.probe} on {result.device} runs on {changed_part}",
        time_ns=time_ns,
        detail="latency, energy and cost before and after are not comparable",
        device=result.device,
        subject={"probe": result.probe},
        before=", ".join(f"{key} {before.get(key, 'none')}" for key in changed),
        after=", ".join(f"{key} {now.get(key, 'none')}" for key in changed),
        cause=", ".join(changed),
    )
