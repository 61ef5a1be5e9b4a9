"""Probe jobs: when a probe may run, and the handling of its outcome.

Each target of a probe has one job with its place in the schedule. The probes of one device share
their order and their duty budget, the share of a device's time that probing may use; both are
kept across restarts. Each probe has a part of the budget and pays its runs from this part alone, so
that no probe delays another. Earlier runs are read from the store for the schedule at a start, and for
rolling costs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from costprobe import __version__
from costprobe.adapters.probe_child.results import ProbeFault
from costprobe.adapters.store.ledger import Ledger, restored
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock, row_ns, utc_ns
from costprobe.core.columns import number
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S, Device, Event
from costprobe.core.schema import event_point
from costprobe.core.statistics import WINDOWS_S, RollingCosts, RollingSample
from costprobe.devices.use import DeviceWindows, ProbeRuns
from costprobe.pricing.book import Terms
from costprobe.pricing.prices import RememberedPrices, terms_state
from costprobe.probing.cost import ProbeRun, ProbeState, account_run
from costprobe.probing.rows import report_document, run_points
from costprobe.probing.run import AnyProbe, Listeners, Measurer, ProbeTarget, targets
from costprobe.probing.settings import AnyProbeConfig, ProbeConfig, ProbingConfig

logger = logging.getLogger(__name__)

if TYPE_CHECKING:  # apscheduler takes time, and commands run no jobs
    from costprobe.adapters.host.schedule import Schedule

# Length of the sliding window.
WINDOW_S = 3600.0
# Runs of a probe that end in the same part of the window are kept as one, which ends with the last.
PART_S = 30.0
# Costs per inference of (device, probe, currency) since a UTC ns, oldest first.
CostHistory = Callable[[str, str, str, int], Iterable[RollingSample]]

FULL_DUTY = 1.0
# Longest wait for a run that was cancelled to end, in s.
CANCELLED_S = 2.0
# Interval at which a deferred run checks whether the device is still busy, in s.
BUSY_CHECK_S = 2.0


class DutyRun(NamedTuple):
    """Runs of a probe within PART_S.

    Attributes:
        probe: Name of the probe.
        time_s: End of the last run in monotonic s.
        busy_s: Device time of the runs in s.
        energy: Whether they included an energy window.
    """

    probe: str
    time_s: float
    busy_s: float
    energy: bool


@dataclass(frozen=True, slots=True)
class JobParts:
    """The parts that all probe jobs share.

    Attributes:
        measurer: Runs a probe.
        accounts: Prices and stores its results.
        ledger: Keeps the last result, fault and durations for a restart or a reload.
        clock: The host's clocks.
        listeners: Callbacks.
    """

    measurer: Measurer
    accounts: ProbeAccounts
    ledger: Ledger
    clock: Clock
    listeners: Listeners


class HostProbes:
    """The probe jobs of this host.

    Args:
        probing: The section [probing].
        probes: The configured probes.
        devices: The discovered devices.
        sensor: Measures the energy of the runs.
        accounts: Prices and stores the results.
        ledger: Keeps the last results for a restart or a reload.
        clock: The host's clocks.
        listeners: Callbacks.
        runs: Receives when the probes used the devices.
        missing: Returns why devices are not measured, by name.
        lock_folder: Folder of the devices' lock files.
        stop: Ends running probes.
    """

    def __init__(  # noqa: PLR0913 - the parts that it combines
        self,
        probing: ProbingConfig,
        probes: Sequence[AnyProbeConfig],
        devices: Sequence[Device],
        sensor: DeviceWindows,
        accounts: ProbeAccounts,
        ledger: Ledger,
        *,
        clock: Clock,
        listeners: Listeners,
        runs: ProbeRuns,
        missing: Callable[[], Mapping[str, str]],
        lock_folder: Path,
        stop: Flag,
    ) -> None:
        self._probing = probing
        self._probes = probes
        self._names = {device.name for device in devices}
        self._missing = missing
        self._built_ns = clock.time_ns()
        self._measurer = Measurer(sensor, ledger, lock_folder, stop, clock.monotonic_ns, runs)
        queues = self._queues = {
            device.name: DeviceQueue(device.name, probing.duty, ledger, clock) for device in devices
        }
        parts = JobParts(self._measurer, accounts, ledger, clock, listeners)
        self.jobs = [
            ProbeJob(probe, target, [queues[device.name] for device in target.devices], parts)
            for probe in probes
            for target in targets(probe, devices)
        ]

    def schedule_on(self, schedule: Schedule, history: StoredHistory) -> None:
        """Add the jobs to a schedule; one that did not run for a period also runs now.

        Args:
            schedule: The schedule.
            history: The runs in the store.

        Raises:
            StoreError: The store cannot be read.
        """
        for job in self.jobs:
            schedule.add(
                job.name,
                job.probe.every_s,
                job,
                at_once=self._probing.duty >= FULL_DUTY
                or not history.ran_lately(job.target.name, job.probe.name, job.probe.every_s),
            )

    def status(self, schedule: Schedule) -> list[dict[str, Any]]:
        """Return the status of each job, with its next run in UTC ns; None if it does not run.

        A probe of a device that is absent has a fault, and no job.
        """
        states = [
            {**job.status(), "next_ns": schedule.next_run_ns(job.name, job.wait_s())}
            for job in self.jobs
        ]
        missing = self._missing()
        return states + [
            self._without_device(probe, name, missing.get(name))
            for probe in self._probes
            for name in (missing if probe.devices == "all" else probe.devices)
            if name not in self._names
        ]

    def _without_device(
        self, probe: AnyProbeConfig, name: str, reason: str | None
    ) -> dict[str, Any]:
        """Return the status of a probe whose device is absent."""
        fault = {
            "time_ns": self._built_ns,
            "kind": "device",
            "title": reason or f"{name} is no device of this host",
            "stderr_tail": [],
        }
        return {**_status(probe, name, self._probing.duty), "fault": fault, "next_ns": None}

    def close(self) -> None:
        """End the running probes."""
        self._measurer.close()

    def wait_for_records(self) -> None:
        """Wait until ended runs are recorded, so that the queues of the next configuration count their time."""
        all(queue.is_ended_within(CANCELLED_S) for queue in self._queues.values())


def _status(probe: AnyProbe, device: str, share: float) -> dict[str, Any]:
    """Return the status of a probe that never ran."""
    return {
        "probe": probe.name,
        "device": device,
        "every_s": probe.every_s,
        "allowed_every_s": probe.every_s,
        "run_s": None,
        "skipped_for_budget": 0,
        "skipped_for_neighbour": 0,
        "deferred": 0,
        "budget_share": share,
        "budget_used_share": 0.0,
        "last": None,
        "fault": None,
    }


class ProbeJob:
    """One probe on its devices, called by the schedule.

    Args:
        probe: The probe.
        target: Its devices.
        queues: One for each device of the target, shared with the device's other probes.
        parts: What all jobs share.
    """

    def __init__(
        self,
        probe: AnyProbe,
        target: ProbeTarget,
        queues: Sequence[DeviceQueue],
        parts: JobParts,
    ) -> None:
        self.probe = probe
        self.target = target
        # Locked in the order of the devices' names, which prevents a deadlock of two jobs.
        by_name = sorted(zip(target.devices, queues, strict=True), key=lambda pair: pair[0].name)
        self._queues = [queue for _, queue in by_name]
        self._parts = parts
        self._known = restored(parts.ledger, self._state, _stored_job) or _JobState()
        self._ran_s = max(queue.ran_s(probe.name) for queue in queues)
        self._energy_s = max(queue.ran_s(probe.name, energy=True) for queue in queues)
        self._is_warned = False
        self._expect()
        self._skipped = 0
        self._skipped_busy = 0
        self._deferred = 0

    @property
    def name(self) -> str:
        """Name of the job in the schedule."""
        return f"probe {self.probe.name} on {self.target.name}"

    @property
    def _state(self) -> str:
        return f"job {self.target.name} {self.probe.name}"

    def __call__(self) -> None:
        """Run the probe if the duty budget and the device's load permit it."""
        with ExitStack() as locks:
            for queue in self._queues:
                locks.enter_context(queue.lock)
            if self.wait_s() > 0:
                self._skipped += 1
                return
            if not self._may_start():
                return
            started_s, interval = self._now_s(), self._interval()
            every_s, period_s = interval.every_s, self.probe.every_s
            energy_due_s = _due_s(self._energy_s, interval.energy_s, every_s)
            energy = self.probe.carries_energy and started_s >= energy_due_s
            self._ran_s = _planned_s(self._ran_s, every_s, period_s, started_s)
            if energy:
                self._energy_s = _planned_s(self._energy_s, interval.energy_s, every_s, started_s)
            outcome = self._parts.measurer.run(
                self.probe,
                self.target,
                energy=energy,
                on_progress=partial(self._parts.listeners.on_progress, self.probe, self.target),
            )
            if isinstance(outcome, ProbeFault):
                # Its device time is unknown: the whole duration counts, but not that of waiting for others.
                spent_s = 0.0 if outcome.kind == "busy" else self._now_s() - started_s
                self._record(spent_s, energy=energy)
                self._failed(outcome, spent_s)
            else:
                self._measured(outcome, energy=energy)

    def status(self) -> dict[str, Any]:
        """Return the status of the job for `costprobe status`."""
        used = max(queue.used_share() for queue in self._queues)
        share = min(queue.share for queue in self._queues)
        return {
            **_status(self.probe, self.target.name, share),
            "allowed_every_s": self._interval().every_s,
            "run_s": self._known.full_s or self._known.latency_only_s or None,
            "skipped_for_budget": self._skipped,
            "skipped_for_neighbour": self._skipped_busy,
            "deferred": self._deferred,
            "budget_used_share": used,
            "last": self._known.last,
            "fault": self._known.fault,
        }

    def wait_s(self) -> float:
        """Return the seconds until the duty budget allows a run."""
        due_s = _due_s(self._ran_s, self._interval().every_s, self.probe.every_s)
        known = self._known
        is_known = max(known.failed_s, known.full_s, known.latency_only_s) > 0
        # What the first run takes, which may search the batch, is known only after it.
        spent_s = 0.0 if is_known else max(q.spent_s(self.probe.name) for q in self._queues)
        return max(spent_s, due_s - self._now_s())

    def _interval(self) -> Interval:
        """Return the intervals that the budgets of all devices allow."""
        allowed = [queue.interval(self.probe.name) for queue in self._queues]
        return Interval(*map(max, zip(*allowed, strict=True)))

    def _expect(self) -> None:
        """Tell the queues how long runs with and without an energy window take."""
        known, probe = self._known, self.probe
        full_s = known.full_s if probe.carries_energy else 0.0
        latency_s = max(known.latency_only_s, known.failed_s)
        needed = Needed(probe.every_s, max(full_s, latency_s), latency_s)
        for queue in self._queues:
            queue.expect(probe.name, needed)

    def _now_s(self) -> float:
        return self._parts.clock.monotonic_ns() / NS_PER_S

    def _may_start(self) -> bool:
        """Apply `when_busy` to the device's load; return False if the run is skipped."""
        probe, measurer, device = self.probe, self._parts.measurer, self.target.devices[0]
        if (
            not isinstance(probe, ProbeConfig)
            or probe.when_busy == "run"
            or not measurer.is_busy(device)
        ):
            return True
        if probe.when_busy == "skip":
            self._skipped_busy += 1
            return False
        self._deferred += 1
        ends_s = self._now_s() + probe.deferral_s
        while self._now_s() < ends_s:
            if measurer.is_ended_within(min(BUSY_CHECK_S, probe.deferral_s)):
                return False
            if not measurer.is_busy(device):
                break
        return not measurer.is_ended_within(0)

    def _record(self, busy_s: float, *, energy: bool) -> None:
        for queue in self._queues:
            queue.record(self.probe.name, busy_s, energy=energy)

    def _store_state(self) -> None:
        self._parts.ledger.put_state(self._state, asdict(self._known))

    def _measured(self, measured: ProbeRun, *, energy: bool) -> None:
        busy_s, known = measured.busy_s, self._known
        known.failed_s = 0.0
        self._record(busy_s, energy=energy)
        # A run that searches the batch is longer than those that follow.
        if not measured.curve:
            known.full_s = busy_s if energy else known.full_s
            known.latency_only_s = max(busy_s - self.probe.window_s, 0.0) if energy else busy_s
        self._expect()
        self.warn_if_long()
        run = self._parts.accounts.take_probe(measured)
        known.last, known.fault = report_document(run), None
        self._store_state()
        self._parts.listeners.on_report(run)

    def warn_if_long(self) -> None:
        """Report once that a run is longer than the budget of an hour."""
        run_s, share = self.status()["run_s"] or 0.0, min(queue.share for queue in self._queues)
        if self._is_warned or run_s <= share * WINDOW_S:
            return
        self._is_warned = True
        every_s, energy_s = self._interval()
        energy = f", with energy every {energy_s / 3600:.2g} h" if energy_s > every_s else ""
        logger.warning(
            "%s: a run takes %.3g s of the device, more than the %.3g s an hour that [probing] duty = %.3g %% allows:"
            " it runs every %.3g min%s. Raise duty for more",
            self.name,
            run_s,
            share * WINDOW_S,
            share * 100,
            every_s / 60,
            energy,
        )

    def _failed(self, fault: ProbeFault, spent_s: float) -> None:
        if fault.kind == "cancelled":
            return
        time_ns = self._parts.clock.time_ns()
        stderr_tail = " | ".join(fault.stderr_tail)
        # An interruption is no fault of the probe: the next run follows as planned.
        is_fault = fault.kind != "interrupted"
        if is_fault:
            self._known.fault = {
                "time_ns": time_ns,
                "kind": fault.kind,
                "title": fault.title,
                "stderr_tail": list(fault.stderr_tail),
            }
            self._known.failed_s = spent_s
            self._expect()
        self._store_state()
        level = logging.WARNING if is_fault else logging.INFO
        logger.log(level, "%s: %s: %s; stderr: %s", self.name, fault.kind, fault.title, stderr_tail)
        self._parts.accounts.take_event(
            Event(
                kind="fault",
                severity="warning" if is_fault else "info",
                title=f"probe {self.probe.name} on {self.target.name}: {fault.title}",
                time_ns=time_ns,
                detail=stderr_tail,
                device=self.target.name,
                subject={"probe": self.probe.name},
                cause=fault.kind if is_fault else "gap",
            )
        )
        self._parts.listeners.on_fault(self.probe, self.target, fault)


