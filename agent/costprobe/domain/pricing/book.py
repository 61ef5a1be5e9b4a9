"""The price book: the plan in force for a device at any instant, present or past."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from costprobe.core.device_names import TOGETHER
from costprobe.core.records import NS_PER_S, Device
from costprobe.core.units import KWH_J
from costprobe.domain.pricing.assumed import AssumedPrices
from costprobe.domain.pricing.plans.plan import Plan, device_rate
from costprobe.domain.pricing.rate import Rate
from costprobe.domain.pricing.spot_prices import NO_SPOTS, Spots
from costprobe.domain.pricing.tariff import ElectricityConfig, metered_per_kwh

# Amounts of a rate, which are stored as text.
_AMOUNTS = ("per_hour", "low_per_hour", "high_per_hour")


@dataclass(frozen=True, slots=True)
class Terms:
    """The price of a device and of its electricity at an instant.

    Attributes:
        rate: Hourly price of the device.
        electricity_per_j: Currency per joule at the meter, PUE included; 0 where the rate
            includes electricity or no tariff is configured. A MIG device and its board pay for
            shares of the board's energy: then it is currency per joule of the board.
    """

    rate: Rate
    electricity_per_j: float

    @property
    def per_s(self) -> float:
        """Currency per device-second."""
        return self.rate.per_s

    def to_document(self) -> dict[str, Any]:
        """Return the terms as JSON, with exact prices as text."""
        parts = [[name, str(amount)] for name, amount in self.rate.parts]
        rate = {**asdict(self.rate), "parts": parts}
        for key in _AMOUNTS:
            rate[key] = None if rate[key] is None else str(rate[key])
        return {"rate": rate, "electricity_per_j": self.electricity_per_j}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Terms:
        """Return the terms that `to_document` wrote."""
        stored = document["rate"]
        parts = tuple((str(name), Decimal(amount)) for name, amount in stored.get("parts", ()))
        rate = {
            **stored,
            **{key: None if stored.get(key) is None else Decimal(stored[key]) for key in _AMOUNTS},
            "parts": parts,
            "origins": tuple(stored.get("origins", ())),
        }
        return cls(Rate(**rate), document["electricity_per_j"])


class PriceBook:
    """A history of plans: a past instant has the price of its day.

    A plan for a named device takes precedence over a plan for the host. A host's price is divided
    equally among its accelerators, or applies to its CPU if there are none. Without any plan a
    device is priced by the catalogue. The price of a MIG device is that of its slices; the price of
    slices without a MIG device stays with the board, so that the sum is the board's price.

    Args:
        plans: Configured plans, in any order.
        electricity: The tariff, where electricity is paid separately.
        devices: Every device of the host.
        assumed: The catalogue's prices, for a host without plans; None for no price then.
        spots: Returns the known spot prices by the names of their plans.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        electricity: ElectricityConfig | None,
        devices: Sequence[Device],
        assumed: AssumedPrices | None = None,
        spots: Callable[[], Spots] = lambda: NO_SPOTS,
    ) -> None:
        self._spots = spots
        self._assumed = assumed
        self._plans = sorted(plans, key=lambda plan: plan.valid_from)
        self._electricity = electricity
        self._devices = {device.name: device for device in devices}
        accelerators = {device.name for device in devices if device.is_board}
        # The devices among which the price of the host is divided.
        self._sharing = accelerators or set(self._devices)
        self._board_count = len(accelerators)
        self._parts: dict[str, list[Device]] = {}
        for device in devices:
            if device.parent:
                self._parts.setdefault(device.parent, []).append(device)

    def has(self, device: Device) -> bool:
        """Whether the book has this device; for a slice also the same UUID, as names are reused."""
        known = self._devices.get(device.name)
        return known == device if device.is_slice else known is not None

    def has_name(self, device: str) -> bool:
        """Whether the book has a device of this name."""
        return device in self._devices

    def terms(self, device: str, time_ns: int) -> Terms | None:
        """Return the terms in force for a device at UTC time_ns; None if no plan prices it then.

        A group of devices, named "gpu0+gpu1", costs the sum of its devices.

        Raises:
            KeyError: No device of that name.
        """
        terms = [self._terms(name, time_ns) for name in device.split(TOGETHER)]
        known_terms = [term for term in terms if term is not None]
        if len(known_terms) < len(terms):
            return None
        return known_terms[0] if len(known_terms) == 1 else _sum_of(known_terms)

    def _terms(self, device: str, time_ns: int) -> Terms | None:
        priced = self._devices[device]
        rate = self._own_rate(priced, time_ns)
        if rate is None:
            return None
        per_j = self._electricity_per_j(rate, time_ns)
        return Terms(rate, float(self._electricity_share(priced)) * per_j if per_j else 0.0)

    def _electricity_share(self, device: Device) -> Fraction:
        """Return the share of the energy of its board that a device pays for.

        A MIG device pays for its slices, and the board for the rest, so that the shares add up to 1.
        """
        if device.is_slice:
            return Fraction(device.slices, device.slices_of) if device.slices_of else Fraction(0)
        parts = self._parts.get(device.name, [])
        held = sum((self._electricity_share(part) for part in parts), Fraction(0))
        return max(Fraction(0), 1 - held)

    def _own_rate(self, device: Device, time_ns: int) -> Rate | None:
        """Return the rate of a device, or of its slices if its board is partitioned."""
        if device.is_slice:
            planned = self._planned(device, time_ns)
            board = self._devices.get(device.parent)
            if planned is not None or board is None:
                return planned
            board_rate = self._rate(board, time_ns)
            return board_rate and _of_slices(board_rate, device.slices, device.slices_of)
        board_rate = self._rate(device, time_ns)
        parts = self._parts.get(device.name)
        if not parts:
            return board_rate
        if board_rate is None:
            # Priced by the slice: unused slices have no price, but draw electricity.
            rates = (self._planned(part, time_ns) for part in parts)
            first = next((rate for rate in rates if rate is not None), None)
            return first and replace(first, per_hour=Decimal(0), parts=(), origins=())
        slices_of = parts[0].slices_of
        held = sum(part.slices for part in parts)
        return _of_slices(board_rate, max(0, slices_of - held), slices_of)

    def _rate(self, device: Device, time_ns: int) -> Rate | None:
        """Return the rate of a whole device."""
        planned = self._planned(device, time_ns)
        if planned is not None:
            return planned
        if self._plans or self._assumed is None:
            return None
        return self._assumed.rate(device, self._board_count, time_ns)

    def _planned(self, device: Device, time_ns: int) -> Rate | None:
        """Return the rate by the newest plan for the device: by name first, then by unit."""
        if not self._plans:
            return None
        day = _day(time_ns)
        in_force = [plan for plan in reversed(self._plans) if plan.valid_from <= day]
        candidates: list[Plan] = [plan for plan in in_force if plan.device == device.name]
        general = [plan for plan in in_force if plan.device is None]
        if device.is_slice:
            candidates += [plan for plan in general if plan.unit == "slice"]
        elif device.name in self._sharing:
            candidates += [plan for plan in general if plan.unit in ("host", "device")]
        for plan in candidates:
            quote = plan.quote(time_ns, self._spots())
            if quote is not None:
                return device_rate(plan, quote, len(self._sharing), device.slices or 1)
        return None

    def _electricity_per_j(self, rate: Rate, time_ns: int) -> float:
        electricity = self._electricity
        if rate.electricity_included or electricity is None:
            return 0.0
        return float(metered_per_kwh(electricity, time_ns)) / KWH_J


def _sum_of(terms: Sequence[Terms]) -> Terms:
    """Return the terms of a group of devices; energy is assumed to be shared equally."""
    rates = [term.rate for term in terms]
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
        low_per_hour=_bound([rate.low_per_hour for rate in rates]),
        high_per_hour=_bound([rate.high_per_hour for rate in rates]),
    )
    return Terms(rate, sum(term.electricity_per_j for term in terms) / len(terms))


def _bound(bounds: Sequence[Decimal | None]) -> Decimal | None:
    known = [bound for bound in bounds if bound is not None]
    return sum(known, Decimal(0)) if len(known) == len(bounds) else None


def _of_slices(rate: Rate, slices: int, slices_of: int) -> Rate | None:
    """Return the price of slices of a board; None if the driver did not report their number."""
    if slices_of <= 0:
        return None
    source = f"{rate.source}, {slices} of {slices_of} slices"
    return replace(rate.scaled(slices, slices_of), source=source)


def _day(time_ns: int) -> date:
    return datetime.fromtimestamp(time_ns // NS_PER_S, tz=UTC).date()
