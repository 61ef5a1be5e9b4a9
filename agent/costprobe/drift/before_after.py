"""The two levels around a change of a series: change point, robust slopes, parts of the change.

The parts are the expected effects of several causes, corrected by the change that was observed.
The levels are runs of a series with the means of their signals. The change point comes with how
exactly it is known. A robust regression relates the runs of one level to one signal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, pstdev, variance
from typing import Literal

from costprobe.core.statistics import MAD_TO_SIGMA, MEDIAN_ERROR, first_least
from costprobe.drift.findings import Metric
from costprobe.drift.runs import DetectionRun, signal_of

# An effect that was measured or computed lies within so many of its standard errors.
REACH = 2.0

# Smallest difference of a signal in its own standard errors. Conditions are autocorrelated: more than
# LEAST_INDEPENDENT runs do not reduce the error further.
MOVE_ERRORS = 4.0
LEAST_INDEPENDENT = 4
# Values further from the median of their level, in units of the noise, are clipped: outliers.
CLIP_NOISE = 6.0
# Smallest noise of a logarithm that counts: a short history shows less than it has.
LEAST_NOISE = 0.008
# Parts of a level whose means show its noise.
PARTS = 8

# Rise of the sum of squares, in variances of the noise, within which a change point is as likely:
# the 95 % quantile of the likelihood ratio with one degree of freedom, doubled because the position is
# discrete and was chosen as the best.
AS_LIKELY = 2 * 3.84
# A series without noise: a share of its change.
LEAST_ONSET_NOISE = 1e-3
LEAST_VALUES = 4

LEAST_PAIRS = 5
# A change of slope between two levels is not in the scatter of one.
LEAST_SLOPE_ERROR = 0.03
# Below this part of the scatter of y explained, x may vary by the noise of its reading, which reduces the
# slope by as much (regression dilution).
LEAST_EXPLAINED = 0.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its standard deviation, in log units where it is an effect."""

    mean: float
    error: float

    def times(self, factor: float, shift: float = 0.0) -> Estimate:
        """Return the effect of a signal that moved by a factor of its unit, plus a constant."""
        return Estimate(self.mean * factor + shift, abs(self.error * factor))

    def plus(self, other: Estimate) -> Estimate:
        """Return the sum with an independent estimate."""
        return Estimate(self.mean + other.mean, math.hypot(self.error, other.error))

    def with_measured(self, measured: Estimate | None) -> Estimate:
        """Return the estimate after an independent measurement of the same number."""
        if measured is None:
            return self
        variance = self.error**2 + measured.error**2
        gain = self.error**2 / variance
        mean = self.mean + gain * (measured.mean - self.mean)
        return Estimate(mean, measured.error * math.sqrt(gain))


NONE = Estimate(0.0, 0.0)


def parts_of(change: float, effects: Sequence[tuple[Estimate, bool]]) -> list[Estimate]:
    """Return the part of a change that each effect has, given that they add up to it.

    The rest that the expected effects leave is divided by their variances (least squares). A bounded effect
    stays within REACH of its errors.

    Args:
        change: The observed change, in log units.
        effects: Expected effects, and whether each is bounded; one at least is not, and has an error.
    """
    fixed: dict[int, float] = {}
    while True:
        rest = change - math.fsum(
            fixed.get(index, effect.mean) for index, (effect, _) in enumerate(effects)
        )
        free = [index for index in range(len(effects)) if index not in fixed]
        total = math.fsum(effects[index][0].error ** 2 for index in free)
        gains = {index: effects[index][0].error ** 2 / total for index in free}
        beyond = {
            index: math.copysign(REACH * effects[index][0].error, rest)
            for index in free
            if effects[index][1] and abs(gains[index] * rest) > REACH * effects[index][0].error
        }
        if not beyond:
            break
        fixed |= {index: effects[index][0].mean + reach for index, reach in beyond.items()}
    return [
        Estimate(fixed[index], 0.0)
        if index in fixed
        else Estimate(effect.mean + gains[index] * rest, effect.error * math.sqrt(1 - gains[index]))
        for index, (effect, _) in enumerate(effects)
    ]