@dataclass(slots=True)
class _JobState:
    """What a job continues with after a restart.

    Attributes:
        version: The version that wrote it: another one may have other keys.
        full_s: How long a run with an energy window took.
        latency_only_s: How long a run without one took.
        failed_s: How long the last run took if it failed; 0 if it did not.
        last: The last result, for `costprobe status`; None before the first.
        fault: The fault of the last run; None if it had none.
    """

    version: str = __version__
    full_s: float = 0.0
    latency_only_s: float = 0.0
    failed_s: float = 0.0
    last: dict[str, Any] | None = None
    fault: dict[str, Any] | None = None


def _stored_job(document: Mapping[str, Any]) -> _JobState:
    state = TypeAdapter(_JobState).validate_python(document)
    return state if state.version == __version__ else _JobState()


def _due_s(planned_s: float, every_s: float, period_s: float) -> float:
    """Return from when a run is due, `every_s` after another, at the nearest of starts each `period_s`.

    Runs in a burst would leave the rest of the hour without any, which looks like a failure.
    """
    return -math.inf if every_s <= period_s else planned_s + every_s - period_s / 2


def _planned_s(before_s: float, every_s: float, period_s: float, now_s: float) -> float:
    """Return when a run that starts now was planned.

    What rounding to the nearest start moved this run, the following ones make up for.
    """
    planned_s = before_s + every_s
    return planned_s if abs(planned_s - now_s) <= period_s / 2 else now_s


