"""The prices of a device at an instant, and the events of their changes."""

from __future__ import annotations

from dataclasses import dataclass

from costprobe.core.device_names import TOGETHER
from costprobe.core.money_text import money
from costprobe.core.records import Event
from costprobe.core.units import KWH_J
from costprobe.domain.pricing.book import Terms
from costprobe.domain.pricing.carbon import Intensity


@dataclass(frozen=True, slots=True)
class Prices:
    """Inputs of a device's cost and carbon at an instant.

    Attributes:
        terms: The price terms in force; None without a price.
        terms_before: The previous terms of the device; None before the first.
        intensity: Carbon intensity of its electricity; None if unknown.
    """

    terms: Terms | None
    terms_before: Terms | None
    intensity: Intensity | None


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
