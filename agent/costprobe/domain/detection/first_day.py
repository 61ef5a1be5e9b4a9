"""The first day of a series: whether it has a daily pattern, or changed for good, or for a while.

A change that persists cannot be distinguished from a daily pattern by its first day. Therefore the first day
lasts until values of the second can be compared with those at the same time of the first: a pattern
is the same, a persistent shift is not. An excursion, which returns within the day, is no pattern
either (`excursion`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from costprobe.core.clock_step import ClockStep
from costprobe.domain.detection.excursion import is_excursion
from costprobe.domain.detection.profile import DAY_S, HOUR_S, DayProfile, slot_of
from costprobe.domain.detection.rounding import first_least
from costprobe.domain.detection.slow_noise import (
    autocorrelation,
    median_error,
    noise_of,
    pattern_free,
)

# The day ends at this coverage, or after LONGEST_S.
COVERED_SHARE = 0.85
LONGEST_S = 4 * DAY_S
# Time of the second day that is compared with the first: as long as the result is in doubt.
COMPARED_S = 2 * HOUR_S
LONGEST_COMPARED_S = 4 * HOUR_S
LEAST_COMPARED = 6
# Distance of the two days in its standard errors that is a shift, and that is none.
SHIFT_ERRORS = 4.5
UNLIKELY_ERRORS = 2.5
# Time on each side of a shift that locates it.
BESIDE_S = HOUR_S
# A shift of so many standard deviations is located with half of that time, because a pattern
# changes less in it.
CLEAR_SHIFT = 4.0
# Differences to a running median do not show the slow part of the noise.
LEAST_PHI = 0.3
LEAST_NOISE = 1e-4


@dataclass(frozen=True, slots=True)
class FirstDayFit:
    """The model of the first day.

    Attributes:
        level: Logarithm of the level at its end.
        level_count: Number of values that the level is worth.
        noise: Standard deviation of the noise.
        phi: AR(1) coefficient of the noise.
        profile: Its daily pattern, without the shift.
        shift: Persistent change of the level within it; 0 if none.
        since_s: Start of the shift, UTC in s.
    """

    level: float
    level_count: float
    noise: float
    phi: float
    profile: DayProfile
    shift: float
    since_s: float


class FirstDay:
    """The values of a series from its start on, in slots of the time of the day.

    Args:
        interval_s: Usual time between two values.
        started_s: Time of the first value, UTC in s.
    """

    __slots__ = ("first_slot", "slot_s", "values")

    def __init__(self, interval_s: float, started_s: float) -> None:
        self.slot_s = slot_of(interval_s)
        self.first_slot = int(started_s // self.slot_s)
        self.values = array("d")

    @property
    def per_day(self) -> int:
        """Slots of a day."""
        return int(DAY_S / self.slot_s)

    def add(self, time_s: float, x: float) -> None:
        """Add a value; one beyond the longest first day is skipped."""
        index = int(time_s // self.slot_s) - self.first_slot
        if not 0 <= index <= LONGEST_S / self.slot_s:
            return
        while len(self.values) <= index:
            self.values.append(math.nan)
        self.values[index] = x

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift the stored instants after a wall-clock step."""
        self.first_slot = int(step.of_s(self.first_slot * self.slot_s) // self.slot_s)

    def fit(self, lasted_s: float, smallest_shift: float) -> FirstDayFit | None:
        """Fit level, daily pattern, noise and a persistent shift; None if the day is not over.

        Args:
            lasted_s: Time since the first value.
            smallest_shift: Smallest shift that counts.
        """
        if lasted_s < DAY_S + COMPARED_S:
            return None
        self.values.extend([math.nan] * (self.per_day - len(self.values)))
        missing = sum(map(math.isnan, self.values[-self.per_day :]))
        if missing > (1 - COVERED_SHARE) * self.per_day and lasted_s < LONGEST_S:
            return None
        present = [value for value in self.values if not math.isnan(value)]
        noise, phi = noise_of(present)
        phi = max(phi, autocorrelation(self._pattern_free(), noise))
        shift, errors = self._shift(median_error(noise, phi))
        if abs(shift) < smallest_shift or errors < UNLIKELY_ERRORS:
            shift = 0.0
        elif errors < SHIFT_ERRORS:
            if lasted_s < DAY_S + LONGEST_COMPARED_S:
                return None
            shift = 0.0
        split = 0
        if shift:
            # The first is right without a daily pattern, whose steepest part it may choose.
            splits = (self._split(shift), self._local_split(shift, noise))
            split = first_least(splits, lambda index: self._roughness(shift, index))
        return self._fit_of(shift, split, noise, phi)

    def _fit_of(self, shift: float, split: int, noise: float, phi: float) -> FirstDayFit:
        """Return the fit for a shift from the index `split` on."""
        unshifted = self._without(shift, split)
        present = sorted(value for value in unshifted if not math.isnan(value))
        cut = len(present) // 10
        middle = present[cut : len(present) - cut]
        level = math.fsum(middle) / len(middle)
        return FirstDayFit(
            level=level,
            level_count=max(12.0, min(len(self.values) - split, len(present), self.per_day) / 4),
            noise=noise,
            phi=phi,
            profile=self._profile(unshifted, level, noise, phi),
            shift=shift,
            since_s=(self.first_slot + split) * self.slot_s,
        )

    def _split(self, shift: float) -> int:
        """Return the index where a shift starts, by least squares without a daily pattern."""
        present = [value for value in self.values if not math.isnan(value)]
        mean = math.fsum(present) / len(present)
        misfits, total, count = [], 0.0, 0
        for value in self.values:
            # Sum of squares of the values without the shift, up to a constant.
            misfits.append(2 * shift * total + count * shift * shift * (1 - count / len(present)))
            if not math.isnan(value):
                total += value - mean
                count += 1
        return first_least(range(len(misfits)), misfits.__getitem__)

    def _shift(self, error: float) -> tuple[float, float]:
        """Return the shift from the first day to the same time of the latest, and its standard errors.

        Args:
            error: Standard error of a median of one value, if the values have no daily pattern.
        """
        values, per_day = self.values, self.per_day
        # The first hours: a step in the first day came after them.
        compared = max(2 * LEAST_COMPARED, min(len(values) - per_day, self._longest_compared))
        differences = [
            difference
            for index in range(compared)
            if not math.isnan(difference := values[self._latest(index)] - values[index])
        ]
        if len(differences) < LEAST_COMPARED:
            return 0.0, 0.0
        noise, phi = noise_of(self._pattern_free())
        error = min(error, median_error(noise, max(phi, LEAST_PHI)))
        shift = median(differences)
        smallest = LEAST_NOISE * math.sqrt(len(differences))
        return shift, abs(shift) / max(error * math.sqrt(2 / len(differences)), smallest)

    @property
    def _longest_compared(self) -> int:
        return int(LONGEST_COMPARED_S / self.slot_s)

    def _latest(self, index: int) -> int:
        """Return the last index at the same time of the day."""
        return index + (len(self.values) - 1 - index) // self.per_day * self.per_day

    def _pattern_free(self) -> list[float]:
        return pattern_free(self.values, max(LEAST_COMPARED, int(BESIDE_S / 2 / self.slot_s)))

    def _local_split(self, shift: float, noise: float) -> int:
        """Return the index where the values on both sides differ by a shift.

        Args:
            shift: The persistent shift.
            noise: Standard deviation of the noise.
        """
        beside_s = BESIDE_S if abs(shift) < CLEAR_SHIFT * noise else BESIDE_S / 2
        width = max(3, int(beside_s / self.slot_s))
        steps = _local_steps(self.values, width)
        if not steps:
            return self._split(shift)
        sign = math.copysign(1.0, shift)
        # A window that slides over a larger step contains every smaller one: only peaks count.
        peaks = [
            index
            for index, step in steps.items()
            if sign * step
            >= max(sign * steps.get(index + by, 0.0) for by in range(-width // 2, width // 2 + 1))
        ]
        nearest = first_least(peaks or steps, lambda index: abs(steps[index] - shift))
        around = range(max(1, nearest - width), min(len(self.values), nearest + width))
        return first_least(around, lambda index: self._misfit(index, nearest, width, shift))

    def _without(self, shift: float, split: int) -> list[float]:
        """Return the values at the level after a shift from the index `split` on."""
        return [
            value + (shift if index < split else 0.0) for index, value in enumerate(self.values)
        ]

    def _roughness(self, shift: float, split: int) -> float:
        """Return the sum of squares of local steps that a shift from an index on leaves."""
        width = max(3, int(BESIDE_S / 2 / self.slot_s))
        return math.fsum(
            step * step for step in _local_steps(self._without(shift, split), width).values()
        )

    def _misfit(self, split: int, center: int, width: int, shift: float) -> float:
        """Return the sum of distances from the level if the shift starts at `split`."""
        first, last = max(0, center - 2 * width), center + 2 * width
        unshifted = [
            value + (shift if index < split else 0.0)
            for index, value in enumerate(self.values[first:last], first)
            if not math.isnan(value)
        ]
        level = median(unshifted)
        return math.fsum(abs(value - level) for value in unshifted)

    def _profile(
        self, unshifted: Sequence[float], level: float, noise: float, phi: float
    ) -> DayProfile:
        """Return the pattern of the latest day, without weight if an excursion describes it better.

        Args:
            unshifted: The values without the persistent shift.
            level: Their level.
            noise: Standard deviation of the noise.
            phi: AR(1) coefficient of the noise.
        """
        profile = DayProfile(self.slot_s)
        # Later values replace those at the same time of an earlier day.
        for index, value in enumerate(unshifted):
            if not math.isnan(value):
                profile.values[(self.first_slot + index) % self.per_day] = value
        profile.settle(level, noise, phi)
        if profile.weight:
            slots = range(len(unshifted) - self.per_day, len(unshifted))
            usual = [profile.values[(self.first_slot + index) % self.per_day] for index in slots]
            day = [
                (value - level, pattern)
                for value, pattern in zip(unshifted[-self.per_day :], usual, strict=True)
                if not math.isnan(value)
            ]
            values, smooth = zip(*day, strict=True)
            variance = max(noise, LEAST_NOISE) ** 2 * (1 + phi) / (1 - phi)
            if is_excursion(values, smooth, variance, profile.freedom):
                profile.doubt()
        return profile


def _local_steps(values: Sequence[float], width: int) -> dict[int, float]:
    """Return the difference of the medians of `width` values after and before each index."""
    steps = {}
    for index in range(width, len(values) - width):
        before = [v for v in values[index - width : index] if not math.isnan(v)]
        after = [v for v in values[index : index + width] if not math.isnan(v)]
        if len(before) > width / 2 and len(after) > width / 2:
            steps[index] = median(after) - median(before)
    return steps