class Needed(NamedTuple):
    """What a probe needs of a device.

    Attributes:
        every_s: Its interval in s.
        full_s: Device time of a run with an energy window in s; 0 if none has run yet.
        latency_only_s: Device time of one without.
    """

    every_s: float
    full_s: float
    latency_only_s: float

    @property
    def share(self) -> float:
        """Share of the device's time that all runs with an energy window take."""
        return self.full_s / self.every_s if self.full_s else math.inf


class Interval(NamedTuple):
    """The intervals that a budget allows.

    Attributes:
        every_s: Seconds between two runs.
        energy_s: Seconds between two runs with an energy window.
    """

    every_s: float
    energy_s: float


class DeviceQueue:
    """Shared by the probes of one device: they run one after another, within one budget.

    Each probe may use an equal part of the budget, and of what other probes leave of theirs. Its runs
    are spread evenly over time, so that they take this part on average. Where the part is too small for
    all of its runs, some measure latency only; where it is too small even for those, at least half of
    it is for latency, which shows a change first: the last measured energy is used in between. A run is
    never shortened to fit: one that is longer than the budget of an hour follows after several hours.

    Args:
        device: Name of the device.
        share: Largest share of the device's time that probing may take, from 0 to 1.
        ledger: Keeps the runs for a restart or a reload.
        clock: The host's clocks.
    """

    def __init__(self, device: str, share: float, ledger: Ledger, clock: Clock) -> None:
        self.lock = Lock()
        self.share = share
        self._state = f"duty {device}"
        self._ledger = ledger
        self._clock = clock
        # Runs of the last hour, and the last ones of each probe; oldest first.
        self._runs = self._stored()
        self._needed: dict[str, Needed] = {}

    def is_ended_within(self, wait_s: float) -> bool:
        """Wait until a cancelled run has ended, and is recorded; return whether it has."""
        is_ended = self.lock.acquire(timeout=wait_s)
        if is_ended:
            self.lock.release()
        return is_ended

    def expect(self, probe: str, needed: Needed) -> None:
        """Expect runs of a probe."""
        # Another thread may be reading the previous mapping.
        self._needed = {**self._needed, probe: needed}

    def interval(self, probe: str) -> Interval:
        """Return the intervals of a probe at which the expected runs fit its part of the budget."""
        every_s, full_s, latency_s = self._needed[probe]
        part = self._part()
        if self.share >= FULL_DUTY or not full_s or full_s <= part * every_s:
            return Interval(every_s, 0.0)
        # Half of the part for each kind of run: their mean is harmonic.
        mean_s = 2 * full_s * latency_s / (full_s + latency_s)
        allowed_s = max(every_s, mean_s / part)
        if full_s == latency_s:
            return Interval(allowed_s, 0.0)
        return Interval(allowed_s, (full_s - latency_s) / (part - latency_s / allowed_s))

    def _part(self) -> float:
        """Return the largest share of the device's time that a probe may use."""
        needed, left = self._needed.values(), self.share
        for ended, need in enumerate(sorted(each.share for each in needed)):
            part = left / (len(needed) - ended)
            if need > part:
                return part
            left -= need
        return self.share

    def spent_s(self, probe: str) -> float:
        """Return the seconds until runs of the last hour leave a rest of the budget, and of a probe's part.

        A probe that is due less than once an hour waits for its own part only: others may have used up the
        budget each time that it is due.
        """
        if self.share >= FULL_DUTY:
            return 0.0
        runs, part = self._last_hour(), self._part()
        if self._needed[probe].every_s >= WINDOW_S:
            runs = [run for run in runs if run.probe == probe]
        for ended in range(len(runs)):
            total_s = math.fsum(run.busy_s for run in runs[ended:])
            own_s = math.fsum(run.busy_s for run in runs[ended:] if run.probe == probe)
            if total_s < self.share * WINDOW_S and own_s < part * WINDOW_S:
                return runs[ended - 1].time_s + WINDOW_S - self._now_s() if ended else 0.0
        return runs[-1].time_s + WINDOW_S - self._now_s() if runs else 0.0

    def used_share(self) -> float:
        """Return the share of the device's time that runs of the last hour used."""
        return math.fsum(run.busy_s for run in self._last_hour()) / WINDOW_S

    def ran_s(self, probe: str, *, energy: bool = False) -> float:
        """Return when a probe's last run, or that with an energy window, ended in monotonic s; -inf without one."""
        runs = (run for run in self._runs if run.probe == probe and run.energy >= energy)
        return max((run.time_s for run in runs), default=-math.inf)

    def record(self, probe: str, busy_s: float, *, energy: bool) -> None:
        """Record a run that ends now, and store it.

        Args:
            probe: Name of the probe.
            busy_s: Device time of the run in s.
            energy: Whether it included an energy window.
        """
        now_s = self._now_s()
        last = {(run.probe, run.energy): run for run in self._runs if run.probe in self._needed}
        before = last.pop((probe, energy), None)
        since_s = now_s - WINDOW_S
        runs = [run for run in self._runs if run.time_s > since_s or run in last.values()]
        if before is not None and before.time_s // PART_S == now_s // PART_S:
            runs.remove(before)
            busy_s += before.busy_s
        # Another thread may be reading the previous list.
        self._runs = [*runs, DutyRun(probe, now_s, busy_s, energy)]
        offset_ns = utc_ns(self._clock, 0)
        document = [
            [run.probe, offset_ns + int(run.time_s * NS_PER_S), run.busy_s, run.energy]
            for run in self._runs
        ]
        self._ledger.put_state(self._state, document)

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def _last_hour(self) -> list[DutyRun]:
        since_s = self._now_s() - WINDOW_S
        return [run for run in self._runs if run.time_s > since_s]

    def _stored(self) -> list[DutyRun]:
        """Return the stored runs; a run from the future counts as of now."""
        now_s = self._now_s()
        offset_ns = utc_ns(self._clock, 0)

        def runs_of(document: Iterable[Iterable[Any]]) -> list[DutyRun]:
            return [
                DutyRun(
                    str(probe),
                    min((int(time_ns) - offset_ns) / NS_PER_S, now_s),
                    float(busy_s),
                    bool(energy),
                )
                for probe, time_ns, busy_s, energy in document
            ]

        return restored(self._ledger, self._state, runs_of) or []


