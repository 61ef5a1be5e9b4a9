"""Cost of devices in a window, allocated to the services and containers that use them.

Claimants of devices are configured services, and containers that the kubelet gave a device to.
Those that share devices or boards are a group: one window for all of them. The cost of a window
has all that the rows of services state about it.

The processes of a service are found by their configured names, those of a container by their
cgroups; the service of a process is known also after the process has ended. What a daemon that was
killed did not allocate is allocated by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import Final

from costprobe.adapters.kubernetes.cgroups import cgroup_ids
from costprobe.adapters.store.ledger import Ledger, restored
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock, utc_ns
from costprobe.core.money import total_of
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S, Device, Event
from costprobe.core.schema import make_point
from costprobe.devices.charges import Charge, DeviceCharges
from costprobe.devices.use import DeviceLog, ProbeRun, ProbeRuns
from costprobe.pricing.book import Terms
from costprobe.pricing.electricity import NO_CARBON, CarbonBook, emission
from costprobe.serving.allocation import Allocation, Claim, DeviceBill, DeviceUse, allocate
from costprobe.serving.settings import ServiceConfig, board_of

# The kernel truncates names to this length.
COMM_CHARS = 15
MAX_PIDS = 4096
# Numbers of processes are lower (PID_MAX_LIMIT of include/linux/threads.h in Linux).
PID_LIMIT: Final = 1 << 22
# Containers, present and past, whose processes are known.
MAX_CONTAINERS: Final = 4096
# The server of CUDA's Multi-Process Service by its name in /proc/PID/comm; its time is its clients'.
_MPS_SERVER: Final = "nvidia-cuda-mps-server"[:COMM_CHARS]
# Where /proc/PID/stat has the start of the process, after its name (proc_pid_stat(5)).
_STARTTIME: Final = 19


@dataclass(frozen=True, slots=True)
class Claimant:
    """A user of devices, which bears a part of their cost.

    Attributes:
        name: Value of the tag `service`.
        devices: The devices that it uses.
        shares: Its share of a device, from 0 to 1, where it is known.
        bases: Of a container, how its share of a shared device was found: "replicas", "cores",
            "even".
        is_traced: Whether its processes are found by the ids of its containers.
        processes: Its processes by their names in /proc/PID/comm.
        window_s: Length of its windows in s.
        labels: Further tags of its rows.
        service: How its requests are counted; None for a container that is not scraped.
    """

    name: str
    devices: tuple[str, ...]
    shares: Mapping[str, float] = field(default_factory=dict)
    processes: tuple[str, ...] = ()
    window_s: float = 300.0
    labels: Mapping[str, str] = field(default_factory=dict)
    service: ServiceConfig | None = None
    bases: Mapping[str, str] = field(default_factory=dict)
    is_traced: bool = False

    @classmethod
    def of(cls, service: ServiceConfig) -> Claimant:
        """Return the claimant of a configured service."""
        shares = {} if service.share is None else dict.fromkeys(service.devices, service.share)
        return cls(
            service.name,
            service.devices,
            shares,
            service.processes,
            service.window_s,
            service.labels,
            service,
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The inputs of the services' cost.

    Attributes:
        charges: What the devices cost, by their readings.
        runs: Probe runs.
        clock: The host's clocks.
        tags: Host and static labels.
        ledger: Stores rows, and the last window of each service.
        on_event: Stores events.
        store_path: The store, from which rolling costs are restored.
        proc: Root of the proc file system.
        carbon: Carbon intensities.
        on_containers: Receives the containers of this node that hold devices.
    """

    charges: DeviceCharges
    runs: ProbeRuns
    clock: Clock
    tags: Mapping[str, str]
    ledger: Ledger
    on_event: Callable[[Event], None]
    store_path: Path
    proc: Path = Path("/proc")
    carbon: CarbonBook = NO_CARBON
    on_containers: Callable[[Sequence[Claimant]], None] = lambda _: None


