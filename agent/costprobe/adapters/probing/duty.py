"""The duty budget: the share of a device's time that probing may use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal, NamedTuple

Plan = Literal["full", "latency", "skip"]

# Length of the sliding window.
WINDOW_S = 3600.0
# Runs of a probe that end in the same part of the window are kept as one, which ends with the last.
PART_S = 30.0
# Energy runs may use this share of the budget, and latency runs the rest: latency shows a change
# first, and the last measured energy is reused between energy windows.
ENERGY_PART = 0.5


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


class DutyBudget:
    """At most a share of a device's time over a sliding window, for all its probes together.

    A run is never shortened to fit. A run includes an energy window if it fits into half of the
    budget beside the other energy runs, or if its probe had none in the whole sliding window.
    Otherwise it measures latency only; if even that does not fit, it is skipped.

    Args:
        share: Largest share of the device's time, from 0 to 1.
        runs: Earlier runs, oldest first.
    """

    def __init__(self, share: float, runs: Iterable[DutyRun] = ()) -> None:
        self._allowed_s = share * WINDOW_S
        self._runs = list(runs)

    def record(self, probe: str, time_s: float, busy_s: float, *, energy: bool) -> None:
        """Record a run that ended at monotonic time_s and used the device for busy_s."""
        runs = self.runs(time_s)
        for index, run in enumerate(reversed(runs), start=1):
            if run.time_s // PART_S != time_s // PART_S:
                break
            if (run.probe, run.energy) == (probe, energy):
                del runs[-index]
                busy_s += run.busy_s
                break
        # Another thread may be reading the previous list.
        self._runs = [*runs, DutyRun(probe, time_s, busy_s, energy)]

    def runs(self, time_s: float) -> list[DutyRun]:
        """Return the runs in the window before monotonic time_s, oldest first."""
        return [run for run in self._runs if run.time_s > time_s - WINDOW_S]

    def used_share(self, time_s: float) -> float:
        """Return the share of the device's time used by runs in the window."""
        return math.fsum(run.busy_s for run in self.runs(time_s)) / WINDOW_S

    def plan(self, probe: str, time_s: float, full_s: float, latency_only_s: float) -> Plan:
        """Return what kind of run the budget allows at monotonic time_s.

        Args:
            probe: Name of the probe.
            time_s: Now.
            full_s: Duration in s of a run with an energy window; 0 if none has run yet.
            latency_only_s: Duration in s of one without.
        """
        return self._plan(self.runs(time_s), probe, full_s, latency_only_s)

    def wait_s(
        self, probe: str, time_s: float, full_s: float, latency_only_s: float
    ) -> float | None:
        """Return the seconds after monotonic time_s until a run is allowed; None if none ever is."""
        runs = self.runs(time_s)
        for ended in range(len(runs) + 1):
            left = list(islice(runs, ended, None))
            if self._plan(left, probe, full_s, latency_only_s) != "skip":
                return runs[ended - 1].time_s + WINDOW_S - time_s if ended else 0.0
        return None

    def _plan(
        self, runs: Sequence[DutyRun], probe: str, full_s: float, latency_only_s: float
    ) -> Plan:
        left_s = self._allowed_s - math.fsum(run.busy_s for run in runs)
        energy_s = math.fsum(run.busy_s for run in runs if run.energy)
        has_energy = any(run.energy and run.probe == probe for run in runs)
        fits_part = energy_s + full_s <= ENERGY_PART * self._allowed_s
        if full_s <= left_s and (fits_part or not has_energy):
            return "full"
        # If not even one energy run fits beside latency runs, the budget for it is reserved.
        keeps_room = not has_energy and full_s <= self._allowed_s
        reserve_s = full_s if keeps_room and latency_only_s + full_s > left_s else 0.0
        return "latency" if latency_only_s + reserve_s <= left_s else "skip"