@dataclass(frozen=True, slots=True)
class Levels:
    """Runs of the level before and after a change.

    Attributes:
        metric: The series that changed.
        before: Runs just before the change, oldest first; at least one. They share the time of day of
            those after it.
        after: Latest runs after it; at least one.
        history: All known runs of the level before.
        sign: 1 for a deterioration, -1 for an improvement; 0 if signals may move either way, as for
            energy, which rises with a higher and with a lower clock.
        software: Versions and hashes of what was measured before and after, and under BOARD the
            identity of the device.
    """

    metric: Metric
    before: Sequence[DetectionRun]
    after: Sequence[DetectionRun]
    history: Sequence[DetectionRun]
    sign: int = 1
    software: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})

    def move(
        self, signal: str, least: float, direction: int = 1, *, is_share: bool = False
    ) -> tuple[float, float] | None:
        """Return the means of a signal before and after if it moved significantly.

        Args:
            signal: A field of the conditions of a run.
            least: Smallest difference that counts.
            direction: 1 if the signal rises with a deterioration, -1 if it falls.
            is_share: Whether `least` is a share of the signal before.
        """
        sides = values_of(self.history, signal), values_of(self.after, signal)
        if not all(sides):
            return None
        before, after = map(fmean, sides)
        # A short period shows less of the noise.
        counted = sides[:1] if len(sides[0]) > len(sides[1]) else sides
        inverse = math.fsum(1 / min(len(side), LEAST_INDEPENDENT) for side in sides)
        noise = MOVE_ERRORS * max(map(pstdev, counted)) * math.sqrt(inverse / 2)
        moved = after - before
        if abs(moved) < max(least * before if is_share else least, noise):
            return None
        return None if moved * self.sign * direction < 0 else (before, after)

    def means(self, signal: str) -> tuple[float, float] | None:
        """Return a signal's mean before and after; None if a side is unknown."""
        sides = values_of(self.before, signal), values_of(self.after, signal)
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
        return max(LEAST_NOISE, MAD_TO_SIGMA * median(abs(value - center) for value in known))

    def _sides(
        self, value_of: Callable[[DetectionRun], float | None]
    ) -> list[list[tuple[float, float]]]:
        """Return the values before and after without outliers, as from `_clipped`."""
        limit = CLIP_NOISE * self._noise(value_of)
        return [_clipped(runs, value_of, limit) for runs in (self.before, self.after)]

    def pairs(
        self, signal: str, value: Literal["time", "power"], log: int = 0
    ) -> list[list[tuple[float, float]]]:
        """Return a signal and the logarithm of a value of the runs that have both, before and after.

        Args:
            signal: The signal.
            value: The value.
            log: 1 for the logarithm of the signal, -1 for that of its inverse, 0 for itself.
        """
        value_of = self._log_time if value == "time" else _log_power
        known = [
            [
                (x, y)
                for run in runs
                if (x := signal_of(run, signal)) is not None and (y := value_of(run)) is not None
            ]
            for runs in (self.history, self.after)
        ]
        return (
            [[(log * math.log(x), y) for x, y in side if x > 0] for side in known] if log else known
        )

    def _log_time(self, run: DetectionRun) -> float:
        latency_ms = signal_of(run, "latency_p50_ms") if self.metric == "latency" else None
        return math.log(latency_ms or run.time_s)


def values_of(runs: Sequence[DetectionRun], signal: str) -> list[float]:
    """Return the known values of a signal."""
    return [value for run in runs if (value := signal_of(run, signal)) is not None]


def _log_power(run: DetectionRun) -> float | None:
    return math.log(run.energy_j / run.time_s) if run.energy_j else None


def _clipped(
    runs: Sequence[DetectionRun], value_of: Callable[[DetectionRun], float | None], limit: float
) -> list[tuple[float, float]]:
    """Return the values of runs, and their distance from the median of those with or without a neighbour.

    The distance is at most the limit: further ones are outliers.
    """
    known = [
        (bool(run.device.get("contended")), value)
        for run in runs
        if (value := value_of(run)) is not None
    ]
    centers = {
        flag: median(values)
        for flag in (True, False)
        if (values := [value for is_contended, value in known if is_contended is flag])
    }
    found = []
    for flag, value in known:
        distance = min(max(value - centers[flag], -limit), limit)
        found.append((centers[flag] + distance, distance))
    return found