@dataclass(frozen=True)
class Grouping:
    """Claimants that share devices or boards, and these devices.

    Attributes:
        claimants: The claimants; none for the devices without one.
        devices: The devices, each board with all of its MIG devices.
    """

    claimants: tuple[Claimant, ...]
    devices: tuple[Device, ...]

    def __hash__(self) -> int:
        return hash((tuple(claimant.name for claimant in self.claimants), self.devices))


def grouped(claimants: Sequence[Claimant], devices: Sequence[Device]) -> list[Grouping]:
    """Group claimants that share devices or boards; the last group is the unclaimed devices.

    Args:
        claimants: The claimants.
        devices: The host's devices.
    """
    groups: list[tuple[list[Claimant], set[str]]] = []
    for claimant in claimants:
        boards = {board_of(name) for name in claimant.devices}
        joined = [group for group in groups if group[1] & boards]
        groups = [group for group in groups if not group[1] & boards]
        members = [member for group in joined for member in group[0]]
        groups.append(([*members, claimant], boards.union(*(group[1] for group in joined))))
    groupings = [
        Grouping(
            tuple(together),
            tuple(device for device in devices if board_of(device.name) in boards),
        )
        for together, boards in groups
    ]
    claimed = {device.name for grouping in groupings for device in grouping.devices}
    unclaimed = tuple(device for device in devices if device.name not in claimed)
    return [*groupings, Grouping((), unclaimed)] if unclaimed else groupings


@dataclass(frozen=True, slots=True)
class _Process:
    """A process as it was looked up.

    Attributes:
        started: When it started, as in /proc/PID/stat; "" if unknown.
        services: The services that its name belongs to.
        containers: The ids of its containers and pod.
        is_mps_server: Whether other processes used the device through it.
    """

    started: str = ""
    services: frozenset[str] = frozenset()
    containers: tuple[str, ...] = ()
    is_mps_server: bool = False


