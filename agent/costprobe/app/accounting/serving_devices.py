"""Cost of devices in a window, allocated to the services that use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from costprobe.adapters.serving.processes import busy_by_service
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.app.accounting.device_log import DeviceLog
from costprobe.app.accounting.probe_runs import ProbeRuns
from costprobe.app.accounting.serving_processes import ProcessOwners
from costprobe.core.clock import Clock, utc_ns
from costprobe.core.records import NS_PER_S, Device
from costprobe.domain.costing.carbon import Emission, emission
from costprobe.domain.costing.money import total_of
from costprobe.domain.costing.serving.allocation import (
    Allocation,
    Claim,
    DeviceUse,
    Instance,
    allocate,
    divided_board,
)
from costprobe.domain.costing.serving.device_window import (
    EnergyBetween,
    Piece,
    electricity_cost,
    hardware_cost,
    pieces_of,
)
from costprobe.domain.pricing.book import PriceBook
from costprobe.domain.pricing.carbon import NO_CARBON, CarbonBook

END_OF_TIME_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DeviceBill:
    """Cost of a group's devices in a window.

    Attributes:
        allocations: Cost allocation of each device, by name.
        plans: Kinds of the price plans in force for each device, by name.
        currency: ISO 4217 code; empty where nothing is priced.
        busy_shares: Share of the window in which each device was busy, where known.
        emitted: Emissions of each device, where known.
    """

    allocations: Mapping[str, Allocation]
    plans: Mapping[str, str] = field(default_factory=dict)
    currency: str = ""
    busy_shares: Mapping[str, float] = field(default_factory=dict)
    emitted: Mapping[str, Emission | None] = field(default_factory=dict)


class DeviceCosts:
    """Compute the cost of a group's devices and allocate it to the group's services.

    Args:
        devices: The devices, each board with all of its MIG devices.
        services: The services that use some of them.
        book: The prices.
        log: The sensors' readings.
        runs: Probe runs.
        owners: The services that processes belong to.
        clock: The host's clocks.
        carbon: Carbon intensities.
    """

    def __init__(  # noqa: PLR0913 - what a window is billed by
        self,
        devices: Sequence[Device],
        services: Sequence[ServiceConfig],
        *,
        book: PriceBook,
        log: DeviceLog,
        runs: ProbeRuns,
        owners: ProcessOwners,
        clock: Clock,
        carbon: CarbonBook = NO_CARBON,
    ) -> None:
        self._carbon = carbon
        self.devices = tuple(devices)
        self._services = tuple(services)
        self._book = book
        self._log = log
        self._runs = runs
        self._owners = owners
        self._clock = clock

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the devices whose energy is measured: that of a MIG device is its board's."""
        return tuple(device.name for device in self.devices if not device.is_slice)

    def seen_ns(self) -> int:
        """Return the CLOCK_MONOTONIC ns until which readings of all devices exist."""
        return min((self._log.seen_ns(name) for name in self.measured), default=END_OF_TIME_NS)

    def is_probing_before(self, end_ns: int) -> bool:
        """Return whether a probe run from before an instant is still in progress."""
        return any(self._runs.is_open_before(device.name, end_ns) for device in self.devices)

    def bill(self, start_ns: int, end_ns: int, offset_ns: int | None = None) -> DeviceBill:
        """Return the cost of each device between two CLOCK_MONOTONIC ns, and its allocation.

        Args:
            start_ns: Start of the window.
            end_ns: Its end.
            offset_ns: UTC minus CLOCK_MONOTONIC in ns, for prices; None for the present one.
        """
        offset_ns = utc_ns(self._clock, 0) if offset_ns is None else offset_ns
        pieces = {
            device.name: self._pieces(device, start_ns, end_ns, offset_ns)
            for device in self.devices
        }
        uses: list[DeviceUse] = []
        for device in self.devices:
            if not device.is_slice:
                parts = [part for part in self.devices if part.parent == device.name]
                if parts:
                    uses += self._board_uses(device, parts, pieces, start_ns, end_ns)
                else:
                    uses.append(self._use(device, pieces[device.name], start_ns, end_ns))
        found = {use.device: _allocated(use) for use in uses}
        found |= self._impossible(found)
        priced = [piece for known in pieces.values() for piece in known or ()]
        return DeviceBill(
            allocations=found,
            plans={
                name: "+".join(dict.fromkeys(piece.terms.rate.plan for piece in known))
                for name, known in pieces.items()
                if known
            },
            currency=priced[0].terms.rate.currency if priced else "",
            busy_shares={
                use.device: min(1.0, use.busy_s / use.duration_s)
                for use in uses
                if use.busy_s is not None and use.duration_s > 0
            },
            emitted={
                device.name: self._emitted(device, start_ns, end_ns, offset_ns)
                for device in self.devices
            },
        )

    def _emitted(
        self, device: Device, start_ns: int, end_ns: int, offset_ns: int
    ) -> Emission | None:
        """Return a device's emissions; those of a MIG device are its slices' share of the board's."""
        middle_ns = (start_ns + end_ns) // 2 + offset_ns
        energy_j = self._log.energy_j(device.parent or device.name, start_ns, end_ns)
        return emission(energy_j, self._carbon.intensity(device.name, middle_ns))

    def _pieces(
        self, device: Device, start_ns: int, end_ns: int, offset_ns: int
    ) -> tuple[Piece, ...] | None:
        return pieces_of(
            lambda t_ns: self._book.terms(device.name, t_ns + offset_ns), start_ns, end_ns
        )

    def _use(
        self, device: Device, pieces: tuple[Piece, ...] | None, start_ns: int, end_ns: int
    ) -> DeviceUse:
        """Return the use of a whole device."""
        name = device.name
        drawn = self._energy_of(name)
        duration_s = (end_ns - start_ns) / NS_PER_S
        runs = self._runs.between(name, start_ns, end_ns)
        probing_s = sum(run.end_ns - run.start_ns for run in runs) / NS_PER_S
        busy_s = self._log.busy_s(name, start_ns, end_ns)
        hardware = energy = probing_energy = idle_energy = None
        if pieces is not None:
            hardware = hardware_cost(pieces)
            energy = electricity_cost(pieces, drawn, start_ns, end_ns)
            probing_energy = _added(
                [electricity_cost(pieces, drawn, run.start_ns, run.end_ns) for run in runs]
            )
            idle_energy = self._idle_energy(name, pieces, busy_s, duration_s)
        claims, other_s = self._claims(
            name, frozenset(pid for run in runs for pid in run.pids), start_ns, end_ns
        )
        return DeviceUse(
            device=name,
            duration_s=duration_s,
            hardware=hardware,
            energy=energy,
            busy_s=busy_s,
            other_busy_s=other_s,
            probing_s=probing_s,
            probing_energy=probing_energy,
            idle_energy=idle_energy,
            claims=claims,
        )

    def _board_uses(
        self,
        board: Device,
        parts: Sequence[Device],
        pieces: Mapping[str, tuple[Piece, ...] | None],
        start_ns: int,
        end_ns: int,
    ) -> list[DeviceUse]:
        """Return the uses of a board's MIG devices, and of its unused slices."""
        drawn = self._energy_of(board.name)
        uses = []
        for part in parts:
            known = pieces[part.name]
            use = self._use(part, known, start_ns, end_ns)
            # Its own terms contain its share of the board's electricity.
            energy = None
            if known is not None:
                energy = electricity_cost(known, drawn, start_ns, end_ns)
            uses.append(replace(use, energy=energy, probing_energy=None, idle_energy=None))
        whole = pieces[board.name]
        if whole is None:
            # Priced by the slice: unused slices have no price.
            return uses
        use = self._use(board, whole, start_ns, end_ns)
        instances = [Instance(use, part.slices) for use, part in zip(uses, parts, strict=True)]
        return divided_board(use, instances, parts[0].slices_of)

    def _energy_of(self, device: str) -> EnergyBetween:
        return lambda start_ns, end_ns: self._log.energy_j(device, start_ns, end_ns)

    def _idle_energy(
        self, device: str, pieces: Sequence[Piece], busy_s: float | None, duration_s: float
    ) -> Decimal | None:
        """Return the cost of energy drawn while idle; None until idle power is measured."""
        idle_w = self._log.idle_power_w(device)
        if idle_w is None or busy_s is None or duration_s <= 0:
            return None
        idle_share = max(0.0, 1 - busy_s / duration_s)
        start_ns, end_ns = pieces[0].start_ns, pieces[-1].end_ns

        def drawn(since_ns: int, until_ns: int) -> float:
            return idle_w * idle_share * (until_ns - since_ns) / NS_PER_S

        return electricity_cost(pieces, drawn, start_ns, end_ns)

    def _claims(
        self, device: str, own_pids: frozenset[int], start_ns: int, end_ns: int
    ) -> tuple[tuple[Claim, ...], float]:
        """Return the claims to a device, and the busy seconds of processes of no service."""
        holders = [service for service in self._services if device in service.devices]
        known: Mapping[str, float | None] = {}
        other_s = 0.0
        if holders and all(service.processes for service in holders):
            by_pid_s = self._log.busy_by_pid_s(device, start_ns, end_ns)
            if by_pid_s is not None:
                pids = self._owners.pids_of([service.name for service in holders], by_pid_s)
                known, other_s = busy_by_service(by_pid_s, pids, own_pids)
        claims = tuple(
            Claim(service.name, known.get(service.name), service.share) for service in holders
        )
        return claims, other_s

    def _impossible(self, found: Mapping[str, Allocation]) -> dict[str, Allocation]:
        """Return the devices that no service can claim although one names them, with the reason."""
        divided = {device.parent for device in self.devices}
        names = {device.name for device in self.devices}
        wrong: dict[str, Allocation] = {}
        for service in self._services:
            for name in service.devices:
                problem = ""
                if name not in names:
                    problem = f"{name} is not a device of this host; see costprobe doctor"
                elif name in divided:
                    problem = (
                        f"{name} is divided into MIG devices; list those that the service uses"
                    )
                if problem:
                    holders = [each.name for each in self._services if name in each.devices]
                    lines = found[name].lines if name in found else ()
                    wrong[name] = Allocation(name, lines, "none", dict.fromkeys(holders, problem))
        return wrong


def _allocated(use: DeviceUse) -> Allocation:
    """Return a device's allocation; if its cost is unknown, with a reason the operator can fix."""
    found = allocate(use)
    if use.is_priced:
        return found
    reason = f"the energy of {use.device} was not measured all the time"
    if use.hardware is None:
        reason = f"no price plan is for {use.device}; see costprobe price show"
    return replace(found, problems=dict.fromkeys(found.problems, reason))


def _added(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [amount for amount in amounts if amount is not None]
    return total_of(known) if len(known) == len(amounts) else None
