"""One probe run: the result of the child joined with the sensors' measurements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from costprobe.adapters.probing.child import LOAD_COMMAND, worker_command
from costprobe.adapters.probing.lock import device_lock
from costprobe.adapters.probing.model_settings import ProbeConfig
from costprobe.adapters.probing.neighbour import DeviceLoad
from costprobe.adapters.probing.outcome import ProbeFault, ProbeOutcome, ProbeProgress
from costprobe.adapters.probing.probe_request import ProbeRequest
from costprobe.adapters.probing.request import (
    batch_name,
    model_request,
    served_request,
    start_request,
)
from costprobe.adapters.probing.runner import ProbeRunner
from costprobe.adapters.probing.start_outcome import StartOutcome
from costprobe.adapters.sensors.protocol.activity import Activity, worst_of
from costprobe.adapters.sensors.protocol.sample import Absent
from costprobe.adapters.sensors.supervisor.supervisor import SensorSupervisor
from costprobe.app.accounting.ledger import Ledger, restored
from costprobe.app.accounting.probe_runs import ProbeRuns
from costprobe.app.measuring.targets import AnyProbe, ProbeTarget
from costprobe.core.records import NS_PER_S, Device, Energy
from costprobe.domain.costing.energy_sum import energy_sum
from costprobe.domain.costing.load.point import LoadStep
from costprobe.domain.costing.probe.part_time import with_sampling_error
from costprobe.domain.costing.probe.run import MeasuredRun

ANSWER_TIMEOUT_S = 10.0
# The load of a device is that of this time before now, in ns.
LOAD_SPAN_NS = 2 * NS_PER_S
# All metrics are still sampled for this time after a run, in s, so that a short run has a sample.
WATCH_AFTER_S = 2.0


class Measurer:
    """Run probes, and query the sensors for energy and activity of the devices meanwhile.

    Args:
        sensor: The sensor child's supervisor.
        ledger: Stores the best batch of each device, model and software.
        lock_folder: Folder of the devices' lock files.
        stop: Ends a run.
        now_ns: CLOCK_MONOTONIC ns.
        runs: Records when models run on a device; None for no record.
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
        target: ProbeTarget,
        *,
        energy: bool,
        on_progress: Callable[[ProbeProgress], None],
        search_anew: bool = False,
        naive: bool = False,
        load: LoadStep | None = None,
    ) -> MeasuredRun | ProbeFault:
        """Run a probe once, with no other probe of costprobe on its devices.

        Args:
            probe: The probe.
            target: Its devices.
            energy: True for a run with an energy window.
            on_progress: Called with the run's progress.
            search_anew: True to search the batch even if a result is stored.
            naive: True to measure a model with common mistakes of timing, too.
            load: Point of a load curve that a run against a server measures.
        """
        with ExitStack() as locks:
            # Locked in the order of their names, which prevents a deadlock of two runs.
            for device in sorted(target.devices, key=lambda device: device.name):
                lock = device_lock(self._lock_folder, device.name, self._stop, probe.every_s)
                if not locks.enter_context(lock):
                    return ProbeFault("busy", f"another probe was using {device.name}", ())
            if self._stop.is_set():
                return ProbeFault("cancelled", "the run was ended", ())
            # The cost of a probe of a server is allocated to the requests of the service.
            runs = self._runs if isinstance(probe, ProbeConfig) else None
            if runs is not None:
                runs.begin(target.name, self._now_ns())
            outcome: ProbeOutcome | ProbeFault | None = None
            began_ns = self._now_ns()
            self._watch(target.devices, probe.deadline_s)
            try:
                outcome = self._runner(probe, target).run(
                    served_request(probe, energy=energy, load=load)
                    if not isinstance(probe, ProbeConfig)
                    else self._request(
                        probe, target, energy=energy, search_anew=search_anew, naive=naive
                    ),
                    target.name,
                    on_edge=lambda: self._mark(target.devices, probe.deadline_s),
                    on_progress=on_progress,
                )
            finally:
                self._watch(target.devices, WATCH_AFTER_S)
                if runs is not None:
                    runs.end(target.name, self._now_ns(), outcome)
        if isinstance(outcome, ProbeFault):
            return outcome
        if isinstance(probe, ProbeConfig):
            self._remember_batch(probe, target.devices[0], outcome, began_ns)
        return self._joined(probe, target, outcome)

    def start(
        self,
        probe: ProbeConfig,
        device: Device,
        *,
        list_files: bool,
        on_progress: Callable[[ProbeProgress], None],
    ) -> StartOutcome | ProbeFault:
        """Start a probe's model in a new process, with no other probe of costprobe on its device.

        Args:
            probe: The probe.
            device: Its device.
            list_files: Whether the files that the start reads are reported, which delays it.
            on_progress: Called with its progress.
        """
        with device_lock(self._lock_folder, device.name, self._stop, probe.every_s) as is_locked:
            if not is_locked:
                return ProbeFault("busy", f"another probe was using {device.name}", ())
            return self._runner(probe, ProbeTarget((device,))).start(
                start_request(probe, device, list_files=list_files), on_progress=on_progress
            )

    def load(self, device: Device) -> DeviceLoad:
        """Return the recent load on a device."""
        now_ns = self._now_ns()
        activity = self._sensor.activity(
            device.name, now_ns - LOAD_SPAN_NS, now_ns, own_pids=(), timeout_s=ANSWER_TIMEOUT_S
        )
        return DeviceLoad(activity.util_pct, has_processes=activity.contended)

    def is_ended_within(self, seconds: float) -> bool:
        """Wait; return True as soon as runs have to end."""
        return self._stop.wait(seconds)

    def close(self) -> None:
        """End the children that are kept alive."""
        for runner in self._runners.values():
            runner.close()

    def _watch(self, devices: Sequence[Device], for_s: float) -> None:
        """Request that the sensors sample all metrics of the devices for a time."""
        until_ns = self._now_ns() + int(for_s * NS_PER_S)
        for device in devices:
            self._sensor.watch(device.name, until_ns)

    def _mark(self, devices: Sequence[Device], deadline_s: float) -> None:
        """Request a reading at an edge of the window; a failure is reported by the energy answer."""
        for device in devices:
            self._sensor.mark(device.name)
        # Compilation extends a run beyond the deadline that it began with.
        self._watch(devices, deadline_s)

    def _runner(self, probe: AnyProbe, target: ProbeTarget) -> ProbeRunner:
        key = (probe.name, target.name)
        if key not in self._runners:
            self._runners[key] = ProbeRunner(
                _child_command(probe),
                deadline_s=probe.deadline_s,
                stop=self._stop,
                keep_alive=isinstance(probe, ProbeConfig) and probe.keep_alive,
            )
        return self._runners[key]

    def _request(
        self,
        probe: ProbeConfig,
        target: ProbeTarget,
        *,
        energy: bool,
        search_anew: bool,
        naive: bool,
    ) -> ProbeRequest:
        device = target.devices[0]
        name = batch_name(probe, device)
        remembered = None if search_anew else restored(self._ledger, name, dict)
        return model_request(probe, device, remembered or {}, energy=energy, naive=naive)

    def _remember_batch(
        self, probe: ProbeConfig, device: Device, outcome: ProbeOutcome, began_ns: int
    ) -> None:
        """Store the batch that a search found."""
        if probe.batch != "auto" or not outcome.curve:
            return
        result = outcome.result
        searching = self._sensor.activity(
            device.name,
            began_ns,
            result.window_end_ns,
            own_pids=outcome.pids,
            timeout_s=ANSWER_TIMEOUT_S,
        )
        document = batch_document(outcome, searching)
        if document is not None:
            self._ledger.put_state(batch_name(probe, device), document)

    def _joined(self, probe: AnyProbe, target: ProbeTarget, outcome: ProbeOutcome) -> MeasuredRun:
        result = outcome.result
        energy: Energy | Absent = Absent("this run had no energy window")
        if result.has_energy_window:
            energy = summed([self._energy(device, outcome) for device in target.devices])
        activity = worst_of([self._activity(device, outcome) for device in target.devices])
        if not isinstance(probe, ProbeConfig):
            # The server is the other process.
            activity = activity.without_neighbour()
        if result.contended is not None:
            activity = replace(activity, contended=result.contended)
        return MeasuredRun(
            result=result,
            energy=None if isinstance(energy, Absent) else energy,
            energy_absent=energy.reason if isinstance(energy, Absent) else "",
            activity=activity.fields(),
            every_s=probe.every_s,
            curve=outcome.curve,
            board=target.board,
            naive=outcome.naive,
            load=outcome.load,
        )

    def _energy(self, device: Device, outcome: ProbeOutcome) -> Energy | Absent:
        energy = self._sensor.energy(
            device.name,
            outcome.result.window_start_ns,
            outcome.result.window_end_ns,
            outcome.steady_start_ns,
            outcome.steady_end_ns,
            timeout_s=ANSWER_TIMEOUT_S,
        )
        if isinstance(energy, Absent):
            return energy
        return with_sampling_error(energy, device, outcome.result)

    def _activity(self, device: Device, outcome: ProbeOutcome) -> Activity:
        return self._sensor.activity(
            device.name,
            outcome.result.window_start_ns,
            outcome.result.window_end_ns,
            own_pids=outcome.pids,
            timeout_s=ANSWER_TIMEOUT_S,
        )


def _child_command(probe: AnyProbe) -> tuple[str, ...]:
    """Return the command line of a probe's child: one that runs a model may need another interpreter."""
    if isinstance(probe, ProbeConfig):
        return worker_command(str(probe.python or sys.executable))
    return LOAD_COMMAND


def batch_document(outcome: ProbeOutcome, searching: Activity) -> dict[str, Any] | None:
    """Return the batch that a search found as JSON; None if it was found beside other work.

    Args:
        outcome: The run with the search.
        searching: Conditions of the device since the start of the run.
    """
    if outcome.search_contended or searching.contended:
        return None  # another batch may be the best on an idle device
    return {
        "batch": outcome.result.batch,
        "fingerprint": outcome.result.fingerprint,
        "curve": [dict(point) for point in outcome.curve],
    }


def summed(energies: Sequence[Energy | Absent]) -> Energy | Absent:
    """Return the energy of devices that work as one; if one is absent, the sum is.

    Args:
        energies: One for each device, at least one.
    """
    known_energies = [energy for energy in energies if isinstance(energy, Energy)]
    if len(known_energies) < len(energies):
        return next(energy for energy in energies if isinstance(energy, Absent))
    return energy_sum(known_energies)
