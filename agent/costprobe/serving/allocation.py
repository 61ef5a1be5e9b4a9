"""Cost allocation: divides a device's cost among its users, in parts that add up to it exactly.

The cost of probing is deducted first. The rest is divided among the services that claim the device:
by their busy time, if it is known for all of them; otherwise by the configured shares; otherwise it
is the unallocated remainder. Of containers that share a device, only what it cost while it was busy
is divided by their busy time: idle time is theirs by the shares that they hold. The only service of
a device bears all of its cost, idle time included. A service's part is split into busy and idle by
the device's busy share of the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType

from costprobe.core.money import divided, total_of
from costprobe.core.records import Energy
from costprobe.core.schema import Part
from costprobe.core.units import percent
from costprobe.pricing.electricity import Emission

# With a larger share of probing, the rest of a window is too short for a serving cost.
PROBED_MOST = 0.5
_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Claim:
    """A service's claim to a device.

    Attributes:
        service: Name of the service.
        busy_s: Seconds in which its processes used the device; None if unknown.
        share: Its configured share of the device; None if not configured.
        basis: Of a container that shares the device, how its share was found; "" for a service.
    """

    service: str
    busy_s: float | None = None
    share: float | None = None
    basis: str = ""


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
    idle_energy: float | None = None
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
        basis: How the part of a container that shares the device was found: "use", by the time of
            its processes while the device was busy; or by the share that it holds, as in `Claim`.
    """

    device: str
    service: str
    part: Part
    hardware: Decimal
    energy: Decimal
    currency: str = ""
    device_s: float = 0.0
    basis: str = ""

    @property
    def cost(self) -> Decimal:
        """Currency for device and electricity."""
        return total_of([self.hardware, self.energy])


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of a device's cost.

    Attributes:
        lines: The parts, which add up to the device's cost.
        problems: Reason for each service whose part is unknown.
        shares: Each service's share of the electricity that probing leaves; that of no service is
            under "".
    """

    lines: tuple[Line, ...] = ()
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    shares: Mapping[str, float] = field(default_factory=lambda: _NONE)


@dataclass(frozen=True, slots=True)
class DeviceBill:
    """What a device cost in a window, drew and emitted, and whose that is.

    Attributes:
        allocation: Its cost.
        plan: Kinds of the price plans in force.
        currency: ISO 4217 code, the first if it changed; empty where nothing is priced.
        busy_share: Share of the window in which it was busy; None if unknown.
        drawn: Its energy; of a MIG device its slices' share of the board's. None if unknown.
        emitted: Its emissions, likewise.
        energy_shares: Each service's share of both.
    """

    allocation: Allocation
    plan: str = ""
    currency: str = ""
    busy_share: float | None = None
    drawn: Energy | None = None
    emitted: Emission | None = None
    energy_shares: Mapping[str, float] = field(default_factory=lambda: _NONE)


def allocate(use: DeviceUse) -> Allocation:
    """Allocate a device's cost in a window.

    Args:
        use: Cost and use of the device; times are clipped to the window.

    Returns:
        No lines if the device's cost is unknown.
    """
    shares, problems, is_by_use = _service_shares(use)
    kept = _held_shares(use.claims) if is_by_use and use.claims[0].basis else shares
    probed = 0.0 if use.is_unheld else _share(use.probing_s, use.duration_s)
    if use.hardware is None or use.energy is None:
        reason = f"the cost of {use.device} is unknown"
        return Allocation((), {claim.service: reason for claim in use.claims}, shares)
    if probed > PROBED_MOST:
        reason = f"probing took {percent(probed)} of {use.device}'s window; lengthen window"
        problems = {claim.service: reason for claim in use.claims}
    probing_energy = probed
    if use.probing_energy is not None and use.energy and not use.is_unheld:
        probing_energy = _part_of(float(use.probing_energy), float(use.energy))
    idle = _idle_shares(use, float(use.energy) * (1 - probing_energy))
    # The share of time and hardware, and that of electricity, of each part.
    parts: dict[tuple[str, Part], tuple[float, float]] = {}
    parts["", "probing"] = probed, probing_energy
    of_all = {}
    for service, share in shares.items():
        held, drawn = (1 - probed) * share, (1 - probing_energy) * share
        kept_held, kept_drawn = (1 - probed) * kept[service], (1 - probing_energy) * kept[service]
        idle_time, idle_energy = idle or (0.0, 0.0)
        of_all[service] = _over(share, kept[service], idle_energy)
        if not service:
            both = _over(held, kept_held, idle_time), _over(drawn, kept_drawn, idle_energy)
            parts["", "idle" if use.is_unheld else "unallocated"] = both
        elif idle is None:
            parts[service, "held"] = held, drawn
        else:
            parts[service, "busy"] = held * (1 - idle_time), drawn * (1 - idle_energy)
            parts[service, "idle"] = kept_held * idle_time, kept_drawn * idle_energy
    bases = {
        claim.service: "use" if is_by_use else claim.basis for claim in use.claims if claim.basis
    }
    hardware = divided(use.hardware, [held for held, _ in parts.values()])
    energy = divided(use.energy, [drawn for _, drawn in parts.values()])
    lines = tuple(
        Line(
            use.device,
            *place,
            held,
            drawn,
            use.currency,
            share * use.duration_s,
            bases.get(place[0], ""),
        )
        for (place, (share, _)), held, drawn in zip(parts.items(), hardware, energy, strict=True)
    )
    return Allocation(
        tuple(line for line in lines if line.service or line.hardware or line.energy)
        or (() if use.is_unheld else lines[1:]),
        problems,
        of_all,
    )


def _service_shares(use: DeviceUse) -> tuple[dict[str, float], dict[str, str], bool]:
    """Return each service's share of what probing leaves, problems, and whether it is by busy time.

    The share of no service is under "".
    """
    claims, device = use.claims, use.device
    busy_s = {claim.service: max(0.0, claim.busy_s) for claim in claims if claim.busy_s is not None}
    is_alone = len(claims) == 1 and claims[0].share is None
    if not claims or use.is_unheld:
        return {"": 1.0}, {}, False
    if is_alone and not use.other_busy_s:
        return {claims[0].service: 1.0}, {}, False
    total_s = sum(busy_s.values()) + use.other_busy_s
    if len(busy_s) == len(claims) and total_s > 0:
        return (
            {name: part_s / total_s for name, part_s in (*busy_s.items(), ("", use.other_busy_s))},
            {},
            True,
        )
    if is_alone:
        # Other processes used the device, too, and the service's part is unknown.
        reason = f"other processes use {device}, and their share is unknown; set share"
        return {"": 1.0}, {claims[0].service: reason}, False
    shares = _held_shares(claims)
    reason = f"{device} is shared in unknown proportions; set share for each of its services"
    problems = {claim.service: reason for claim in claims if claim.service not in shares}
    return shares, problems, False


def _held_shares(claims: Sequence[Claim]) -> dict[str, float]:
    """Return the configured share of each service, and the rest under ""."""
    shares = {claim.service: claim.share for claim in claims if claim.share is not None}
    # Shares that add up to more than 1 are reduced in proportion.
    whole = max(1.0, sum(shares.values()))
    left = whole - sum(shares.values())
    return {name: share / whole for name, share in (*shares.items(), ("", left))}


def _over(busy: float, idle: float, idle_share: float) -> float:
    """Return the share of a whole window, of which a share was idle."""
    return busy if busy == idle else busy * (1 - idle_share) + idle * idle_share


def _idle_shares(use: DeviceUse, left_energy: float) -> tuple[float, float] | None:
    """Return the idle share of time and of electricity in the window without probing.

    None if the device's busy time is unknown.
    """
    busy_s = use.busy_s
    if busy_s is None:
        claimed_s = [claim.busy_s for claim in use.claims if claim.busy_s is not None]
        if not claimed_s or len(claimed_s) < len(use.claims):
            return None
        busy_s = sum(claimed_s) + use.other_busy_s + use.probing_s
    idle = 1 - _share(busy_s - use.probing_s, use.duration_s - use.probing_s)
    if use.idle_energy is None or not left_energy:
        return idle, idle
    return idle, _part_of(use.idle_energy, left_energy)


def _part_of(part: float, whole: float) -> float:
    """Return a share of a cost that is not 0, from 0 to 1: a tariff below zero may begin in the window."""
    return min(1.0, max(0.0, part / whole))


def _share(part_s: float, whole_s: float) -> float:
    """Return a share of a time, from 0 to 1; 1 if there is no time."""
    return min(1.0, max(0.0, part_s) / whole_s) if whole_s > 0 else float(part_s > 0)
