"""Cost allocation: divides a device's cost among its users, in parts that add up to it exactly.

The cost of probing is deducted first. The rest is divided among the services that claim the device:
by their busy time, if it is known for all of them; otherwise by the configured shares; otherwise it
is the unallocated remainder. The only service of a device bears all of its cost, idle time included.
A service's part is split into busy and idle by the device's busy share of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

from costprobe.core.money import divided, exact, total_of
from costprobe.core.schema import Part
from costprobe.core.units import percent

# With a larger share of probing, the rest of a window is too short for a serving cost.
PROBED_MOST = Fraction(1, 2)
Basis = Literal["alone", "busy_time", "share", "none"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A service's claim to a device.

    Attributes:
        service: Name of the service.
        busy_s: Seconds in which its processes used the device; None if unknown.
        share: Its configured share of the device; None if not configured.
    """

    service: str
    busy_s: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Cost and use of a device in a window.

    Attributes:
        device: Name of the device.
        duration_s: Length of the window in seconds.
        hardware: Currency for the device without electricity; None without a price.
        energy: Currency for its electricity; 0 if the price includes it, None if the energy is
            unknown.
        busy_s: Seconds in which it was busy; None if unknown.
        other_busy_s: Busy seconds of processes that belong to no service and no probe.
        probing_s: Seconds of probing.
        probing_energy: Currency for the electricity of probing; None to allocate it by time.
        idle_energy: Currency for electricity in idle time; None to allocate it by time.
        claims: Claims of services.
        is_unheld: Whether it represents a board's unused slices.
        currency: ISO 4217 code of the amounts.
    """

    device: str
    duration_s: float
    hardware: Decimal | None
    energy: Decimal | None
    busy_s: float | None = None
    other_busy_s: float = 0.0
    probing_s: float = 0.0
    probing_energy: Decimal | None = None
    idle_energy: Decimal | None = None
    claims: tuple[Claim, ...] = ()
    is_unheld: bool = False
    currency: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a device's cost.

    Attributes:
        device: Name of the device.
        service: Name of the service that bears it; "" for none.
        part: Its purpose; "held" is busy and idle time that cannot be separated.
        hardware: Currency for the device without electricity.
        energy: Currency for electricity.
        currency: ISO 4217 code of both.
        device_s: Seconds of the device that it pays for.
    """

    device: str
    service: str
    part: Part
    hardware: Decimal
    energy: Decimal
    currency: str = ""
    device_s: float = 0.0

    @property
    def cost(self) -> Decimal:
        """Currency for device and electricity."""
        return total_of([self.hardware, self.energy])


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of a device's cost.

    Attributes:
        device: Name of the device.
        lines: The parts, which add up to the device's cost.
        basis: The basis of the division among its services.
        problems: Reason for each service whose part is unknown.
    """

    device: str
    lines: tuple[Line, ...]
    basis: Basis
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def allocate(use: DeviceUse) -> Allocation:
    """Allocate a device's cost in a window.

    Args:
        use: Cost and use of the device; times are clipped to the window.

    Returns:
        No lines if the device's cost is unknown.
    """
    names = [claim.service for claim in use.claims]
    if use.hardware is None or use.energy is None:
        problem = f"the cost of {use.device} is unknown"
        return Allocation(use.device, (), "none", dict.fromkeys(names, problem))
    if use.is_unheld:
        lines = (_line(use, "", "idle", (use.hardware, use.energy), _fraction(use.duration_s)),)
        return Allocation(use.device, lines if use.hardware or use.energy else (), "none")
    probing, remaining = _without_probing(use, use.hardware, use.energy)
    weights, basis, problems = _weights(use)
    probed = _share(use.probing_s, use.duration_s)
    if probed > PROBED_MOST:
        problem = f"probing took {percent(float(probed))} of {use.device}'s window; lengthen window"
        problems = dict.fromkeys(names, problem)
    hardware = divided(remaining.hardware, list(weights.values()))
    energy = divided(remaining.energy, list(weights.values()))
    parts = [probing] if probing.hardware or probing.energy else []
    idle = _idle_shares(use, remaining)
    unit_s = _fraction(use.duration_s) * (1 - probed) / sum(weights.values())
    for (service, weight), held, drawn in zip(weights.items(), hardware, energy, strict=True):
        time_s = weight * unit_s
        if not service:
            parts.append(_line(use, "", "unallocated", (held, drawn), time_s))
        elif idle is None:
            parts.append(_line(use, service, "held", (held, drawn), time_s))
        else:
            busy_held, idle_held = divided(held, [1 - idle[0], idle[0]])
            busy_drawn, idle_drawn = divided(drawn, [1 - idle[1], idle[1]])
            busy_s, idle_s = (1 - idle[0]) * time_s, idle[0] * time_s
            parts.append(_line(use, service, "busy", (busy_held, busy_drawn), busy_s))
            parts.append(_line(use, service, "idle", (idle_held, idle_drawn), idle_s))
    nonzero = tuple(line for line in parts if line.service or line.hardware or line.energy)
    return Allocation(use.device, nonzero or tuple(parts), basis, problems)


def _line(
    use: DeviceUse, service: str, part: Part, money: tuple[Decimal, Decimal], time_s: Fraction
) -> Line:
    return Line(use.device, service, part, *money, use.currency, float(time_s))


def _without_probing(use: DeviceUse, hardware: Decimal, energy: Decimal) -> tuple[Line, Line]:
    """Return the cost of probing, and the rest of the device's cost."""
    share = _share(use.probing_s, use.duration_s)
    held, held_rest = divided(hardware, [share, 1 - share])
    if use.probing_energy is None or energy == 0:
        drawn, drawn_rest = divided(energy, [share, 1 - share])
    else:
        part = _part_of(use.probing_energy, energy)
        drawn, drawn_rest = divided(energy, [part, 1 - part])
    duration_s = _fraction(use.duration_s)
    return (
        _line(use, "", "probing", (held, drawn), share * duration_s),
        _line(use, "", "unallocated", (held_rest, drawn_rest), (1 - share) * duration_s),
    )


