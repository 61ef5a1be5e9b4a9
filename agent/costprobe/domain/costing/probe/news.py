"""Events for changes of price, tariff, software or board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costprobe.core.device_names import TOGETHER
from costprobe.core.money_text import money
from costprobe.core.records import BOARD, Event, ProbeResult
from costprobe.core.units import KWH_J
from costprobe.domain.pricing.book import Terms


def price_events(
    device: str, before: Terms | None, after: Terms | None, time_ns: int
) -> list[Event]:
    """Return an event if a device's hardware price or electricity tariff changed.

    The end of a reserved term is an event even if the price stays the same. A group of devices
    ("gpu0+gpu1") has no events, because each of its devices has them.

    Args:
        device: Name of the device.
        before: The previous terms; None if there were none.
        after: The terms in force; None if there are none.
        time_ns: UTC in ns at which the change was detected.
    """
    if before is None or after is None or before == after or TOGETHER in device:
        return []
    old, new = before.rate, after.rate
    has_lapsed = new.is_lapsed and not old.is_lapsed
    electricity = _tariff_change(before, after)
    if old.price != new.price or has_lapsed:
        title = f"{device} now costs {money(new.per_hour, new.currency)} per hour"
        if has_lapsed:
            title += ": its reserved term has ended"
        return [
            Event(
                kind="price",
                severity="warning" if has_lapsed else "info",
                title=title,
                time_ns=time_ns,
                detail=f"{new.source} replaced {old.source}{electricity}",
                device=device,
                before=f"{money(old.per_hour, old.currency)}/h",
                after=f"{money(new.per_hour, new.currency)}/h",
                cause="reserved term" if has_lapsed else "price plan",
            )
        ]
    if not electricity:
        return []
    old_kwh, new_kwh = _per_kwh(before), _per_kwh(after)
    return [
        Event(
            kind="price",
            severity="info",
            title=f"electricity for {device} now costs {new_kwh} per kWh",
            time_ns=time_ns,
            detail="the tariff in force changed; prices include the overhead of the building (PUE)",
            device=device,
            before=f"{old_kwh}/kWh",
            after=f"{new_kwh}/kWh",
            cause="electricity tariff",
        )
    ]


def _tariff_change(before: Terms, after: Terms) -> str:
    """Return the change of the electricity tariff as text; empty if it did not change."""
    if before.electricity_per_j == after.electricity_per_j:
        return ""
    old, new = _per_kwh(before), _per_kwh(after)
    return f"; electricity, paid separately, changed from {old} to {new} per kWh"


def _per_kwh(terms: Terms) -> str:
    return money(terms.electricity_per_j * KWH_J, terms.rate.currency)


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