class ProcessOwners:
    """The services of processes, looked up while the processes are alive.

    The busy time of a process that has crashed is attributed to its service, although its name can
    no longer be read. Its container may get a name later.

    Args:
        services: The services; only those with configured process names have processes.
        proc: Root of the proc file system.
    """

    def __init__(self, services: Iterable[ServiceConfig], proc: Path) -> None:
        self._names = {
            service.name: {name[:COMM_CHARS] for name in service.processes} for service in services
        }
        self._proc = proc
        self._lock = Lock()
        self._processes: dict[int, _Process] = {}
        self._latest: dict[int, int] = {}
        self._containers: dict[str, str] = {}

    def name_containers(self, names: Mapping[str, str]) -> None:
        """Add the services of containers and pods by their ids; those of ended ones are kept."""
        with self._lock:
            for container, service in names.items():
                self._containers.pop(container, None)
                self._containers[container] = service
            for oldest in list(self._containers)[:-MAX_CONTAINERS]:
                del self._containers[oldest]

    def find_owners(self, pids: Iterable[int]) -> dict[int, int]:
        """Look up processes that use a device now; one that has ended keeps its services.

        Returns:
            A number for each process: its pid; if that belonged to another process before, a
            multiple of PID_LIMIT more.
        """
        return {pid: self._find(pid) for pid in pids}

    def _find(self, pid: int) -> int:
        process = self._looked_up(pid)
        with self._lock:
            number = self._latest.get(pid, pid)
            if process is None:
                return number
            known = self._processes.pop(number, process)
            if known.started != process.started:
                self._processes[number] = known
                number += PID_LIMIT
            # The most recent is last, so that the oldest are dropped first.
            self._processes[number], self._latest[pid] = process, number
            if len(self._processes) > MAX_PIDS:
                oldest = next(iter(self._processes))
                del self._processes[oldest]
                if self._latest.get(oldest % PID_LIMIT) == oldest:
                    del self._latest[oldest % PID_LIMIT]
        return number

    def _looked_up(self, pid: int) -> _Process | None:
        """Return a process; None if it has ended."""
        # The name in it, in parentheses, may have any characters.
        after_name = self._read(pid, "stat").rpartition(")")[2].split()
        containers = cgroup_ids(self._read(pid, "cgroup"))
        # The last to be read: a process that has it had the others.
        comm = self._read(pid, "comm").strip()
        if not comm:
            return None
        return _Process(
            after_name[_STARTTIME] if len(after_name) > _STARTTIME else "",
            frozenset(name for name, comms in self._names.items() if comm in comms),
            containers,
            comm == _MPS_SERVER,
        )

    def _read(self, pid: int, name: str) -> str:
        try:
            return (self._proc / str(pid) / name).read_text(errors="replace")
        except OSError:
            return ""

    def busy_s(
        self, services: Sequence[str], by_pid_s: Mapping[int, float], own_pids: Collection[int]
    ) -> tuple[dict[str, float | None], float]:
        """Return the busy time of each service in s, and of the remaining processes.

        A service without a busy process was idle if all busy processes belong to services: the driver
        lists only those that were busy. Otherwise its time is unknown (None): its processes may have
        another name. So is that of services whose processes have one name: each would get the time
        of all.

        Args:
            services: Names of the services.
            by_pid_s: Seconds in which each process kept a device busy, by the number of the process.
            own_pids: Processes of probes, whose time is accounted for separately.
        """
        owners = {
            number: self._owners(process) for number, process in self._known(by_pid_s).items()
        }
        other_s = sum(
            busy_s
            for number, busy_s in by_pid_s.items()
            if number % PID_LIMIT not in own_pids and owners[number].isdisjoint(services)
        )
        found: dict[str, float | None] = {}
        for name in services:
            numbers = [number for number in sorted(by_pid_s) if name in owners[number]]
            are_own = all(owners[number].intersection(services) == {name} for number in numbers)
            is_known = are_own and (numbers or not other_s)
            found[name] = sum(by_pid_s[number] for number in numbers) if is_known else None
        return found, other_s

    def containers_busy_s(
        self, services: Sequence[str], by_pid_s: Mapping[int, float], own_pids: Collection[int]
    ) -> tuple[Mapping[str, float | None], float]:
        """Return the busy time of each container in s, and of the remaining processes.

        A container without a busy process was idle, because each process is in a known cgroup. Nothing
        is known ({}) if a server of MPS was busy for its clients, or if none of the busy processes is
        a container's, be it one that has ended, as in a process namespace of the daemon's own.

        Args:
            services: Names of the containers' services, which have no configured processes.
            by_pid_s: As for `busy_s`.
            own_pids: As for `busy_s`.
        """
        found, other_s = self.busy_s(services, by_pid_s, own_pids)
        busy = self._known({number: busy_s for number, busy_s in by_pid_s.items() if busy_s > 0})
        if any(process.is_mps_server for process in busy.values()):
            return {}, 0.0
        if other_s > 0 and not any(map(self._container, busy.values())):
            return {}, 0.0
        return {name: busy_s or 0.0 for name, busy_s in found.items()}, other_s

    def _known(self, numbers: Iterable[int]) -> dict[int, _Process]:
        with self._lock:
            return {number: self._processes.get(number, _Process()) for number in numbers}

    def _owners(self, process: _Process) -> frozenset[str]:
        """Return the services of a process by its name, and by its outermost known container."""
        container = self._container(process)
        return process.services if container is None else process.services | {container}

    def _container(self, process: _Process) -> str | None:
        with self._lock:
            named = (self._containers.get(each) for each in process.containers)
            return next(filter(None, named), None)


