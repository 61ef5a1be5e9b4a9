"""The input of every advisor: the history of devices and probes, and alternative prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal

from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.domain.advice.device_history import DeviceHistory
from costprobe.domain.advice.probe_history import ProbeHistory
from costprobe.domain.costing.money import exact
from costprobe.domain.pricing.rate import Rate

# Plans in which an unused hour is not billed.
BY_THE_HOUR = ("on_demand", "spot", "assumed")


@dataclass(frozen=True, slots=True)
class Offer:
    """A reservation that could be bought.

    Attributes:
        name: Display name.
        rates: Its price by device name.
    """

    name: str
    rates: Mapping[str, Rate]


@dataclass(frozen=True, slots=True)
class History:
    """The measured history of a host.

    Attributes:
        devices: By name.
        probes: Probes run without variants (cold, compiled, CUDA graph).
        rented_together: Names of devices that can only be released together.
        offers: Reservations that could be bought.
        zone: Time zone of the hours of the week; None for the host's own.
    """

    devices: Mapping[str, DeviceHistory]
    probes: Sequence[ProbeHistory] = ()
    rented_together: Sequence[tuple[str, ...]] = ()
    offers: Sequence[Offer] = ()
    zone: tzinfo | None = None


def busy_s_per_month(device: DeviceHistory) -> Decimal:
    """Return the busy seconds per month of a device, without probes, at its past utilization."""
    share = exact(device.busy_share or 0.0) * exact(device.up_share)
    return share * MONTH_H * Decimal(int(HOUR_S))


def days(count: float) -> str:
    """Format a number of days."""
    return f"{count:.1f} days"
