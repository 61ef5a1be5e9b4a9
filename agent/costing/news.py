"""What changed in the terms or under a probe, told as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.model import BOARD, Event, ProbeResult
from agent.pricing.book import Terms
from agent.units import KWH_J


def price_events(device: str, before: Terms, after: Terms, time_ns: int) -> list[Event]:
    """What changed between two terms: the hardware's price, or the electricity's.

    The end of a reserved term is told even where the list price is what was paid before.

    Args:
        device: Name of the device.
        before: The terms that held before.
        after: The terms that hold now.
        time_ns: UTC in ns at which they were seen to differ.
    """
    old, new = before.rate, after.rate
    has_lapsed = new.is_lapsed and not old.is_lapsed
    electricity = _electricity_words(before, after)
    if old.price != new.price or has_lapsed:
        title = f"{device} now costs {new.per_hour:.6g} {new.currency} per hour"
        if has_lapsed:
            title += ": its reserved term is over"
        return [
            Event(
                kind="price",
                severity="warning" if has_lapsed else "info",
                title=title,
                time_ns=time_ns,
                detail=f"{old.source} was followed by {new.source}{electricity}",
                device=device,
                before=f"{old.per_hour:.6g} {old.currency}/h",
                after=f"{new.per_hour:.6g} {new.currency}/h",
                cause="reserved term" if has_lapsed else "price plan",
            )
        ]
    if not electricity:
        return []
    per_kwh = [terms.electricity_per_j * KWH_J for terms in (before, after)]
    return [
        Event(
            kind="price",
            severity="info",
            title=f"electricity for {device} now costs {per_kwh[1]:.6g} {new.currency} per kWh",
            time_ns=time_ns,
            detail="the tariff in force changed; the building's share (PUE) is in the price",
            device=device,
            before=f"{per_kwh[0]:.6g} {old.currency}/kWh",
            after=f"{per_kwh[1]:.6g} {new.currency}/kWh",
            cause="electricity tariff",
        )
    ]


def _electricity_words(before: Terms, after: Terms) -> str:
    """How the price of electricity moved, to be told beside the hardware's; empty if it did not."""
    if before.electricity_per_j == after.electricity_per_j:
        return ""
    old, new = (terms.electricity_per_j * KWH_J for terms in (before, after))
    return f"; electricity paid apart went from {old:.6g} to {new:.6g} per kWh"


def software_event(
    result: ProbeResult, before: Mapping[str, Any], now: Mapping[str, Any], time_ns: int
) -> Event:
    """What a probe runs on other than before.

    Args:
        result: The run that showed it.
        before: Names and versions of the run before, and as BOARD the identity of its board.
        now: The same of this run.
        time_ns: UTC in ns of the region's end.
    """
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    what = "another board" if changed == [BOARD] else f"other software: {', '.join(changed)}"
    return Event(
        kind="software",
        severity="info",
        title=f"{result.probe} on {result.device} runs on {what}",
        time_ns=time_ns,
        detail="latency, energy and cost before and after are not of the same thing",
        device=result.device,
        subject={"probe": result.probe},
        before=", ".join(f"{key} {before.get(key, 'none')}" for key in changed),
        after=", ".join(f"{key} {now.get(key, 'none')}" for key in changed),
        cause=", ".join(changed),
    )
