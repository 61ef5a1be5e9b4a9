"""The runs of two levels of a series, and the means of their signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, pvariance

from costprobe.domain.detection.attribution import Estimate
from costprobe.domain.detection.conditions import LEAST_INDEPENDENT
from costprobe.domain.detection.runs import DetectionRun, signal_of
from costprobe.domain.detection.settings import Metric

# Values further from the median of their level, in units of the noise, are clipped: outliers.
CLIP_NOISE = 6.0
# Smallest noise of a logarithm that counts: a short history shows less than it has.
LEAST_NOISE = 0.008
# Fewer runs have no outliers.
MEDIAN_RUNS = 3


@dataclass(frozen=True, slots=True)
class Levels:
    """Runs of the level before and after a change.

    Attributes:
        metric: The series that changed.
        before: Runs just before the change, oldest first; at least one. They share the time of day of
            those after it.
        after: Latest runs after it; at least one.
        history: All known runs of the level before.
    """

    metric: Metric
    before: Sequence[DetectionRun]
    after: Sequence[DetectionRun]
    history: Sequence[DetectionRun]

    def means(self, signal: str) -> tuple[float, float] | None:
        """Return a signal's mean before and after; None if a side is unknown."""
        sides = [
            [value for run in runs if (value := signal_of(run, signal)) is not None]
            for runs in (self.before, self.after)
        ]
        return (fmean(sides[0]), fmean(sides[1])) if all(sides) else None

    def rise(self, signal: str) -> float | None:
        """Return the difference of a signal after minus before."""
        means = self.means(signal)
        return None if means is None else means[1] - means[0]

    def log_fall(self, signal: str) -> float | None:
        """Return ln(before / after) of a signal; None unless both are positive."""
        means = self.means(signal)
        if means is None or min(means) <= 0:
            return None
        return math.log(means[0] / means[1])

    def time_change(self) -> Estimate:
        """Return the observed change of the logarithm of time, or of the latency if that is the series."""
        return _change(*self._sides(self._log_time))

    def power_change(self) -> Estimate | None:
        """Return the observed change of the logarithm of power; None if unknown."""
        before, after = self._sides(_log_power)
        return _change(before, after) if before and after else None

    def contended_slowdown(self, runs: Sequence[DetectionRun]) -> Estimate | None:
        """Return the logarithm of the slowdown of a run beside another process; None without both kinds."""
        kinds: dict[bool, list[float]] = {True: [], False: []}
        for run in runs:
            kinds[bool(run.device.get("contended"))].append(self._log_time(run))
        if not (kinds[True] and kinds[False]):
            return None
        spread = self._noise(self._log_time) * math.sqrt(
            math.fsum(1 / len(kind) for kind in kinds.values())
        )
        return Estimate(median(kinds[True]) - median(kinds[False]), spread)

    def _noise(self, value_of: Callable[[DetectionRun], float | None]) -> float:
        """Return the robust standard deviation of a logarithm over the history."""
        known = [value for run in self.history if (value := value_of(run)) is not None]
        if not known:
            return LEAST_NOISE
        center = median(known)
        return max(LEAST_NOISE, 1.4826 * median(abs(value - center) for value in known))

    def _sides(self, value_of: Callable[[DetectionRun], float | None]) -> list[list[float]]:
        """Return the values before and after without outliers."""
        limit = CLIP_NOISE * self._noise(value_of)
        return [_clipped(runs, value_of, limit) for runs in (self.before, self.after)]

    def log_times(self, signal: str, runs: Sequence[DetectionRun]) -> list[tuple[float, float]]:
        """Return a signal and the logarithm of time of each run that has it."""
        return [
            (x, self._log_time(run)) for run in runs if (x := signal_of(run, signal)) is not None
        ]

    def log_powers(self, signal: str, runs: Sequence[DetectionRun]) -> list[tuple[float, float]]:
        """Return a signal and the logarithm of power of each run that has both."""
        return [
            (x, y)
            for run in runs
            if (x := signal_of(run, signal)) is not None and (y := _log_power(run)) is not None
        ]

    def _log_time(self, run: DetectionRun) -> float:
        latency_ms = signal_of(run, "latency_p50_ms") if self.metric == "latency" else None
        return math.log(latency_ms or run.time_s)


def _log_power(run: DetectionRun) -> float | None:
    return math.log(run.energy_j / run.time_s) if run.energy_j else None


def _clipped(
    runs: Sequence[DetectionRun], value_of: Callable[[DetectionRun], float | None], limit: float
) -> list[float]:
    """Return the values of runs; of those with and without a neighbour, each within a limit of its median."""
    found = []
    for is_contended in (True, False):
        values = [
            value
            for run in runs
            if bool(run.device.get("contended")) is is_contended
            if (value := value_of(run)) is not None
        ]
        if len(values) >= MEDIAN_RUNS:
            center = median(values)
            values = [min(max(value, center - limit), center + limit) for value in values]
        found += values
    return found


def _change(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return the difference of two means and its standard error."""
    sides = (before, after)
    # A neighbour that comes and goes is no noise: the calmer side; few runs have no variance of their own.
    known = [side for side in sides if len(side) >= LEAST_INDEPENDENT] or sides
    spread = min(pvariance(side) for side in known)
    error = math.fsum(spread / min(len(side), LEAST_INDEPENDENT) for side in sides)
    return Estimate(fmean(after) - fmean(before), math.sqrt(error))
