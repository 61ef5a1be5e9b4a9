"""The price book: which plan is in force for a device at an instant, now or in the past."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from agent.config_price import ElectricityConfig, PlanConfig
from agent.model import NS_PER_S, Device
from agent.pricing.assumed import assumed_rate
from agent.pricing.plans import Rate, device_rate, quote
from agent.pricing.spot import NO_SPOTS, Spots
from agent.pricing.tariff import metered_per_kwh
from agent.units import KWH_J

# Between the names of devices that work as one.
TOGETHER = "+"


@dataclass(frozen=True, slots=True)
class Terms:
    """All that money needs to know about a device at an instant.

    Attributes:
        rate: The device's hourly price.
        electricity_per_j: Currency per joule at the meter, PUE included; 0 where the rate
            includes electricity or no tariff is configured.
    """

    rate: Rate
    electricity_per_j: float

    @property
    def per_s(self) -> float:
        """Currency per device-second."""
        return self.rate.per_s

    def to_document(self) -> dict[str, Any]:
        """The terms as JSON can hold them, the price exact."""
        parts = [[name, str(amount)] for name, amount in self.rate.parts]
        rate = {**asdict(self.rate), "per_hour": str(self.rate.per_hour), "parts": parts}
        return {"rate": rate, "electricity_per_j": self.electricity_per_j}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Terms:
        """The terms that `to_document` wrote."""
        kept = document["rate"]
        parts = tuple((str(name), Decimal(amount)) for name, amount in kept.get("parts", ()))
        rate = {
            **kept,
            "per_hour": Decimal(kept["per_hour"]),
            "parts": parts,
            "origins": tuple(kept.get("origins", ())),
        }
        return cls(Rate(**rate), document["electricity_per_j"])


class PriceBook:
    """Plans with the days from which they hold; the past keeps the price of its day.

    A plan that names a device goes before the host's; the host's is divided equally over the
    host's accelerators, or falls to its CPU where there are none. With no plan at all the
    device is priced by `assumed_rate`, and says so. A MIG device takes its share of its board's
    slices, and what no MIG device holds stays with the board, so that the sum is the board's price.

    Args:
        plans: The operator's plans, in any order.
        electricity: The tariff, where electricity is paid for apart.
        devices: Every device of the host.
        logical_cpus: vCPUs of the host, for the assumed price of a CPU.
        spots: Prices of the spot plans, by their names, as they are known when they are asked for.
    """

    def __init__(
        self,
        plans: Sequence[PlanConfig],
        electricity: ElectricityConfig | None,
        devices: Sequence[Device],
        logical_cpus: int = 1,
        spots: Callable[[], Spots] = lambda: NO_SPOTS,
    ) -> None:
        self._spots = spots
        self._logical_cpus = logical_cpus
        self._plans = sorted(plans, key=lambda plan: plan.valid_from)
        self._electricity = electricity
        self._devices = {device.name: device for device in devices}
        accelerators = {device.name for device in devices if device.kind == "gpu"}
        self._sharing = accelerators or set(self._devices)

    def terms(self, device: str, time_ns: int) -> Terms | None:
        """The terms in force for a device at UTC time_ns; None if nothing prices it then.

        Several devices that work as one, named "gpu0+gpu1", cost what each of them costs.

        Raises:
            KeyError: No device of that name.
        """
        terms = [self._terms(name, time_ns) for name in device.split(TOGETHER)]
        known = [found for found in terms if found is not None]
        if len(known) < len(terms):
            return None
        return known[0] if len(known) == 1 else _together(known)

    def _terms(self, device: str, time_ns: int) -> Terms | None:
        found = self._devices[device]
        rate = self._own_rate(found, time_ns)
        if rate is None:
            return None
        # A MIG device's energy is its board's, of which it pays its share.
        share = found.slices / found.slices_of if found.slices_of else 1.0
        return Terms(rate, share * self._electricity_per_j(rate, time_ns))

    def _own_rate(self, device: Device, time_ns: int) -> Rate | None:
        """The rate of what a device holds: all of a whole one, some slices of a divided one."""
        if device.kind == "mig":
            own = self._planned(device, time_ns)
            board = self._devices.get(device.parent)
            if own is not None or board is None:
                return own
            whole = self._rate(board, time_ns)
            return whole and _of_slices(whole, device.slices, device.slices_of)
        whole = self._rate(device, time_ns)
        parts = [part for part in self._devices.values() if part.parent == device.name]
        if whole is None or not parts:
            return whole
        slices_of = parts[0].slices_of
        held = sum(part.slices for part in parts)
        return _of_slices(whole, max(0, slices_of - held), slices_of)

    def _rate(self, device: Device, time_ns: int) -> Rate | None:
        """The rate of a whole device."""
        found = self._planned(device, time_ns)
        if found is not None:
            return found
        return None if self._plans else assumed_rate(device, self._logical_cpus)

    def _planned(self, device: Device, time_ns: int) -> Rate | None:
        """The rate by the newest plan that is for the device: by name, else by what it is."""
        if not self._plans:
            return None
        day = _day(time_ns)
        in_force = [plan for plan in reversed(self._plans) if plan.valid_from <= day]
        wanted: list[PlanConfig] = [plan for plan in in_force if plan.device == device.name]
        general = [plan for plan in in_force if plan.device is None]
        if device.kind == "mig":
            wanted += [plan for plan in general if plan.of_what == "slice"]
        elif device.name in self._sharing:
            wanted += [plan for plan in general if plan.of_what in ("host", "device")]
        for plan in wanted:
            asked = quote(plan, time_ns, self._spots())
            if asked is not None:
                return device_rate(plan, asked, len(self._sharing), device.slices or 1)
        return None

    def _electricity_per_j(self, rate: Rate, time_ns: int) -> float:
        electricity = self._electricity
        if rate.electricity_included or electricity is None:
            return 0.0
        return float(metered_per_kwh(electricity, time_ns)) / KWH_J


def _together(terms: Sequence[Terms]) -> Terms:
    """The terms of devices that work as one; their energy is taken to be shared equally."""
    rates = [found.rate for found in terms]
    plans = dict.fromkeys(rate.plan for rate in rates)
    rate = Rate(
        plan="+".join(plans),
        currency=rates[0].currency,
        per_hour=sum((rate.per_hour for rate in rates), Decimal(0)),
        electricity_included=all(rate.electricity_included for rate in rates),
        source="; ".join(dict.fromkeys(rate.source for rate in rates)),
        parts=tuple(part for rate in rates for part in rate.parts),
        is_stale=any(rate.is_stale for rate in rates),
        origins=tuple(origin for rate in rates for origin in rate.origins),
        is_lapsed=any(rate.is_lapsed for rate in rates),
    )
    return Terms(rate, sum(found.electricity_per_j for found in terms) / len(terms))


def _of_slices(rate: Rate, slices: int, slices_of: int) -> Rate | None:
    """The price of some of a board's slices; None where the driver did not tell how many."""
    if slices_of <= 0:
        return None
    return replace(
        rate,
        per_hour=rate.per_hour * slices / slices_of,
        parts=tuple((name, amount * slices / slices_of) for name, amount in rate.parts),
        source=f"{rate.source}, {slices} of {slices_of} slices",
    )


def _day(time_ns: int) -> date:
    return datetime.fromtimestamp(time_ns // NS_PER_S, tz=UTC).date()