class DeviceCosts:
    """Compute the cost of a group's devices and allocate it to the group's services.

    Args:
        devices: The devices, each board with all of its MIG devices.
        services: The services and containers that use some of them.
        around: What the devices cost by their readings, probe runs, clocks and carbon intensities.
        log: The sensors' readings.
        owners: The services that processes belong to.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        services: Sequence[Claimant],
        around: Surroundings,
        log: DeviceLog,
        owners: ProcessOwners,
    ) -> None:
        self.devices = tuple(devices)
        self._services = tuple(services)
        self._around = around
        self._charges = around.charges
        self._log = log
        self._owners = owners

    def seen_ns(self) -> int:
        """Return the CLOCK_MONOTONIC ns until which all devices are charged."""
        charged_ns = (self._charges.kept.seen_ns(device.name) for device in self.devices)
        return min(charged_ns, default=END_OF_TIME_NS)

    def charged_ns(self) -> tuple[int, int] | None:
        """Return the CLOCK_MONOTONIC ns of the first and last known charge of any device."""
        firsts = [self._charges.kept.first_ns(device.name) for device in self.devices]
        known_ns = [first_ns for first_ns in firsts if first_ns is not None]
        if not known_ns:
            return None
        return min(known_ns), max(
            self._charges.kept.seen_ns(device.name) for device in self.devices
        )

    def is_probing_before(self, end_ns: int) -> bool:
        """Return whether a probe run from before an instant is still in progress."""
        return any(self._around.runs.is_open_before(device.name, end_ns) for device in self.devices)

    def bill(
        self, start_ns: int, end_ns: int, offset_ns: int | None = None
    ) -> dict[str, DeviceBill]:
        """Return what each device cost between two CLOCK_MONOTONIC ns, and whose that is, by name.

        Args:
            start_ns: Start of the window.
            end_ns: Its end.
            offset_ns: UTC minus CLOCK_MONOTONIC in ns, for prices; None for the current one.
        """
        offset_ns = utc_ns(self._around.clock, 0) if offset_ns is None else offset_ns
        span = start_ns, end_ns
        bills = {device.name: self._bill(device, span, offset_ns) for device in self.devices}
        return bills | self._impossible(bills)

    def _bill(self, device: Device, span: tuple[int, int], offset_ns: int) -> DeviceBill:
        board, runs = device.parent or device.name, self._around.runs.between(device.name, *span)
        charges = self._charges.between(device.name, *span)
        use = self._use(device, runs, span)
        energy_j, drawn = self._log.energy_j(board, *span), self._log.energy(board, *span)
        if drawn is not None and device.is_slice:
            share = device.slices / device.slices_of if device.slices_of else 1.0
            drawn = replace(drawn, energy_j=drawn.energy_j * share, scope="parent")
        allocation = self._allocation(use, charges, runs, span)
        serving = None if energy_j is None else self._serving_share(board, energy_j, use, runs)
        busy_s, length_s = use.busy_s, use.duration_s
        intensity = self._around.carbon.intensity(device.name, sum(span) // 2 + offset_ns)
        return DeviceBill(
            allocation,
            plan="+".join(dict.fromkeys(terms.rate.plan for terms in _terms_of(charges))),
            currency=next(iter(_currencies(charges)), ""),
            busy_share=None if busy_s is None or not length_s else min(1.0, busy_s / length_s),
            drawn=drawn,
            emitted=emission(energy_j, intensity),
            energy_shares={}
            if serving is None
            else {name: share * serving for name, share in allocation.shares.items()},
        )

    def _serving_share(
        self, board: str, energy_j: float, use: DeviceUse, runs: Sequence[ProbeRun]
    ) -> float:
        """Return the share of a device's energy that is not that of probing: measured, else by time."""
        probing = [self._log.energy_j(board, run.start_ns, run.end_ns) for run in runs]
        known_j = [run_j for run_j in probing if run_j is not None]
        if len(known_j) == len(probing) and energy_j > 0:
            return 1 - min(1.0, max(0.0, sum(known_j)) / energy_j)
        return 1 - min(1.0, use.probing_s / use.duration_s) if use.duration_s else 0.0

    def _use(self, device: Device, runs: Sequence[ProbeRun], span: tuple[int, int]) -> DeviceUse:
        """Return the use of a device, without its cost."""
        own_pids = frozenset(pid for run in runs for pid in run.pids)
        claims, other_s = self._claims(device.name, own_pids, *span)
        return DeviceUse(
            device=device.name,
            duration_s=(span[1] - span[0]) / NS_PER_S,
            hardware=None,
            energy=None,
            busy_s=self._log.busy_s(device.name, *span),
            other_busy_s=other_s,
            probing_s=sum(run.end_ns - run.start_ns for run in runs) / NS_PER_S,
            claims=claims,
            is_unheld=any(part.parent == device.name for part in self.devices),
        )

    def _allocation(
        self,
        use: DeviceUse,
        charges: Sequence[Charge],
        runs: Sequence[ProbeRun],
        span: tuple[int, int],
    ) -> Allocation:
        """Return a device's allocation: lines of what was charged, and why that is not all."""
        allocations, currencies = [], _currencies(charges)
        for currency in currencies:
            priced = [
                charge
                for charge in charges
                if charge.terms and charge.terms.rate.currency == currency
                if charge.cost is not None
            ]
            if priced:
                probing = [c.within(run.start_ns, run.end_ns) for run in runs for c in priced]
                in_currency = replace(
                    use,
                    hardware=total_of([charge.hardware or Decimal(0) for charge in priced]),
                    energy=_electricity(priced),
                    probing_energy=_electricity(probing),
                    idle_energy=self._idle_energy(use, priced),
                    currency=currency,
                )
                allocations.append(allocate(in_currency))
        name, reason = use.device, ""
        if len(allocations) > 1:
            reason = f"the currency of {name}'s price changed in the window"
        elif charges and any(charge.terms is None for charge in charges):
            reason = f"no price plan is for {name}; see costprobe price show"
        elif any(charge.cost is None for charge in charges) or not self._charges.covers(
            charges, *span
        ):
            reason = f"the energy of {name} was not measured all the time"
        first = allocations[0] if allocations else allocate(use)
        problems = {claim.service: reason for claim in use.claims} if reason else first.problems
        lines = tuple(line for allocation in allocations for line in allocation.lines)
        return Allocation(lines, problems, first.shares)

    def _idle_energy(self, use: DeviceUse, charges: Sequence[Charge]) -> float | None:
        """Return the cost of the energy in idle time; None until idle power is measured."""
        idle_w = self._log.idle_power_w(use.device)
        if idle_w is None or use.busy_s is None or use.duration_s <= 0:
            return None
        per_w = sum(
            charge.terms.electricity_per_j * (charge.end_ns - charge.start_ns) / NS_PER_S
            for charge in charges
            if charge.terms is not None
        )
        return idle_w * max(0.0, 1 - use.busy_s / use.duration_s) * per_w

    def _claims(
        self, device: str, own_pids: frozenset[int], start_ns: int, end_ns: int
    ) -> tuple[tuple[Claim, ...], float]:
        """Return the claims to a device, and the busy seconds of processes of no service."""
        holders = [service for service in self._services if device in service.devices]
        known: Mapping[str, float | None] = {}
        other_s = 0.0
        are_traced = all(each.is_traced and device in each.bases for each in holders)
        if holders and (are_traced or all(service.processes for service in holders)):
            by_pid_s = self._log.busy_by_pid_s(device, start_ns, end_ns)
            if by_pid_s is not None:
                names = [service.name for service in holders]
                of_all = self._owners.containers_busy_s if are_traced else self._owners.busy_s
                known, other_s = of_all(names, by_pid_s, own_pids)
        claims = tuple(
            Claim(
                service.name,
                known.get(service.name),
                service.shares.get(device),
                service.bases.get(device, ""),
            )
            for service in holders
        )
        return claims, other_s

    def _impossible(self, bills: Mapping[str, DeviceBill]) -> dict[str, DeviceBill]:
        """Return the devices that a service names but cannot use, with the reason."""
        divided = {device.parent for device in self.devices}
        wrong: dict[str, DeviceBill] = {}
        for name in {name for service in self._services for name in service.devices}:
            if name not in bills:
                reason = f"{name} is not a device of this host; see costprobe doctor"
            elif name in divided:
                reason = f"{name} is divided into MIG devices; list those that the service uses"
            else:
                continue
            holders = [service.name for service in self._services if name in service.devices]
            bill = bills.get(name, DeviceBill(Allocation()))
            allocation = replace(bill.allocation, problems=dict.fromkeys(holders, reason))
            wrong[name] = replace(bill, allocation=allocation)
        return wrong


