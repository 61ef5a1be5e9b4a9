"""What the probes of one device share: their order, and their duty budget, kept across restarts."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

from costprobe.adapters.probing.duty import WINDOW_S, DutyBudget, DutyRun
from costprobe.app.accounting.ledger import Ledger, restored
from costprobe.core.clock import Clock, utc_ns
from costprobe.core.records import NS_PER_S


class DeviceQueue:
    """Shared by the probes of one device: they run one after another, within one budget.

    Args:
        device: Name of the device.
        share: Largest share of the device's time that probing may take.
        ledger: Keeps the runs of the last hour for a restart or a reload.
        clock: The host's clocks.
    """

    def __init__(self, device: str, share: float, ledger: Ledger, clock: Clock) -> None:
        self.lock = Lock()
        self.share = share
        self._state = f"duty {device}"
        self._ledger = ledger
        self._clock = clock
        self.budget = DutyBudget(share, self._stored())

    def record(self, probe: str, busy_s: float, *, energy: bool) -> None:
        """Record a run that ends now, and store it.

        Args:
            probe: Name of the probe.
            busy_s: Device time of the run in s.
            energy: Whether it included an energy window.
        """
        now_s = self._clock.monotonic_ns() / NS_PER_S
        self.budget.record(probe, now_s, busy_s, energy=energy)
        offset_ns = utc_ns(self._clock, 0)
        runs = [
            [run.probe, offset_ns + int(run.time_s * NS_PER_S), run.busy_s, run.energy]
            for run in self.budget.runs(now_s)
        ]
        self._ledger.put_state(self._state, runs)

    def _stored(self) -> list[DutyRun]:
        """Return the stored runs of the last hour; a run from the future counts as of now."""
        now_s = self._clock.monotonic_ns() / NS_PER_S
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

        runs = restored(self._ledger, self._state, runs_of) or []
        return sorted(
            (run for run in runs if run.time_s > now_s - WINDOW_S), key=lambda run: run.time_s
        )
