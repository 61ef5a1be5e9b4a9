"""The learned daily pattern of a series, and its hourly means of the last two weeks."""

from __future__ import annotations

import math
from array import array
from statistics import median

from costprobe.domain.detection.rounding import ROUNDING_NOISE

DAY_S = 86400.0
HOUR_S = 3600.0
HOURS = 14 * 24
BLOCK_HOURS = 4
LEAST_BLOCKS = 12
_SLOTS_S = (300.0, 600.0, 900.0, 1800.0, 3600.0)
_SMOOTHING_S = 1800.0
# A pattern that explains a smaller share of the next day is noise.
_LEAST_SHARE = 0.25
_DECAY = 0.6
_LEAST_GAIN = 0.15


class DayProfile:
    """Mean deviation of a series from its level at each time of the day (UTC).

    Each slot holds the mean of its values over the days. The weight is the coefficient of a
    regression of each day on the profile of the days before: a profile of noise gets a weight near
    0 (James-Stein shrinkage).

    Attributes:
        slot_s: Length of a slot in s.
        values: Deviation for each slot, as a natural logarithm.
        weight: Share that is expected to recur, from 0 to 1.
        gain: Weight of the value of a new day in the mean.
    """

    __slots__ = ("days", "gain", "product", "slot_s", "square", "values", "weight")

    def __init__(self, interval_s: float) -> None:
        self.slot_s = slot_of(interval_s)
        self.values = array("d", [math.nan]) * int(DAY_S / self.slot_s)
        self.weight = 0.0
        self.product = 0.0
        self.square = 0.0
        self.set_days(0)

    def set_days(self, days: int) -> None:
        """Set the number of days in the mean."""
        self.days = days
        self.gain = max(_LEAST_GAIN, 1 / (days + 1))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the smooth profile of a first day."""
        return 1.5 * len(self.values) / (2 * self._reach + 1)

    @property
    def _reach(self) -> int:
        return max(1, round(_SMOOTHING_S / self.slot_s))

    def settle(self, level: float, noise: float, phi: float) -> None:
        """Fit the profile from the raw values of the first day.

        Args:
            level: Level of the day.
            noise: Standard deviation of the noise.
            phi: Its AR(1) coefficient.
        """
        raw = _filled([value - level for value in self.values])
        reach = self._reach
        # A running median preserves the edges of working hours; a mean would smooth them.
        smooth = [
            median(raw[(index + step) % len(raw)] for step in range(-reach, reach + 1))
            for index in range(len(raw))
        ]
        spread = math.fsum(value * value for value in smooth) / len(smooth)
        by_chance = 1.6 * noise * noise * (1 + phi) / (1 - phi) / (2 * reach + 1)
        share = 1 - 2 * by_chance / spread if spread > ROUNDING_NOISE**2 else 0.0
        self.values = array("d", smooth)
        self.set_days(1)
        self.square = spread * len(smooth)
        self.weight = share if share > _LEAST_SHARE else 0.0
        self.product = self.weight * self.square

    def doubt(self) -> None:
        """Use the profile only after the next day has confirmed it."""
        self.weight = self.product = self.square = 0.0

    def end_day(self) -> None:
        """Update the weight from the prediction of the day, and center the profile."""
        share = self.product / self.square if self.square > ROUNDING_NOISE**2 else 0.0
        self.weight = min(1.0, share) if share > _LEAST_SHARE else 0.0
        self.product *= _DECAY
        self.square *= _DECAY
        self.set_days(self.days + 1)
        mean = math.fsum(self.values) / len(self.values)
        for index, value in enumerate(self.values):
            self.values[index] = value - mean


class WeekMemory:
    """Hourly means of the last two weeks, to detect changes that recur daily or weekly."""

    __slots__ = ("count", "explained", "hour", "means", "shifted", "total")

    def __init__(self) -> None:
        self.means = array("d", [math.nan]) * HOURS
        self.shifted = array("d", [0.0]) * HOURS
        self.explained = 0.0
        self.hour = -1
        self.total = 0.0
        self.count = 0

    def end_hour(self, hour: int) -> None:
        """End the previous hour. Hours without values are unknown.

        Future hours, after the wall clock was set back, are unknown, too.
        """
        if hour == self.hour:
            return
        for ahead in range(hour, min(self.hour + 1, hour + HOURS)):
            self.means[ahead % HOURS] = math.nan
        if self.count and self.hour < hour:
            self.means[self.hour % HOURS] = self.total / self.count
            self.shifted[self.hour % HOURS] = self.explained
        for silent in range(max(self.hour + 1, hour - HOURS), hour):
            self.means[silent % HOURS] = math.nan
        self.hour, self.total, self.count = hour, 0.0, 0

    def shift_before(self, since_s: float, lag_hours: int) -> float | None:
        """Return the shift of the series at the same time of an earlier day; None if unknown.

        Args:
            since_s: Start of the change.
            lag_hours: 24 for yesterday, 168 for last week.
        """
        began = int(since_s // HOUR_S) - lag_hours
        before = self._mean(began - 3, began - 1)
        after = [self._mean(began, began), self._mean(began + 1, began + 1)]
        shifts = [mean - before for mean in after if mean is not None and before is not None]
        return max(shifts, key=abs, default=None)

    def wander(self, chance: float, since_hour: int) -> float:
        """Return the standard deviation of slow changes of the level; 0 until it can be estimated.

        Reported steps are removed, unless they themselves spread the means, as a false alarm does.

        Args:
            chance: Standard deviation of an hourly mean due to noise.
            since_hour: First hour that counts: before it the daily pattern was unknown.
        """
        explained = 1.5 * chance / math.sqrt(BLOCK_HOURS)
        spread = min(self._spread(since_hour, None), self._spread(since_hour, self.shifted))
        return math.sqrt(max(0.0, spread * spread - explained * explained))

    def _spread(self, since_hour: int, apart: array[float] | None) -> float:
        """Return the robust standard deviation of block means; 0 with too few blocks."""
        first_hour = max(since_hour, self.hour - HOURS + 1)
        blocks = [
            mean
            for first in range(first_hour, self.hour - BLOCK_HOURS, BLOCK_HOURS)
            if (mean := self._mean(first, first + BLOCK_HOURS - 1, apart)) is not None
        ]
        if len(blocks) < LEAST_BLOCKS:
            return 0.0
        middle = median(blocks)
        return 1.4826 * median(abs(block - middle) for block in blocks)

    def _mean(self, first: int, last: int, apart: array[float] | None = None) -> float | None:
        if last >= self.hour or first <= self.hour - HOURS or first < 0:
            return None
        means = [
            self.means[hour % HOURS] - (apart[hour % HOURS] if apart else 0.0)
            for hour in range(first, last + 1)
            if not math.isnan(self.means[hour % HOURS])
        ]
        return math.fsum(means) / len(means) if means else None


def slot_of(interval_s: float) -> float:
    """Return the length of a slot in s for a series with this time between two values."""
    return next((slot for slot in _SLOTS_S if slot >= 0.9 * interval_s), _SLOTS_S[-1])


def _filled(values: list[float]) -> list[float]:
    """Interpolate empty slots linearly between their neighbours, cyclically."""
    present = [index for index, value in enumerate(values) if not math.isnan(value)]
    filled = list(values)
    for left, right in zip(present, [*present[1:], present[0] + len(values)], strict=True):
        first, last = values[left], values[right % len(values)]
        for index in range(left + 1, right):
            share = (index - left) / (right - left)
            filled[index % len(values)] = first + share * (last - first)
    return filled