class ProbeAccounts:
    """Price probe runs and store them.

    Args:
        prices: The prices, with the terms before.
        ledger: Stores rows.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        history: Stored costs, from which the rolling windows are filled after a start.
    """

    def __init__(
        self,
        prices: RememberedPrices,
        ledger: Ledger,
        clock: Clock,
        tags: Mapping[str, str],
        history: CostHistory,
    ) -> None:
        self._prices = prices
        self._ledger = ledger
        self._clock = clock
        self._tags = dict(tags)
        self._history = history
        self._states: dict[tuple[str, str], ProbeState] = {}

    def take_event(self, event: Event) -> None:
        """Store an event of a probe."""
        self._ledger.append([event_point(event, self._tags)])

    def take_probe(self, run: ProbeRun) -> ProbeRun:
        """Price a run, store its rows and events, and return it complete."""
        device, probe = run.device, run.probe
        time_ns = row_ns(self._clock, run.window_end_ns)
        prices = self._prices.at(device, time_ns)
        before = self._state(run, prices.terms, time_ns)
        priced, events, state = account_run(run, prices, before, time_ns)
        self._states[device, probe] = state
        document = state.document()
        changed = {_state_name(device, probe): document} if document != before.document() else {}
        rows = run_points(priced, self._tags) + [event_point(event, self._tags) for event in events]
        # In one transaction: a crash between them would lose or repeat an event.
        self._ledger.append(rows, {**changed, **terms_state(device, prices)})
        return priced

    def _state(self, run: ProbeRun, terms: Terms | None, time_ns: int) -> ProbeState:
        """Return the probe's state, with rolling costs in the currency of the terms in force."""
        device, probe = run.device, run.probe
        state = self._states.get((device, probe))
        if state is None:
            name = _state_name(device, probe)
            state = restored(self._ledger, name, ProbeState.from_document) or ProbeState()
        if terms is None:
            return state
        currency = terms.rate.currency
        # After the wall clock was set back only the stored rows are complete: samples taken while it
        # was ahead removed older ones.
        is_continued = state.costs is not None and state.costs.newest_ns <= time_ns
        if is_continued and state.currency == currency:
            return state
        since_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
        stored = self._history(device, probe, currency, since_ns)
        costs = RollingCosts.of(run.every_s, (cost for cost in stored if cost.time_ns < time_ns))
        return replace(state, costs=costs, currency=currency)


