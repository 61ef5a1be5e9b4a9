"""What a series does every day, learnt from it, and what it did an hour of the week ago."""

from __future__ import annotations

import math
from array import array
from statistics import median

DAY_S = 86400.0
HOUR_S = 3600.0
HOURS = 14 * 24
BLOCK_HOURS = 4
LEAST_BLOCKS = 12
_SLOTS_S = (300.0, 600.0, 900.0, 1800.0, 3600.0)
_SMOOTHING_S = 1800.0
# A pattern that explains less than this of itself on the next day is noise.
_LEAST_SHARE = 0.25
_FORGET = 0.6
_LEAST_GAIN = 0.15


class DayProfile:
    """A series' usual deviation from its level at each time of the day (UTC).

    Each slot holds the mean of its values over the days. How much of it comes back is measured
    by regressing each day on what the days before it said: a profile that only repeats noise
    gets a weight near 0 (James-Stein shrinkage by a regression coefficient).

    Attributes:
        slot_s: Length of a slot in s.
        values: Deviation for each slot, as a natural logarithm.
        weight: Share of it that is to be expected again, from 0 to 1.
        gain: Weight of a new day's value in the mean.
    """

    __slots__ = ("days", "gain", "product", "slot_s", "square", "values", "weight")

    def __init__(self, interval_s: float) -> None:
        self.slot_s = next((slot for slot in _SLOTS_S if slot >= 0.9 * interval_s), _SLOTS_S[-1])
        self.values = array("d", [math.nan]) * int(DAY_S / self.slot_s)
        self.weight = 0.0
        self.product = 0.0
        self.square = 0.0
        self.know_days(0)

    def know_days(self, days: int) -> None:
        """Takes how many days are in the mean."""
        self.days = days
        self.gain = max(_LEAST_GAIN, 1 / (days + 1))

    def settle(self, level: float, noise: float, phi: float) -> None:
        """Makes a profile of the first day, which was written into `values` as it came.

        Args:
            level: The day's level.
            noise: Standard deviation of the noise.
            phi: Its AR(1) coefficient.
        """
        raw = _filled([value - level for value in self.values])
        reach = max(1, round(_SMOOTHING_S / self.slot_s))
        # A running median keeps the edges that a mean would smear: working hours have edges.
        smooth = [
            median(raw[(index + step) % len(raw)] for step in range(-reach, reach + 1))
            for index in range(len(raw))
        ]
        spread = sum(value * value for value in smooth) / len(smooth)
        by_chance = 1.6 * noise * noise * (1 + phi) / (1 - phi) / (2 * reach + 1)
        share = 1 - 2 * by_chance / spread if spread > 0 else 0.0
        self.values = array("d", smooth)
        self.know_days(1)
        self.square = spread * len(smooth)
        self.weight = share if share > _LEAST_SHARE else 0.0
        self.product = self.weight * self.square

    def end_day(self) -> None:
        """Weighs the profile by how well it foretold the day, and centres it."""
        share = self.product / self.square if self.square > 0 else 0.0
        self.weight = min(1.0, share) if share > _LEAST_SHARE else 0.0
        self.product *= _FORGET
        self.square *= _FORGET
        self.know_days(self.days + 1)
        mean = sum(self.values) / len(self.values)
        for index, value in enumerate(self.values):
            self.values[index] = value - mean


class WeekMemory:
    """The hourly means of the last fortnight: whether a change also came a day or a week ago."""

    __slots__ = ("count", "explained", "hour", "means", "shifted", "total")

    def __init__(self) -> None:
        self.means = array("d", [math.nan]) * HOURS
        self.shifted = array("d", [0.0]) * HOURS
        self.explained = 0.0
        self.hour = -1
        self.total = 0.0
        self.count = 0

    def end_hour(self, hour: int) -> None:
        """Closes the hour before; hours in which nothing came are not known.

        Nor are those that are still to come, where the calendar was set back.
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
        """How the series moved at the same time before; None if that is not known.

        Args:
            since_s: When the change in question began.
            lag_hours: 24 for yesterday, 168 for last week.
        """
        began = int(since_s // HOUR_S) - lag_hours
        before = self._mean(began - 3, began - 1)
        after = [self._mean(began, began), self._mean(began + 1, began + 1)]
        shifts = [mean - before for mean in after if mean is not None and before is not None]
        return max(shifts, key=abs, default=None)

    def wander(self, chance: float, since_hour: int) -> float:
        """Standard deviation of the slow changes of the level; 0 before it can be told.

        Steps that were told are taken out, unless it is they that spread the means: one that
        was chance and went away again.

        Args:
            chance: Standard deviation that an hourly mean has by the noise alone.
            since_hour: The first hour to look at: before it the pattern of the day was not known.
        """
        explained = 1.5 * chance / math.sqrt(BLOCK_HOURS)
        spread = min(self._spread(since_hour, None), self._spread(since_hour, self.shifted))
        return math.sqrt(max(0.0, spread * spread - explained * explained))

    def _spread(self, since_hour: int, apart: array[float] | None) -> float:
        """Robust standard deviation of the means of some hours; 0 where there are too few."""
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
        known = [
            self.means[hour % HOURS] - (apart[hour % HOURS] if apart else 0.0)
            for hour in range(first, last + 1)
            if not math.isnan(self.means[hour % HOURS])
        ]
        return sum(known) / len(known) if known else None


def _filled(values: list[float]) -> list[float]:
    """Slots in which nothing came, on a line between their neighbours, around the clock."""
    known = [index for index, value in enumerate(values) if not math.isnan(value)]
    filled = list(values)
    for left, right in zip(known, [*known[1:], known[0] + len(values)], strict=True):
        first, last = values[left], values[right % len(values)]
        for index in range(left + 1, right):
            share = (index - left) / (right - left)
            filled[index % len(values)] = first + share * (last - first)
    return filled