def _terms_of(charges: Sequence[Charge]) -> list[Terms]:
    return [charge.terms for charge in charges if charge.terms is not None]


def _currencies(charges: Sequence[Charge]) -> tuple[str, ...]:
    """Return the currencies of charges, in the order of time."""
    return tuple(dict.fromkeys(terms.rate.currency for terms in _terms_of(charges)))


def _electricity(charges: Sequence[Charge]) -> Decimal:
    return total_of([charge.electricity or Decimal(0) for charge in charges])


# What of the devices' cost is in no allocation, and is not to be; None while nothing is allocated.
ALLOCATING_STATE: Final = "allocating"
# Rounding of the sums.
_LEAST: Final = Decimal("1e-12")
_Rest = dict[tuple[str, str], Decimal]


def begin_allocation(ledger: Ledger, store_path: Path) -> None:
    """Record that the cost of devices is allocated from now on, until `allocate_rest`."""
    if ledger.state(ALLOCATING_STATE) is None:
        ledger.put_state(ALLOCATING_STATE, _document(_unallocated(store_path)))


def allocate_rest(ledger: Ledger, store_path: Path, tags: Mapping[str, str], now_ns: int) -> None:
    """End what `begin_allocation` began: what was not allocated, as by a process that was killed, becomes `unallocated`.

    The counters of devices and of allocations are committed with their rows: their difference is
    what the last window would have allocated.

    Args:
        ledger: Stores the rows of `allocation`, at the time of the devices' newest rows.
        store_path: The store.
        tags: Host and static labels.
        now_ns: UTC in ns.
    """
    if ledger.state(ALLOCATING_STATE) is None:
        return
    known = restored(ledger, ALLOCATING_STATE, _rest_of)
    with closing(StoreReader.open(store_path)) as reader:
        newest = reader.last("device", now_ns)
    points = []
    for (device, currency), rest in _unallocated(store_path).items():
        left = Decimal(0) if known is None else rest - known.get((device, currency), Decimal(0))
        if left > _LEAST * (abs(rest) + 1):
            ends_ns = [row.time_ns for row in newest if row.tags.get("device") == device]
            own = {"device": device, "part": "unallocated", "currency": currency}
            time_ns = max(ends_ns, default=now_ns)
            points.append(make_point("allocation", {**tags, **own}, {"cost": float(left)}, time_ns))
    ledger.append(points, {ALLOCATING_STATE: None})


def _unallocated(store_path: Path) -> _Rest:
    """Return the cost of each device, in each currency, less what was allocated of it."""
    rest: _Rest = {}
    signs = {"cost_total": 1, "allocated_cost_total": -1}
    with closing(StoreReader.open(store_path)) as reader:
        for sample in reader.totals():
            if sample.name in signs:
                key = (sample.labels.get("device", ""), sample.labels.get("currency", ""))
                rest[key] = rest.get(key, Decimal(0)) + signs[sample.name] * sample.value
    return rest


def _document(rest: _Rest) -> list[list[str]]:
    return [[device, currency, str(amount)] for (device, currency), amount in rest.items()]


def _rest_of(document: Iterable[Sequence[str]]) -> _Rest:
    return {(device, currency): Decimal(amount) for device, currency, amount in document}
