"""One probe run: the child works, the sensor marks the region's edges, the two are joined."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

from agent.config import ProbeConfig
from agent.daemon.accounts import Ledger, Measured
from agent.model import Device, Energy
from agent.probing.lock import device_lock
from agent.probing.outcome import ProbeFault, ProbeOutcome, ProbeProgress
from agent.probing.request import ProbeRequest
from agent.probing.runner import ProbeRunner
from agent.telemetry.energy import Absent
from agent.telemetry.supervisor import SensorSupervisor

ANSWER_TIMEOUT_S = 10.0
MIN_RUNS = 300


class Measurer:
    """Runs probes and asks the sensors what the device did meanwhile.

    Args:
        sensor: The sensor child's supervisor.
        ledger: Remembers the best batch of each device, model and software.
        lock_folder: Where the devices' locks live.
        stop: Ends a run.
    """

    def __init__(
        self, sensor: SensorSupervisor, ledger: Ledger, lock_folder: Path, stop: Event
    ) -> None:
        self._sensor = sensor
        self._ledger = ledger
        self._lock_folder = lock_folder
        self._stop = stop
        self._runners: dict[tuple[str, str], ProbeRunner] = {}

    def run(
        self,
        probe: ProbeConfig,
        device: Device,
        *,
        energy: bool,
        on_progress: Callable[[ProbeProgress], None],
    ) -> Measured | ProbeFault:
        """Runs a probe once on a device, alone on it among all of infercost's probes.

        Args:
            probe: What to run.
            device: Where.
            energy: True if the run shall carry an energy window.
            on_progress: Told of the phases of the run.
        """
        with device_lock(self._lock_folder, device.name, self._stop, probe.every_s) as alone:
            if not alone:
                return ProbeFault("busy", f"another probe kept {device.name} busy", ())
            outcome = self._runner(probe, device).run(
                self._request(probe, device, energy=energy),
                device.name,
                on_edge=lambda: self._mark(device),
                on_progress=on_progress,
            )
        if isinstance(outcome, ProbeFault):
            return outcome
        self._remember_batch(probe, device, outcome)
        return self._joined(probe, device, outcome)

    def close(self) -> None:
        """Ends the children that are kept warm."""
        for runner in self._runners.values():
            runner.close()

    def _mark(self, device: Device) -> None:
        """Has the sensors read an edge; where they cannot, the energy's answer says so."""
        self._sensor.mark(device.name)

    def _runner(self, probe: ProbeConfig, device: Device) -> ProbeRunner:
        key = (probe.name, device.name)
        if key not in self._runners:
            self._runners[key] = ProbeRunner(
                python=str(probe.python or sys.executable),
                deadline_s=probe.deadline_s,
                stop=self._stop,
                keep_alive=probe.keep_alive,
            )
        return self._runners[key]

    def _request(self, probe: ProbeConfig, device: Device, *, energy: bool) -> ProbeRequest:
        bound_s = probe.latency_bound_s
        remembered = self._ledger.state(_batch_name(probe, device)) or {}
        return ProbeRequest(
            probe=probe.name,
            kind=probe.kind,
            module=probe.module,
            torch_device="cpu" if device.kind == "cpu" else "cuda:0",
            gpu_uuid=None if device.kind == "cpu" else device.uuid,
            dtype=probe.measured_dtype,
            batch=probe.batch,
            known_batch=remembered.get("batch"),
            known_fingerprint=remembered.get("fingerprint"),
            max_batch=probe.max_batch,
            latency_bound_ms=None if bound_s is None else bound_s * 1000,
            memory_cap_bytes=probe.memory_cap_bytes,
            threads=probe.threads,
            min_runs=MIN_RUNS,
            sample_cap_s=probe.sample_cap_s,
            energy=energy,
            region_s=probe.region_s,
        )

    def _remember_batch(self, probe: ProbeConfig, device: Device, outcome: ProbeOutcome) -> None:
        if probe.batch != "auto" or not outcome.curve:
            return
        result = outcome.result
        document = {
            "batch": result.batch,
            "fingerprint": result.fingerprint,
            "curve": [dict(point) for point in outcome.curve],
        }
        self._ledger.put_state(_batch_name(probe, device), document)

    def _joined(self, probe: ProbeConfig, device: Device, outcome: ProbeOutcome) -> Measured:
        result = outcome.result
        energy: Energy | Absent = Absent("this run carried no energy window")
        if result.has_energy_window:
            energy = self._sensor.energy(
                device.name,
                result.region_start_ns,
                result.region_end_ns,
                outcome.steady_start_ns,
                outcome.steady_end_ns,
                timeout_s=ANSWER_TIMEOUT_S,
            )
        activity = self._sensor.activity(
            device.name,
            result.region_start_ns,
            result.region_end_ns,
            own_pids=outcome.pids,
            timeout_s=ANSWER_TIMEOUT_S,
        )
        return Measured(
            result=result,
            energy=None if isinstance(energy, Absent) else energy,
            energy_absent=energy.reason if isinstance(energy, Absent) else "",
            activity=activity.fields(),
            every_s=probe.every_s,
        )


def _batch_name(probe: ProbeConfig, device: Device) -> str:
    """A search's result holds for one device, model and bound; the worker checks the software."""
    bound = "" if probe.latency_bound_s is None else f" within {probe.latency_bound_s:g} s"
    model = probe.module or probe.kind
    return f"batch {device.uuid} {probe.name} {model} {probe.measured_dtype}{bound}"
