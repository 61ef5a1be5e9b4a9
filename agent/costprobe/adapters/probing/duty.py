"""The duty budget: the share of a device's time that probing may use."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

MAX_RUNS = 10_000
# Length of the sliding window.
WINDOW_S = 3600.0
# Energy runs may use this share of the budget, and latency runs the rest: latency shows a change
# first, and the last measured energy is reused between energy windows.
ENERGY_PART = 0.5


class _Run(NamedTuple):
    probe: str
    time_s: float
    busy_s: float
    energy: bool


class DutyBudget:
    """At most a share of a device's time over a sliding window, for all its probes together.

    A run is never shortened to fit. A run includes an energy window if it fits into half of the
    budget beside the other energy runs, or if its probe had none in the whole sliding window.
    Otherwise it measures latency only; if even that does not fit, it is skipped.

    Args:
        share: Largest share of the device's time, from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._allowed_s = share * WINDOW_S
        self._runs: deque[_Run] = deque(maxlen=MAX_RUNS)

    def record(self, probe: str, time_s: float, busy_s: float, *, energy: bool) -> None:
        """Record a run that ended at monotonic time_s and used the device for busy_s."""
        self._runs.append(_Run(probe, time_s, busy_s, energy))

    def used_s(self, time_s: float) -> float:
        """Return the device seconds used by runs in the window before monotonic time_s."""
        self._drop_old(time_s)
        return sum(run.busy_s for run in self._runs)

    def used_share(self, time_s: float) -> float:
        """Return the share of the device's time used by runs in the window."""
        return self.used_s(time_s) / WINDOW_S

    def plan(
        self, probe: str, time_s: float, full_s: float, latency_only_s: float
    ) -> Literal["full", "latency", "skip"]:
        """Return what kind of run the budget allows at monotonic time_s.

        Args:
            probe: Name of the probe.
            time_s: Now.
            full_s: Duration in s of a run with an energy window; 0 if none has run yet.
            latency_only_s: Duration in s of one without.
        """
        left_s = self._allowed_s - self.used_s(time_s)
        energy_s = sum(run.busy_s for run in self._runs if run.energy)
        has_energy = any(run.energy and run.probe == probe for run in self._runs)
        fits_part = energy_s + full_s <= ENERGY_PART * self._allowed_s
        if full_s <= left_s and (fits_part or not has_energy):
            return "full"
        # If not even one energy run fits beside latency runs, the budget for it is reserved.
        keeps_room = not has_energy and full_s <= self._allowed_s
        reserve_s = full_s if keeps_room and latency_only_s + full_s > left_s else 0.0
        return "latency" if latency_only_s + reserve_s <= left_s else "skip"

    def _drop_old(self, time_s: float) -> None:
        while self._runs and self._runs[0].time_s <= time_s - WINDOW_S:
            self._runs.popleft()
