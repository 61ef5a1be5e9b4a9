"""All that advisors look at: what devices and probes did, and what else they might cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal

from agent.advising.device_history import DeviceHistory
from agent.advising.probe_history import ProbeHistory
from agent.costing.money import exact
from agent.pricing.plans import Rate
from agent.units import HOUR_S, MONTH_H

# Plans by which an hour that is not used need not be paid for.
BY_THE_HOUR = ("on_demand", "spot", "assumed")


@dataclass(frozen=True, slots=True)
class Offer:
    """A reservation that could be taken.

    Attributes:
        name: What it is called.
        rates: What it asks, by the name of the device.
    """

    name: str
    rates: Mapping[str, Rate]


@dataclass(frozen=True, slots=True)
class History:
    """What is known of a host's past.

    Attributes:
        devices: By name.
        probes: Probes that were run in the plain way.
        rented_together: Names of devices that can only be given back together.
        offers: Reservations that could be taken.
        zone: Time zone of the hours of the week; None for the host's own.
    """

    devices: Mapping[str, DeviceHistory]
    probes: Sequence[ProbeHistory] = ()
    rented_together: Sequence[tuple[str, ...]] = ()
    offers: Sequence[Offer] = ()
    zone: tzinfo | None = None


def busy_s_per_month(device: DeviceHistory) -> Decimal:
    """Seconds of a month in which a device works, as it did; probes aside."""
    share = exact(device.busy_share or 0.0) * exact(device.up_share)
    return share * MONTH_H * Decimal(int(HOUR_S))


def days(count: float) -> str:
    """A number of days in words."""
    return f"{count:.1f} days"