def _change(
    before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]]
) -> Estimate:
    """Return the difference of two means and its standard error, by the noise of the longer side.

    A neighbour that comes and goes is no noise.
    """
    spread = _variance_of([distance for _, distance in max((before, after), key=len)])
    error = math.sqrt(spread / len(before) + spread / len(after))
    means = [fmean(value for value, _ in side) for side in (before, after)]
    return Estimate(means[1] - means[0], error)


def _variance_of(values: Sequence[float]) -> float:
    """Return the variance of a run: that of the means of consecutive parts, because runs are alike nearby."""
    count = min(PARTS, len(values))
    ends = [round(index * len(values) / count) for index in range(count + 1)]
    means = [fmean(values[start:end]) for start, end in pairwise(ends)]
    return variance(means) * len(values) / count if count > 1 else 0.0


def change_point(values: Sequence[float]) -> tuple[int, int, int] | None:
    """Return the first index after a change of level, and the first and last index that are as likely.

    Two levels are fitted by least squares (Hinkley, "Inference about the change-point in a sequence
    of random variables", 1970); the noise is estimated from differences of neighbours.

    Args:
        values: The series; None with fewer than LEAST_VALUES.
    """
    count = len(values)
    if count < LEAST_VALUES:
        return None
    total, head = math.fsum(values), 0.0
    explained = {}
    for index in range(1, count):
        head += values[index - 1]
        shift = (total - head) / (count - index) - head / index
        explained[index] = shift * shift * index * (count - index) / count
    best = first_least(explained, lambda index: -explained[index])
    shift = math.fsum(values[best:]) / (count - best) - math.fsum(values[:best]) / best
    # The change itself is one of the differences.
    noise = MAD_TO_SIGMA * median(abs(b - a) for a, b in pairwise(values)) / 2**0.5
    noise = max(noise, LEAST_ONSET_NOISE * abs(shift))
    floor = explained[best] - AS_LIKELY * noise * noise
    likely = [index for index, gain in explained.items() if gain >= floor]
    return best, likely[0], likely[-1]


def clipped(values: Sequence[float]) -> list[float]:
    """Return values of which none is further from their median than CLIP_NOISE of their noise."""
    if not values:
        return []
    center = median(values)
    noise = max(LEAST_NOISE, MAD_TO_SIGMA * median(abs(value - center) for value in values))
    low, high = center - CLIP_NOISE * noise, center + CLIP_NOISE * noise
    return [min(max(value, low), high) for value in values]


def slope_of(
    groups: Sequence[Sequence[tuple[float, float]]],
    least_distance: float,
    *,
    is_exact: bool = False,
) -> Estimate | None:
    """Return the slope of y over x and its standard error; None without enough variation of x.

    Theil's incomplete method ("A rank-invariant method of linear and polynomial regression analysis",
    1950): each value of the lower half of x is paired with one of the upper half, and the slope is the
    median of the pairs', here weighted by their distance. A quarter of the pairs may be outliers.

    Args:
        groups: x and y of each level; pairs are formed within a group only.
        least_distance: Pairs that are closer in x are omitted: noise of x would reduce the slope.
        is_exact: Whether the variation of x is known not to be noise of its reading. Otherwise the
            slope must explain half of the scatter of y.
    """
    pairs = []
    for group in groups:
        ordered = sorted(group)
        half = (len(ordered) + 1) // 2
        for (x, y), (far_x, far_y) in zip(ordered, ordered[half:], strict=False):
            if far_x - x >= least_distance:
                pairs.append((far_x - x, far_y - y))
    if len(pairs) < LEAST_PAIRS:
        return None
    slope = _weighted_median([(dy / dx, dx) for dx, dy in pairs])
    spread = median(abs(dy - slope * dx) for dx, dy in pairs)
    error = MAD_TO_SIGMA * MEDIAN_ERROR * spread / math.sqrt(math.fsum(dx * dx for dx, _ in pairs))
    if is_exact:
        return Estimate(slope, max(error, LEAST_SLOPE_ERROR))
    scatter = median(abs(dy) for _, dy in pairs)
    explained = 1 - (spread / scatter) ** 2 if scatter else 0.0
    if explained < LEAST_EXPLAINED:
        return None
    dilution = abs(slope) * (1 - explained) / 2
    return Estimate(slope, max(error, dilution, LEAST_SLOPE_ERROR))


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    ordered = sorted(values)
    half = math.fsum(weight for _, weight in ordered) / 2
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return ordered[-1][0]
