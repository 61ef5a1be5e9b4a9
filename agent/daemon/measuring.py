"""One probe run: the child works, the sensor marks the region's edges, the two are joined."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from agent.config_probe import ProbeConfig, ServedProbeConfig
from agent.daemon.accounts import Ledger, Measured
from agent.daemon.probe_requests import batch_name, model_request, served_request
from agent.daemon.probe_runs import ProbeRuns
from agent.model import NS_PER_S, Device, Energy, EnergyMethod
from agent.pricing.book import TOGETHER
from agent.probing.lock import device_lock
from agent.probing.neighbour import Load
from agent.probing.outcome import ProbeFault, ProbeOutcome, ProbeProgress
from agent.probing.request import ProbeRequest, ServedRequest
from agent.probing.runner import ProbeRunner
from agent.telemetry.activity import Activity, worst_of
from agent.telemetry.energy import Absent
from agent.telemetry.supervisor import SensorSupervisor

ANSWER_TIMEOUT_S = 10.0
LOOK_BACK_NS = 2 * NS_PER_S
# A short run is judged by the sample that follows it as well.
LOOK_BEHIND_S = 2.0
# From the least to the most trusted: a sum is no better than its worst part.
TRUST: tuple[EnergyMethod, ...] = ("modelled", "rapl", "poll", "samples", "counter")

AnyProbe = ProbeConfig | ServedProbeConfig


@dataclass(frozen=True, slots=True)
class Target:
    """The devices that a run uses: one for a model, one or several for a server.

    Attributes:
        devices: At least one.
    """

    devices: tuple[Device, ...]

    @property
    def name(self) -> str:
        """The tag `device` of its rows: "gpu0", or "gpu0+gpu1" for several that work as one."""
        return TOGETHER.join(device.name for device in self.devices)

    @property
    def board(self) -> str:
        """Identities of its boards; empty for a CPU, or MIG devices, which are made anew at times."""
        has_one = all(device.kind == "gpu" for device in self.devices)
        return TOGETHER.join(device.uuid for device in self.devices) if has_one else ""


class Measurer:
    """Runs probes and asks the sensors what the devices did meanwhile.

    Args:
        sensor: The sensor child's supervisor.
        ledger: Remembers the best batch of each device, model and software.
        lock_folder: Where the devices' locks live.
        stop: Ends a run.
        now_ns: CLOCK_MONOTONIC ns.
        runs: Told when models run on a device; None where nobody wants to know.
    """

    def __init__(
        self,
        sensor: SensorSupervisor,
        ledger: Ledger,
        lock_folder: Path,
        stop: Event,
        now_ns: Callable[[], int],
        runs: ProbeRuns | None = None,
    ) -> None:
        self._sensor = sensor
        self._ledger = ledger
        self._lock_folder = lock_folder
        self._stop = stop
        self._now_ns = now_ns
        self._runs = runs
        self._runners: dict[tuple[str, str], ProbeRunner] = {}

    def run(
        self,
        probe: AnyProbe,
        target: Target,
        *,
        energy: bool,
        on_progress: Callable[[ProbeProgress], None],
        search_anew: bool = False,
    ) -> Measured | ProbeFault:
        """Runs a probe once, alone on its devices among all of infercost's probes.

        Args:
            probe: What to run.
            target: Where.
            energy: True if the run shall carry an energy window.
            on_progress: Told of the phases of the run.
            search_anew: True to search the batch whatever is remembered of it.
        """
        with ExitStack() as locks:
            # In the order of their names: two runs never wait for each other.
            for device in sorted(target.devices, key=lambda device: device.name):
                lock = device_lock(self._lock_folder, device.name, self._stop, probe.every_s)
                if not locks.enter_context(lock):
                    return ProbeFault("busy", f"another probe kept {device.name} busy", ())
            if self._stop.is_set():
                return ProbeFault("cancelled", "the run was ended", ())
            # A server that is asked is a service of its own: its requests bear what they cost.
            runs = self._runs if isinstance(probe, ProbeConfig) else None
            if runs is not None:
                runs.begin(target.name, self._now_ns())
            outcome: ProbeOutcome | ProbeFault | None = None
            self._watch(target.devices, probe.deadline_s)
            try:
                outcome = self._runner(probe, target).run(
                    self._request(probe, target, energy=energy, search_anew=search_anew),
                    target.name,
                    on_edge=lambda: self._mark(target.devices),
                    on_progress=on_progress,
                )
            finally:
                self._watch(target.devices, LOOK_BEHIND_S)
                if runs is not None:
                    runs.end(target.name, self._now_ns(), outcome)
        if isinstance(outcome, ProbeFault):
            return outcome
        if isinstance(probe, ProbeConfig):
            self._remember_batch(probe, target.devices[0], outcome)
        return self._joined(probe, target, outcome)

    def load(self, device: Device) -> Load:
        """How busy a device has been in the last moments, before a probe begins."""
        now_ns = self._now_ns()
        activity = self._sensor.activity(
            device.name, now_ns - LOOK_BACK_NS, now_ns, own_pids=(), timeout_s=ANSWER_TIMEOUT_S
        )
        return Load(activity.util_pct, has_processes=activity.contended)

    def is_ended_within(self, seconds: float) -> bool:
        """Waits so long, and no longer than until runs are to end; True if they are."""
        return self._stop.wait(seconds)

    def close(self) -> None:
        """Ends the children that are kept warm."""
        for runner in self._runners.values():
            runner.close()

    def _watch(self, devices: Sequence[Device], for_s: float) -> None:
        """Has the sensors read all of the devices' conditions at every sample from now on."""
        until_ns = self._now_ns() + int(for_s * NS_PER_S)
        for device in devices:
            self._sensor.watch(device.name, until_ns)

    def _mark(self, devices: Sequence[Device]) -> None:
        """Has the sensors read an edge; where they cannot, the energy's answer says so."""
        for device in devices:
            self._sensor.mark(device.name)

    def _runner(self, probe: AnyProbe, target: Target) -> ProbeRunner:
        key = (probe.name, target.name)
        if key not in self._runners:
            self._runners[key] = ProbeRunner(
                python=str(probe.python or sys.executable),
                deadline_s=probe.deadline_s,
                stop=self._stop,
                keep_alive=isinstance(probe, ProbeConfig) and probe.keep_alive,
            )
        return self._runners[key]

    def _request(
        self, probe: AnyProbe, target: Target, *, energy: bool, search_anew: bool
    ) -> ProbeRequest | ServedRequest:
        if not isinstance(probe, ProbeConfig):
            return served_request(probe, energy=energy)
        device = target.devices[0]
        remembered = None if search_anew else self._ledger.state(batch_name(probe, device))
        return model_request(probe, device, remembered or {}, energy=energy)

    def _remember_batch(self, probe: ProbeConfig, device: Device, outcome: ProbeOutcome) -> None:
        if probe.batch != "auto" or not outcome.curve:
            return
        result = outcome.result
        document = {
            "batch": result.batch,
            "fingerprint": result.fingerprint,
            "curve": [dict(point) for point in outcome.curve],
        }
        self._ledger.put_state(batch_name(probe, device), document)

    def _joined(self, probe: AnyProbe, target: Target, outcome: ProbeOutcome) -> Measured:
        result = outcome.result
        energy: Energy | Absent = Absent("this run carried no energy window")
        if result.has_energy_window:
            energy = summed([self._energy(device, outcome) for device in target.devices])
        activity = worst_of([self._activity(device, outcome) for device in target.devices])
        if not isinstance(probe, ProbeConfig):
            # The server itself is the other process that a probe of a model would look out for.
            activity = activity.without_neighbour()
        return Measured(
            result=result,
            energy=None if isinstance(energy, Absent) else energy,
            energy_absent=energy.reason if isinstance(energy, Absent) else "",
            activity=activity.fields(),
            every_s=probe.every_s,
            curve=outcome.curve,
            board=target.board,
        )

    def _energy(self, device: Device, outcome: ProbeOutcome) -> Energy | Absent:
        return self._sensor.energy(
            device.name,
            outcome.result.region_start_ns,
            outcome.result.region_end_ns,
            outcome.steady_start_ns,
            outcome.steady_end_ns,
            timeout_s=ANSWER_TIMEOUT_S,
        )

    def _activity(self, device: Device, outcome: ProbeOutcome) -> Activity:
        return self._sensor.activity(
            device.name,
            outcome.result.region_start_ns,
            outcome.result.region_end_ns,
            own_pids=outcome.pids,
            timeout_s=ANSWER_TIMEOUT_S,
        )


def summed(energies: Sequence[Energy | Absent]) -> Energy | Absent:
    """The energy of devices that worked as one, by the least trusted of their methods.

    Their errors are taken to go the same way, as those of boards of one make may.

    Args:
        energies: One for each device, at least one; where one is absent the sum is.
    """
    known = [energy for energy in energies if isinstance(energy, Energy)]
    if len(known) < len(energies):
        return next(energy for energy in energies if isinstance(energy, Absent))
    if len(known) == 1:
        return known[0]
    total_j = sum(energy.energy_j for energy in known)
    idle_w = [energy.idle_power_w for energy in known if energy.idle_power_w is not None]
    scopes = {energy.scope for energy in known}
    told = [energy.suspect for energy in known if energy.suspect is not None]
    return Energy(
        energy_j=total_j,
        method=min((energy.method for energy in known), key=TRUST.index),
        rel_err=sum(energy.rel_err * energy.energy_j for energy in known) / total_j,
        idle_power_w=sum(idle_w) if len(idle_w) == len(known) else None,
        scope="parent" if "parent" in scopes else "device",
        suspect=any(told) if told else None,
    )
