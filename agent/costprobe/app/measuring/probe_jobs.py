"""Probe jobs: conditions for a run, and the handling of its outcome."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from costprobe import __version__
from costprobe.adapters.probing.model_settings import ProbeConfig
from costprobe.adapters.probing.neighbour import is_busy
from costprobe.adapters.probing.outcome import ProbeFault
from costprobe.app.accounting.documents import report_document
from costprobe.app.accounting.ledger import Ledger, restored
from costprobe.app.measuring.device_queue import DeviceQueue
from costprobe.app.measuring.listeners import Listeners
from costprobe.app.measuring.measuring import Measurer
from costprobe.app.measuring.probe_accounts import ProbeAccounts
from costprobe.app.measuring.targets import AnyProbe, ProbeTarget
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Event
from costprobe.domain.costing.probe.run import MeasuredRun

logger = logging.getLogger(__name__)

FULL_DUTY = 1.0
# Interval at which a deferred run checks whether the device is still busy, in s.
BUSY_CHECK_S = 2.0


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


@dataclass(frozen=True, slots=True)
class _JobState:
    """What a job continues with after a restart.

    Attributes:
        full_s: How long a run with an energy window took.
        latency_only_s: How long a run without one took.
        last: The last result, for `costprobe status`; None before the first.
        fault: The fault of the last run; None if it had none.
    """

    full_s: float = 0.0
    latency_only_s: float = 0.0
    last: dict[str, Any] | None = None
    fault: dict[str, Any] | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> _JobState | None:
        """Return a stored state; None of another version, which may have other keys."""
        if document["version"] != __version__:
            return None
        last, fault = document["last"], document["fault"]
        return cls(
            float(document["full_s"]),
            float(document["latency_only_s"]),
            None if last is None else dict(last),
            None if fault is None else {**fault, "title": str(fault["title"])},
        )


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
        self._measurer = parts.measurer
        self._accounts = parts.accounts
        self._ledger = parts.ledger
        self._clock = parts.clock
        self._listeners = parts.listeners
        before = restored(self._ledger, self._state, _JobState.of) or _JobState()
        self._full_s = before.full_s
        self._latency_only_s = before.latency_only_s
        self._last = before.last
        self._last_fault = before.fault
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
            energy = self._energy_planned()
            if energy is None:
                self._skipped += 1
                return
            if not self._may_start():
                return
            started_s = self._now_s()
            outcome = self._measurer.run(
                self.probe,
                self.target,
                energy=energy,
                on_progress=lambda progress: self._listeners.on_progress(
                    self.probe, self.target, progress
                ),
            )
            if isinstance(outcome, ProbeFault):
                # Its device time is unknown: the whole duration counts.
                spent_s = self._now_s() - started_s
                self._record(spent_s, energy=energy)
                self._failed(outcome)
            else:
                self._measured(outcome, energy=energy)

    def status(self) -> dict[str, Any]:
        """Return the status of the job for `costprobe status`."""
        return {
            "probe": self.probe.name,
            "device": self.target.name,
            "every_s": self.probe.every_s,
            "skipped_for_budget": self._skipped,
            "skipped_for_neighbour": self._skipped_busy,
            "deferred": self._deferred,
            "budget_share": min(queue.share for queue in self._queues),
            "budget_used_share": max(
                queue.budget.used_share(self._now_s()) for queue in self._queues
            ),
            "last": self._last,
            "fault": self._last_fault,
        }

    def wait_s(self) -> float | None:
        """Return the seconds until the duty budget allows a run; None if it never does."""
        waits = [
            0.0
            if queue.share >= FULL_DUTY
            else queue.budget.wait_s(self.probe.name, self._now_s(), *self._durations_s())
            for queue in self._queues
        ]
        known = [wait_s for wait_s in waits if wait_s is not None]
        return max(known) if len(known) == len(waits) else None

    def _durations_s(self) -> tuple[float, float]:
        """Return the expected duration of a whole run, and of one that measures latency only."""
        full_s = self._full_s if self.probe.carries_energy else self._latency_only_s
        return full_s, self._latency_only_s

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def _energy_planned(self) -> bool | None:
        """Return whether the next run has an energy window; None if the duty budget permits no run."""
        has_energy = self.probe.carries_energy
        if all(queue.share >= FULL_DUTY for queue in self._queues):
            return has_energy
        plans = {
            queue.budget.plan(self.probe.name, self._now_s(), *self._durations_s())
            for queue in self._queues
        }
        if "skip" in plans:
            return None
        return plans == {"full"} and has_energy

    def _may_start(self) -> bool:
        """Apply `when_busy` to the device's load; return False if the run is skipped."""
        probe = self.probe
        if not isinstance(probe, ProbeConfig) or probe.when_busy == "run" or not self._is_busy():
            return True
        if probe.when_busy == "skip":
            self._skipped_busy += 1
            return False
        self._deferred += 1
        ends_s = self._now_s() + probe.deferral_s
        while self._now_s() < ends_s:
            if self._measurer.is_ended_within(min(BUSY_CHECK_S, probe.deferral_s)):
                return False
            if not self._is_busy():
                break
        return not self._measurer.is_ended_within(0)

    def _is_busy(self) -> bool:
        device, probe = self.target.devices[0], self.probe
        if not isinstance(probe, ProbeConfig):
            return False
        return is_busy(self._measurer.load(device), probe.busy_share(device.kind))

    def _record(self, busy_s: float, *, energy: bool) -> None:
        for queue in self._queues:
            queue.record(self.probe.name, busy_s, energy=energy)

    def _store_state(self) -> None:
        self._ledger.put_state(
            self._state,
            {
                "version": __version__,
                "full_s": self._full_s,
                "latency_only_s": self._latency_only_s,
                "last": self._last,
                "fault": self._last_fault,
            },
        )

    def _measured(self, measured: MeasuredRun, *, energy: bool) -> None:
        busy_s = measured.result.busy_s
        self._record(busy_s, energy=energy)
        if energy:
            self._full_s = busy_s
            self._latency_only_s = max(busy_s - self.probe.window_s, 0.0)
        else:
            self._latency_only_s = busy_s
        report = self._accounts.take_probe(measured)
        self._last, self._last_fault = report_document(report), None
        self._store_state()
        self._listeners.on_report(report)

    def _failed(self, fault: ProbeFault) -> None:
        if fault.kind == "cancelled":
            return
        time_ns = self._clock.time_ns()
        stderr_tail = " | ".join(fault.stderr_tail)
        # An interruption is no fault of the probe: the next run follows as planned.
        is_fault = fault.kind != "interrupted"
        if is_fault:
            self._last_fault = {
                "time_ns": time_ns,
                "kind": fault.kind,
                "title": fault.title,
                "stderr_tail": list(fault.stderr_tail),
            }
        self._store_state()
        level = logging.WARNING if is_fault else logging.INFO
        logger.log(level, "%s: %s: %s; stderr: %s", self.name, fault.kind, fault.title, stderr_tail)
        self._accounts.take_event(
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
        self._listeners.on_fault(self.probe, self.target, fault)
