"""Probes as jobs: when they may run, what becomes of their outcome, and what they last said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from agent.clock import Clock
from agent.config import ProbeConfig
from agent.daemon.accounts import Accounts, Measured, ProbeReport
from agent.daemon.measuring import Measurer
from agent.daemon.status import report_document
from agent.model import NS_PER_S, Device, Event
from agent.probing.duty import DutyBudget
from agent.probing.outcome import ProbeFault, ProbeProgress

logger = logging.getLogger(__name__)

FULL_DUTY = 1.0


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of a run in the foreground.

    Attributes:
        on_progress: Phases of a run.
        on_report: What a run came to.
        on_fault: Why a run came to nothing.
    """

    on_progress: Callable[[ProbeConfig, Device, ProbeProgress], None]
    on_report: Callable[[ProbeReport], None]
    on_fault: Callable[[ProbeConfig, Device, ProbeFault], None]


class DeviceQueue:
    """What the probes of one device share: they run one after another, within one budget.

    Args:
        share: Largest share of the device's time that probing may take.
    """

    def __init__(self, share: float) -> None:
        self.lock = Lock()
        self.share = share
        self.budget = DutyBudget(share)


class ProbeJob:
    """One probe on one device, run by the schedule.

    Args:
        probe: What to run.
        device: Where.
        queue: Shared with the device's other probes.
        measurer: Runs it.
        accounts: Prices and keeps what it measured.
        clock: The host's clocks.
        listeners: Who is told.
    """

    def __init__(
        self,
        probe: ProbeConfig,
        device: Device,
        queue: DeviceQueue,
        measurer: Measurer,
        accounts: Accounts,
        *,
        clock: Clock,
        listeners: Listeners,
    ) -> None:
        self.probe = probe
        self.device = device
        self._queue = queue
        self._measurer = measurer
        self._accounts = accounts
        self._clock = clock
        self._listeners = listeners
        self._full_s = 0.0
        self._latency_only_s = 0.0
        self._last: dict[str, Any] | None = None
        self._last_fault: dict[str, Any] | None = None
        self._skipped = 0

    @property
    def name(self) -> str:
        """Name of the job in the schedule."""
        return f"probe {self.probe.name} on {self.device.name}"

    def __call__(self) -> None:
        """Runs the probe if the budget allows it."""
        with self._queue.lock:
            energy = self._planned()
            if energy is None:
                self._skipped += 1
                return
            started_s = self._now_s()
            outcome = self._measurer.run(
                self.probe,
                self.device,
                energy=energy,
                on_progress=lambda progress: self._listeners.on_progress(
                    self.probe, self.device, progress
                ),
            )
            if isinstance(outcome, ProbeFault):
                # How much of it was device time nobody can say any more: all of it counts.
                spent_s = self._now_s() - started_s
                self._record(spent_s, energy=energy)
                self._failed(outcome)
            else:
                self._measured(outcome, energy=energy)

    def status(self) -> dict[str, Any]:
        """What `infercost status` shows of the job."""
        return {
            "probe": self.probe.name,
            "device": self.device.name,
            "every_s": self.probe.every_s,
            "skipped_for_budget": self._skipped,
            "budget_share": self._queue.share,
            "budget_used_share": self._queue.budget.used_share(self._now_s()),
            "last": self._last,
            "fault": self._last_fault,
        }

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def _planned(self) -> bool | None:
        """True for a run with an energy window, False for latency alone, None for no run."""
        if self._queue.share >= FULL_DUTY:
            return self.probe.energy
        full_s = self._full_s if self.probe.energy else self._latency_only_s
        plan = self._queue.budget.plan(self.probe.name, self._now_s(), full_s, self._latency_only_s)
        if plan == "skip":
            return None
        return plan == "full" and self.probe.energy

    def _record(self, busy_s: float, *, energy: bool) -> None:
        self._queue.budget.record(self.probe.name, self._now_s(), busy_s, energy=energy)

    def _measured(self, measured: Measured, *, energy: bool) -> None:
        busy_s = measured.result.busy_s
        self._record(busy_s, energy=energy)
        if energy:
            self._full_s = busy_s
            self._latency_only_s = max(busy_s - self.probe.region_s, 0.0)
        else:
            self._latency_only_s = busy_s
        report = self._accounts.take_probe(measured)
        self._last, self._last_fault = report_document(report), None
        self._listeners.on_report(report)

    def _failed(self, fault: ProbeFault) -> None:
        if fault.kind == "cancelled":
            return
        time_ns = self._clock.time_ns()
        last_words = " | ".join(fault.last_words)
        self._last_fault = {
            "time_ns": time_ns,
            "kind": fault.kind,
            "title": fault.title,
            "last_words": list(fault.last_words),
        }
        logger.warning("%s: %s: %s; last words: %s", self.name, fault.kind, fault.title, last_words)
        self._accounts.take_event(
            Event(
                kind="fault",
                severity="warning",
                title=f"probe {self.probe.name} on {self.device.name}: {fault.title}",
                time_ns=time_ns,
                detail=last_words,
                device=self.device.name,
                subject={"probe": self.probe.name},
                cause=fault.kind,
            )
        )
        self._listeners.on_fault(self.probe, self.device, fault)
