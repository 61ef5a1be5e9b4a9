"""Prices in force on each device at any instant, and the events of their changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from pydantic import TypeAdapter

from costprobe.core.money import cents
from costprobe.core.periods import utc_day
from costprobe.core.records import TOGETHER, Device, Event
from costprobe.core.units import KWH_J
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.electricity import ElectricityConfig, Intensity, tariff_at
from costprobe.pricing.plans import NO_SPOTS, Plan, Rate, Spots, device_rate


@dataclass(frozen=True, slots=True)
class Terms:
    """The price of a device and of its electricity at an instant.

    Attributes:
        rate: Hourly price of the device.
        electricity_per_j: Currency per joule at the meter, PUE included; 0 where the rate
            includes electricity or no tariff is configured. A MIG device and its board pay for
            shares of the board's energy: then it is currency per joule of the board.
        electricity_share: Share of the energy of its board that it pays for; 1 for a whole board.
    """

    rate: Rate
    electricity_per_j: float
    electricity_share: float = 1.0

    @property
    def per_s(self) -> float:
        """Currency per device-second."""
        return self.rate.per_s

    def to_document(self) -> dict[str, Any]:
        """Return the terms as JSON, with exact prices as text."""
        document: dict[str, Any] = _TERMS.dump_python(self, mode="json")
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Terms:
        """Return the terms that `to_document` wrote.

        Raises:
            ValueError: It has another shape.
        """
        return _TERMS.validate_python(document)


_TERMS: Final = TypeAdapter(Terms)


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
        """Whether the book has this device, by its UUID too: names are reused."""
        known = self._devices.get(device.name)
        if known is None or device.is_slice:
            return known == device
        return known.uuid == device.uuid

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
        per_j, share = 0.0, self._electricity_share(priced)
        if self._electricity is not None and not rate.electricity_included:
            per_j = _per_j(self._electricity, time_ns)
        return Terms(rate, share * per_j if per_j else 0.0, share)

    def electricity(self, time_ns: int) -> tuple[float, str] | None:
        """Return currency per joule of the server at UTC time_ns, PUE included, and the currency.

        Returns:
            None without a tariff or a price, or where a device's price includes its electricity.
        """
        rates = [self._own_rate(device, time_ns) for device in self._devices.values()]
        known = [rate for rate in rates if rate is not None]
        if self._electricity is None or not known or any(r.electricity_included for r in known):
            return None
        return _per_j(self._electricity, time_ns), known[0].currency

    def device(self, name: str) -> Device:
        """Return a device by its name.

        Raises:
            KeyError: No device of that name.
        """
        return self._devices[name]

    def slices_of(self, board: str) -> Sequence[Device]:
        """Return the MIG devices of a board."""
        return self._parts.get(board, ())

    def absent_terms(self, device: str, time_ns: int) -> Terms | None:
        """Return what the board of a MIG device pays while the MIG device is not there.

        Returns:
            The terms of its slices; None where a plan prices them apart, and only while in use.
        """
        planned = self._planned(self._devices[device], time_ns)
        return self._terms(device, time_ns) if planned is None else None

    def _electricity_share(self, device: Device) -> float:
        """Return the share of the energy of its board that a device pays for.

        A MIG device pays for its slices, and the board for the rest, so that the shares add up to 1.
        """
        slices, slices_of = device.slices, device.slices_of
        if not device.is_slice:
            parts = self.slices_of(device.name)
            slices_of = parts[0].slices_of if parts else 0
            slices = max(0, slices_of - sum(part.slices for part in parts))
        return slices / slices_of if slices_of else float(not device.is_slice)

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
        day = utc_day(time_ns)
        in_force = [plan for plan in reversed(self._plans) if plan.valid_from <= day]
        candidates: list[Plan] = [
            plan for plan in in_force if plan.device in (device.name, device.uuid)
        ]
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


def _per_j(electricity: ElectricityConfig, time_ns: int) -> float:
    return float(tariff_at(electricity, time_ns).metered_per_kwh) / KWH_J


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
        old_price, new_price = (cents(rate.per_hour, rate.currency) for rate in (old, new))
        unit, cause = "h", "reserved term" if has_lapsed else "price plan"
        title = f"{device} now costs {new_price} per hour"
        if has_lapsed:
            title += ": its reserved term has ended"
        detail = f"{new.source} replaced {old.source}{electricity}"
    elif electricity:
        old_price, new_price = _per_kwh(before), _per_kwh(after)
        unit, cause = "kWh", "electricity tariff"
        title = f"electricity for {device} now costs {new_price} per kWh"
        detail = "the tariff in force changed; prices include the overhead of the building (PUE)"
    else:
        return []
    return [
        Event(
            kind="price",
            severity="warning" if has_lapsed else "info",
            title=title,
            time_ns=time_ns,
            detail=detail,
            device=device,
            before=f"{old_price}/{unit}",
            after=f"{new_price}/{unit}",
            cause=cause,
        )
    ]


def _tariff_change(before: Terms, after: Terms) -> str:
    """Return the change of the electricity tariff as text; empty if it did not change."""
    # Other MIG devices are another share, not another tariff.
    is_other_share = before.electricity_share != after.electricity_share
    if is_other_share or before.electricity_per_j == after.electricity_per_j:
        return ""
    old, new = _per_kwh(before), _per_kwh(after)
    return f"; electricity, paid separately, changed from {old} to {new} per kWh"


def _per_kwh(terms: Terms) -> str:
    return cents(terms.electricity_per_j * KWH_J, terms.rate.currency)