def _weights(use: DeviceUse) -> tuple[dict[str, Fraction], Basis, dict[str, str]]:
    """Return each service's weight, and the remainder's under ""; the sum is positive."""
    claims = use.claims
    busy = {claim.service: claim.busy_s for claim in claims}
    known_s = {name: _fraction(busy_s) for name, busy_s in busy.items() if busy_s is not None}
    other = _fraction(use.other_busy_s)
    if not claims:
        return {"": Fraction(1)}, "none", {}
    if len(claims) == 1 and claims[0].share is None and not other:
        return {claims[0].service: Fraction(1)}, "alone", {}
    if len(known_s) == len(claims) and sum(known_s.values(), other) > 0:
        return {**known_s, "": other}, "busy_time", {}
    if len(claims) == 1 and claims[0].share is None:
        # Other processes used the device, too, and the service's part is unknown.
        problem = f"other processes use {use.device}, and their share is unknown; set share"
        return {"": Fraction(1)}, "none", {claims[0].service: problem}
    shares = {claim.service: _fraction(claim.share) for claim in claims if claim.share is not None}
    problem = f"{use.device} is shared in unknown proportions; set share for each of its services"
    problems = {claim.service: problem for claim in claims if claim.service not in shares}
    total_share = sum(shares.values(), Fraction(0))
    # Shares that add up to more than 1 are reduced in proportion.
    left = max(Fraction(0), 1 - total_share)
    return {**shares, "": left}, "share" if shares else "none", problems


def _idle_shares(use: DeviceUse, remaining: Line) -> tuple[Fraction, Fraction] | None:
    """Return the idle share of time and of electricity in the window without probing.

    None if the device's busy time is unknown.
    """
    busy_s = use.busy_s
    if busy_s is None:
        claimed_times_s = [claim.busy_s for claim in use.claims]
        if not claimed_times_s or any(claimed_s is None for claimed_s in claimed_times_s):
            return None
        busy_s = (
            sum(claimed_s for claimed_s in claimed_times_s if claimed_s is not None)
            + use.other_busy_s
        )
        busy_s += use.probing_s
    left_s = use.duration_s - use.probing_s
    idle = 1 - _share(busy_s - use.probing_s, left_s)
    if use.idle_energy is None or remaining.energy == 0:
        return idle, idle
    return idle, _part_of(use.idle_energy, remaining.energy)


def _part_of(part: Decimal, whole: Decimal) -> Fraction:
    """Return a share of a cost that is not 0, from 0 to 1: a tariff below zero may begin in the window."""
    return min(Fraction(1), max(Fraction(0), Fraction(part) / Fraction(whole)))


def _fraction(number: float | Decimal | None) -> Fraction:
    """Return an exact number from 0 up; negative ones become 0."""
    return max(Fraction(0), Fraction(exact(number or 0.0)))


def _share(part_s: float, whole_s: float) -> Fraction:
    """Return a share of a time, from 0 to 1; 1 if there is no time."""
    total_s = _fraction(whole_s)
    return min(Fraction(1), _fraction(part_s) / total_s) if total_s else Fraction(part_s > 0)