def _state_name(device: str, probe: str) -> str:
    return f"probe {device} {probe}"


class StoredHistory:
    """Reads earlier runs; each question opens the store for itself.

    Args:
        store_path: The store.
        clock: UTC.
    """

    def __init__(self, store_path: Path, clock: Clock) -> None:
        self._store_path = store_path
        self._clock = clock

    def ran_lately(self, device: str, probe: str, every_s: float) -> bool:
        """Return whether the last run is more recent than a period, so that a start runs no other.

        Raises:
            StoreError: The store cannot be read.
        """
        since_ns = self._clock.time_ns() - int(every_s * NS_PER_S)
        with closing(StoreReader.open(self._store_path)) as reader:
            tags = {"device": device, "probe": probe}
            return any(reader.points("probe", since_ns, END_OF_TIME_NS, tags))

    def costs(
        self, device: str, probe: str, currency: str, since_ns: int
    ) -> Iterable[RollingSample]:
        """Return the costs per inference of a probe since UTC ns, in order of time.

        Raises:
            StoreError: The store cannot be read.
        """
        tags = {"device": device, "probe": probe, "basis": "probe", "currency": currency}
        with closing(StoreReader.open(self._store_path)) as reader:
            return [
                RollingSample(row.time_ns, value, row.fields.get("contended") is True)
                for row in reader.points("cost", since_ns, END_OF_TIME_NS, tags)
                if (value := number(row, "cost_per_inference")) is not None
            ]
