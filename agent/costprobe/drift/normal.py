"""The model of a series: level, daily pattern, noise, and their uncertainty.

The first day: a change that persists cannot be distinguished from a daily pattern by the first
day of a series. Therefore it lasts until values of the second can be compared with those at the
same time of the first: a pattern is the same, a persistent shift is not. An excursion, which
returns within the day, is no pattern either.

The daily pattern is learned beside hourly means of the last two weeks. The noise beside a slow
pattern has a standard deviation, an AR(1) coefficient and the error of a median.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import mul
from statistics import fmean, median
from typing import Annotated

from pydantic import PlainSerializer

from costprobe.core.statistics import (
    MAD_TO_SIGMA,
    MEDIAN_ERROR,
    ROUNDING_NOISE,
    autocorrelation_of,
    decision_interval,
    first_least,
    noise_of,
)
from costprobe.core.units import HOUR_S
from costprobe.drift.findings import DetectorSettings

DAY_S = 24 * HOUR_S
HOURS = 14 * 24
BLOCK_HOURS = 4
LEAST_BLOCKS = 12
_SLOTS_S = (300.0, 600.0, 900.0, 1800.0, 3600.0)
_SMOOTHING_S = 1800.0
# A pattern that explains a smaller share of the next day is noise.
_LEAST_SHARE = 0.25
_DECAY = 0.6
_LEAST_GAIN = 0.15

# The day ends at this coverage, or after LONGEST_S.
COVERED_SHARE = 0.85
LONGEST_S = 4 * DAY_S
# Time of the second day that is compared with the first.
COMPARED_S = 2 * HOUR_S
LEAST_COMPARED = 6
# Distance of the two days in its standard errors that is a shift.
SHIFT_ERRORS = 4.5
# Time on each side of a shift that locates it.
BESIDE_S = HOUR_S / 2
# Distance in standard deviations beyond which a value is an outlier of its pattern.
OUTLIER_SIGMAS = 4.0
# Longest excursion as a share of the day; working hours are longer.
LONGEST_EXCURSION = 0.25
# Shorter columns of a regression are rounding errors.
LEAST_COLUMN = 1e-9
# Differences to a running median do not show the slow part of the noise.
LEAST_PHI = 0.3
LEAST_NOISE = 1e-4

CLIP = 3.0
OUTLYING = 4.5
NEVER_S = -1e300
RECENT = 48
# E[z^2] of a standard normal variable clipped at 3. The square, not the magnitude: the sums depend
# on the variance, which heavy tails increase more than the magnitude.
CLIPPED_VARIANCE = 0.995
# A larger share of clipped values indicates underestimated noise, not outliers.
CLIPPED_SHARE = 0.07
FLOOR_KEPT = 0.995
# Largest AR(1) coefficient: with a larger one every change looks like noise.
MAX_PHI = 0.9
# Between these shares of repeated values a series is quantised, with heavier tails than normal.
QUANTISED_SHARES = (0.15, 0.95)
QUANTISED_WIDER = 1.5
FIRST_DAY_GAIN = 1 / 12
# Number of values that the level of the first day, which follows with that gain, is worth.
FIRST_DAY_COUNT = 12.0
FIRST_DAY_STEP = 2.0
YOUNG_DAYS = 3
YOUNG_PATIENCE = 1.5
# Reference values of the three sums as shares of the least effect, their minima in standard
# deviations, and the factors of `run_length` between their false alarms.
REFERENCES = (0.25, 0.5, 1.25)
LEAST_REFERENCES = (0.2, 0.4, 0.8)
MAX_REFERENCE = 2.2
RARER = (24.0, 1.0, 12.0)
# Distance of the mean of three values in its standard deviations that counts as far.
FAR = 5.2
# The distance grows with the share of clipped values, which indicates heavy tails.
TAIL_WEIGHT = 15.0
MAX_TAIL = 0.3
NEAR_SHARE = 0.6
# The pattern of the first days is inaccurate, and its error would count as wander.
SETTLED_HOURS = 72
WANDER_WEIGHT = 0.5
WANDER_KEPT = 0.985
GAP_INTERVALS = 3.5
# The thresholds follow the noise every so many values.
TUNE_EVERY = 32
CLIPPED_RATE = 1 / 200
REPEAT_RATE = 1 / 300

# A number of a stored state; one that JSON does not have is a text.
Real = Annotated[float, PlainSerializer(lambda x: x if math.isfinite(x) else str(x))]


@dataclass
class WeekMemory:
    """Hourly means of the last two weeks, to detect changes that recur daily or weekly."""

    means: list[Real] = field(default_factory=lambda: [math.nan] * HOURS)
    shifted: list[float] = field(default_factory=lambda: [0.0] * HOURS)
    explained: float = 0.0
    hour: int = -1
    total: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        if (len(self.means), len(self.shifted)) != (HOURS, HOURS):
            raise ValueError("the state of hourly means has another length")

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

    def _spread(self, since_hour: int, apart: Sequence[float] | None) -> float:
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
        return MAD_TO_SIGMA * median(abs(block - middle) for block in blocks)

    def _mean(self, first: int, last: int, apart: Sequence[float] | None = None) -> float | None:
        if last >= self.hour or first <= self.hour - HOURS or first < 0:
            return None
        means = [
            self.means[hour % HOURS] - (apart[hour % HOURS] if apart else 0.0)
            for hour in range(first, last + 1)
            if not math.isnan(self.means[hour % HOURS])
        ]
        return math.fsum(means) / len(means) if means else None


@dataclass
class SeriesModel:
    """The model of one series, and the thresholds that follow from it.

    The logarithm of a value is a level, plus a daily pattern, plus AR(1) noise.

    Args:
        settings: Sensitivity.
    """

    settings: DetectorSettings
    recent: deque[Real] = field(default_factory=deque)
    first_day: FirstDay | None = None
    profile: DayProfile | None = None
    week: WeekMemory = field(default_factory=WeekMemory)
    count: int = 0
    started_s: float = 0.0
    last_s: float = NEVER_S
    last_log: Real = math.nan
    settled_s: float = 0.0
    interval_s: float = 300.0
    level: float = 0.0
    level_count: float = 1.0
    state: float = 0.0
    scale: float = 0.0
    floor: float = 0.0
    lag_product: float = 0.3
    lag_square: float = 1.0
    clipped: float = 0.0
    repeats: float = 0.0
    wander: float = 0.0
    sigma: float = 1.0
    run: int = 0
    # Three upper sums, and three lower ones.
    sums: list[float] = field(default_factory=lambda: [0.0] * 6)
    since_s: list[float] = field(default_factory=lambda: [NEVER_S] * 6)

    def __post_init__(self) -> None:
        self.recent = deque(self.recent, maxlen=RECENT)
        self._set_thresholds()

    @property
    def is_quantised(self) -> bool:
        """Whether the series takes few distinct values."""
        return QUANTISED_SHARES[0] < self.repeats < QUANTISED_SHARES[1]

    @property
    def hourly_noise(self) -> float:
        """Standard deviation of an hourly mean due to noise."""
        return self.long_run * math.sqrt(self.interval_s / HOUR_S)

    def expected(self, time_s: float) -> float:
        """Return the level with the daily pattern at a time, UTC in s."""
        profile = self.profile
        return self.level + (0.0 if profile is None else profile.weight * profile.usual(time_s))

    def tune(self) -> None:
        """Update the least noise, and the thresholds from the noise."""
        self.floor *= FLOOR_KEPT
        if self.clipped > CLIPPED_SHARE:
            self.floor = 1.15 * self.sigma
            self.clipped = CLIPPED_SHARE / 2
        self._set_thresholds()

    def _set_thresholds(self) -> None:
        settings, least = self.settings, self.settings.least_effect
        phi = self.lag_product / self.lag_square if self.lag_square > ROUNDING_NOISE**2 else 0.0
        self.phi = phi = min(MAX_PHI, max(0.0, phi))
        wider = QUANTISED_WIDER if self.is_quantised else 1.0
        known = max(math.sqrt(self.scale / CLIPPED_VARIANCE), self.floor)
        self.sigma = sigma = wider * max(known, least / 4)
        # The least noise is that of the values: applied to what is new in each, AR(1) would multiply it.
        # Beyond the largest coefficient the noise is as wide as it was.
        widest = math.sqrt(self.lag_square) if phi == MAX_PHI else 0.0
        self.sigma_all = wider * max(known / math.sqrt(1 - phi * phi), least / 4, widest)
        self.long_run = sigma / (1 - phi)
        self.scale_rate = 1 / min(max(self.count, 50), 500)
        self.lag_rate = 1 / min(max(self.count, 100), 1000)
        self.gap_s = GAP_INTERVALS * self.interval_s
        # A persistent shift of the logarithm by 1 shifts the mean residual by `unit` sigma.
        unit = (1 - phi) / sigma
        uncertainty = 1 / math.sqrt(self.level_count) + WANDER_WEIGHT * self.wander * unit
        self.references = [
            min(MAX_REFERENCE, max(share * least * unit, floor) + uncertainty)
            for share, floor in zip(REFERENCES, LEAST_REFERENCES, strict=True)
        ]
        is_young = self.profile is None or self.profile.days < YOUNG_DAYS
        patience = YOUNG_PATIENCE if is_young else 1.0
        # Of the upper sums, and of the lower ones.
        self.intervals = 2 * [
            decision_interval(k, settings.run_length * rarer) * patience
            for k, rarer in zip(self.references, RARER, strict=True)
        ]
        of_three = math.sqrt((3 + 4 * phi + 2 * phi * phi) / 9)  # AR(1) noise of a mean of three
        uncertainty_level = (
            self.sigma_all / math.sqrt(self.level_count) + WANDER_WEIGHT * self.wander
        )
        least_step = FIRST_DAY_STEP * least if self.profile is None else 0.75 * least
        far = FAR * (1 + min(MAX_TAIL, TAIL_WEIGHT * self.clipped))
        self.far = max(far * self.sigma_all * of_three + uncertainty_level, least_step)
        self.near = NEAR_SHARE * self.far

    def add(self, profile: DayProfile, time_s: float, x: float) -> tuple[float, float]:
        """Add a value after the first day; `learn` or `learn_outlier` follows.

        Returns:
            Its distance from the level with the daily pattern, and from the prediction, which
            follows the value before as well.
        """
        if time_s - self.last_s > self.gap_s:
            self.state, self.run = 0.0, 0
        self.last_s = time_s
        self.count += 1
        if self.count % TUNE_EVERY == 0:
            self.tune()
        bare = x - profile.weight * profile.usual(time_s)
        residual = bare - self.level
        self.recent.append(bare)
        self.repeats += REPEAT_RATE * ((x == self.last_log) - self.repeats)
        self.last_log = x
        self.extend_run(residual)
        return residual, residual - self.phi * self.state

    def learn(self, profile: DayProfile, x: float, surprise: float) -> None:
        """Update level, daily pattern, noise and sums with a value that is not an outlier."""
        week, before = self.week, self.state
        week.total += self.recent[-1]
        week.count += 1
        scaled = surprise / self.sigma
        if abs(scaled) > CLIP:
            scaled = math.copysign(CLIP, scaled)
            self.clipped += CLIPPED_RATE
        self.clipped -= CLIPPED_RATE * self.clipped
        missed = scaled * self.sigma
        moved = self.state = self.phi * before + missed
        self.scale += self.scale_rate * (missed * missed - self.scale)
        self.lag_product += self.lag_rate * (moved * before - self.lag_product)
        self.lag_square += self.lag_rate * (moved * moved - self.lag_square)
        profile.confirm(self.last_s, x - self.level)
        profile.learn(self.last_s, x - self.level)
        arms = [(k, scaled) for k in self.references] + [(k, -scaled) for k in self.references]
        for arm, (reference, same_way) in enumerate(arms):
            self.sums[arm] = max(0.0, self.sums[arm] + (same_way - reference))
            if self.sums[arm] == 0.0:
                self.since_s[arm] = self.last_s
        calm = self.intervals[0] / 2
        if self.sums[0] < calm and self.sums[len(self.references)] < calm:
            self.level += moved / self.level_count
            if self.level_count < self.settings.memory:
                self.level_count += 1.0

    def learn_outlier(self, profile: DayProfile, x: float, state: float) -> None:
        """Update the daily pattern with an outlier, and go on from a state of the noise."""
        self.state = state
        self.clipped += CLIPPED_RATE * (1 - self.clipped)
        profile.learn(self.last_s, x - self.level, OUTLYING * self.sigma)

    def extend_run(self, residual: float) -> None:
        """Count the values in succession that are far from the level on one side; below 0 on the lower."""
        side = (residual > self.near) - (residual < -self.near)
        self.run = self.run + side if self.run * side > 0 else side

    def is_over(self) -> bool:
        """Return whether one of the sums is above its threshold."""
        return any(total > h for total, h in zip(self.sums, self.intervals, strict=True))

    def begin(self, time_s: float, x: float) -> bool:
        """Add a value of the first day, in which the level only follows.

        Returns:
            True once values can be compared with the level.
        """
        self.count += 1
        if self.count == 1:
            self.started_s = time_s
            self.level = x
        elif self.count == 2:  # noqa: PLR2004 - the first interval there is
            self.interval_s = time_s - self.last_s
        else:
            gain = max(1 / self.count, 0.05)
            self.interval_s += gain * (time_s - self.last_s - self.interval_s)
        self.last_s = time_s
        self.recent.append(x)
        if self.count == self.settings.warm_up:
            self._warm_up()
        elif self.first_day is not None:
            self.first_day.add(time_s, x)
        return self.count > self.settings.warm_up

    def end_first_day(self) -> tuple[float, float] | None:
        """Fit level, daily pattern and noise if the first day is over.

        Returns:
            Size and start (UTC in s) of the persistent shift in it, size 0 if none; None before the
            end of the day.
        """
        day = self.first_day
        if day is None or self.count < 2 * self.settings.warm_up:
            return None
        found = day.shift(self.last_s - self.started_s, self.settings.least_effect)
        if found is None:
            return None
        shift, split, noise, phi = found
        unshifted = [
            value + (shift if index < split else 0.0) for index, value in enumerate(day.values)
        ]
        present = sorted(value for value in unshifted if not math.isnan(value))
        cut = len(present) // 10
        self.level = fmean(present[cut : len(present) - cut])
        after = min(len(day.values) - split, len(present), day.per_day)
        self.level_count = max(FIRST_DAY_COUNT, after / 4)
        self.scale = CLIPPED_VARIANCE * noise**2 * (1 - phi**2)
        self.lag_product, self.lag_square = phi * noise**2, noise**2
        self.profile = day.profile(unshifted, self.level, noise, phi)
        self.first_day, self.settled_s = None, self.last_s
        self._reset_sums()
        self.tune()
        return shift, (day.first_slot + split) * day.slot_s

    def follow(self, residual: float, x: float) -> None:
        """Update level and noise of the first day with a value that is not an outlier."""
        limit = CLIP * self.sigma_all
        moved = max(-limit, min(limit, residual))
        self.level += FIRST_DAY_GAIN * moved
        self.scale += (moved * moved - self.scale) / min(self.count, 400)
        self.week.total += x
        self.week.count += 1

    def end_hour(self, hour: int) -> None:
        """End the previous hour, and the day if it is over."""
        if self.profile is not None and hour // 24 != self.week.hour // 24:
            self.profile.end_day()
            known_hour = int(self.settled_s // HOUR_S) + SETTLED_HOURS
            wander = self.week.wander(self.hourly_noise, known_hour)
            self.wander = max(wander, WANDER_KEPT * self.wander)
        self.week.end_hour(hour)

    def rebase(self, level: float, count: int) -> None:
        """Restart at another level, of which `count` values are known."""
        self.level, self.level_count = level, float(count)
        self._reset_sums()
        self.tune()

    def _reset_sums(self) -> None:
        self.state, self.run = 0.0, 0
        self.sums = [0.0] * 6
        self.since_s = [self.last_s] * 6

    def _warm_up(self) -> None:
        recent = list(self.recent)
        self.level = median(recent[-12:])
        middle = median(recent)
        spread = MAD_TO_SIGMA * median(abs(x - middle) for x in recent)
        step = median(abs(b - a) for a, b in pairwise(recent))
        self.scale = CLIPPED_VARIANCE * max(1.0484 * step, min(spread, 3 * step)) ** 2
        self.level_count = FIRST_DAY_COUNT
        slot_s = slot_of(self.interval_s)
        self.first_day = FirstDay(slot_s, self.started_s)
        for back, x in enumerate(reversed(recent)):
            self.first_day.add(self.last_s - back * self.interval_s, x)
        self.tune()


@dataclass
class FirstDay:
    """The values of a series from its start on, in slots of the time of the day.

    Attributes:
        slot_s: Length of a slot in s.
        started_s: UTC in s of the first value.
        values: The last value of each slot; NaN where it is unknown.
    """

    slot_s: float
    started_s: float
    values: list[Real] = field(default_factory=list)

    @property
    def first_slot(self) -> int:
        """Number of the first slot, from 1970 on."""
        return int(self.started_s // self.slot_s)

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

    def shift(
        self, lasted_s: float, smallest_shift: float
    ) -> tuple[float, int, float, float] | None:
        """Return the persistent shift, 0 for none, and its index; noise and its AR(1); None if the day is not over.

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
        noise, phi = noise_of([value for value in self.values if not math.isnan(value)])
        phi = max(phi, autocorrelation_of(self._pattern_free(), noise))
        shift, errors = self._shift(_median_error(noise, phi))
        if abs(shift) < smallest_shift or errors < SHIFT_ERRORS:
            shift = 0.0
        return shift, self._split(shift) if shift else 0, noise, phi

    def _shift(self, error: float) -> tuple[float, float]:
        """Return the shift from the first day to the same time of the latest, and its standard errors.

        Args:
            error: Standard error of a median of one value, if the values have no daily pattern.
        """
        values, per_day = self.values, self.per_day
        # The first hours: a step in the first day came after them.
        longest = int(COMPARED_S / self.slot_s)
        compared = max(2 * LEAST_COMPARED, min(len(values) - per_day, longest))
        differences = [
            difference
            for index in range(compared)
            if not math.isnan(difference := values[self._latest(index)] - values[index])
        ]
        if len(differences) < LEAST_COMPARED:
            return 0.0, 0.0
        noise, phi = noise_of(self._pattern_free())
        error = min(error, _median_error(noise, max(phi, LEAST_PHI)))
        shift = median(differences)
        smallest = LEAST_NOISE * math.sqrt(len(differences))
        return shift, abs(shift) / max(error * math.sqrt(2 / len(differences)), smallest)

    def _latest(self, index: int) -> int:
        """Return the last index at the same time of the day."""
        return index + (len(self.values) - 1 - index) // self.per_day * self.per_day

    def _pattern_free(self) -> list[float]:
        """Return the differences of the known values from a running median, which follows a pattern."""
        reach = max(LEAST_COMPARED, int(BESIDE_S / self.slot_s))
        known = [value for value in self.values if not math.isnan(value)]
        return [
            value - median(known[max(0, index - reach) : index + reach + 1])
            for index, value in enumerate(known)
        ]

    def _split(self, shift: float) -> int:
        """Return the index where the medians of the values on both sides differ by a shift."""
        width, steps = max(3, int(BESIDE_S / self.slot_s)), {}
        for index in range(width, len(self.values) - width):
            sides = (self.values[index - width : index], self.values[index : index + width])
            before, after = ([value for value in side if not math.isnan(value)] for side in sides)
            if min(len(before), len(after)) > width / 2:
                steps[index] = median(after) - median(before)
        return first_least(steps, lambda index: abs(steps[index] - shift)) if steps else 0

    def profile(
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
            first = self.first_slot + len(unshifted) - self.per_day
            variance = max(noise, LEAST_NOISE) ** 2 * (1 + phi) / (1 - phi)
            limit = OUTLIER_SIGMAS * math.sqrt(variance)
            times_s, values = [], []
            for slot, value in enumerate(unshifted[-self.per_day :], first):
                if not math.isnan(value):
                    at_s = slot * self.slot_s
                    # Without outliers, which neither describes.
                    pattern = profile.usual(at_s)
                    times_s.append(at_s)
                    values.append(max(pattern - limit, min(pattern + limit, value - level)))
            if is_excursion(times_s, values, variance):
                profile.doubt()
        return profile


def is_excursion(times_s: Sequence[float], values: Sequence[float], variance: float) -> bool:
    """Return whether one excursion from a level describes a day better than a daily pattern does.

    By the Bayesian information criterion (Schwarz, "Estimating the dimension of a model", 1978), of which a pattern
    has one degree of freedom more: two amplitudes and phases, not a level and two instants.

    Args:
        times_s: Times of the values in s.
        values: Logarithms.
        variance: Long-run variance of the noise.
    """
    count = len(values)
    mean = math.fsum(values) / count
    sums = [0.0, *accumulate(value - mean for value in values)]
    explained = max(
        (sums[first + length] - sums[first]) ** 2 * (1 / length + 1 / (count - length))
        for length in range(1, int(count * LONGEST_EXCURSION) + 1)
        for first in range(count - length + 1)
    )
    return explained_by_day(times_s, values) < explained + variance * math.log(count)


def explained_by_day(times_s: Sequence[float], values: Sequence[float]) -> float:
    """Return the sum of squares that two harmonics of a day explain of some values, beside their mean."""
    count = len(values)
    mean = math.fsum(values) / count
    rest = [value - mean for value in values]
    basis = [[1 / math.sqrt(count)] * count]
    explained = 0.0
    for harmonic in (1, 2):
        for wave in (math.cos, math.sin):
            column = [wave(2 * math.pi * harmonic * at_s / DAY_S) for at_s in times_s]
            # Gram-Schmidt: on less than a day the columns are not orthogonal.
            for earlier in basis:
                product = _product(column, earlier)
                column = [x - product * y for x, y in zip(column, earlier, strict=True)]
            length = math.sqrt(_product(column, column))
            if length > LEAST_COLUMN:
                basis.append([x / length for x in column])
                explained += _product(basis[-1], rest) ** 2
    return explained


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(mul, one, other))


@dataclass
class DayProfile:
    """Mean deviation of a series from its level at each time of the day (UTC).

    Each slot holds the mean of its values over the days. The weight is the coefficient of a
    regression of each day on the profile of the days before: a profile of noise gets a weight near
    0 (James-Stein shrinkage).

    Attributes:
        slot_s: Length of a slot in s.
        values: Deviation for each slot, as a natural logarithm.
        weight: Share that is expected to recur, from 0 to 1.
        product: Sum of the regression.
        square: Likewise.
        days: Number of days in the mean.
    """

    slot_s: float
    values: list[Real] = field(default_factory=list)
    weight: float = 0.0
    product: float = 0.0
    square: float = 0.0
    days: int = 0

    def __post_init__(self) -> None:
        self.values = self.values or [math.nan] * int(DAY_S / self.slot_s)
        if len(self.values) != int(DAY_S / self.slot_s):
            raise ValueError("the state of a daily pattern has another length")

    @property
    def gain(self) -> float:
        """Weight of the value of a new day in the mean."""
        return max(_LEAST_GAIN, 1 / (self.days + 1))

    def usual(self, time_s: float) -> float:
        """Return the deviation at the time of the day of an instant, UTC in s."""
        return self.values[self._slot(time_s)]

    def learn(self, time_s: float, deviation: float, limit: float = math.inf) -> None:
        """Add a deviation to the mean of its time of the day, which it moves by its gain of `limit` at most."""
        slot = self._slot(time_s)
        usual = self.values[slot]
        self.values[slot] = usual + self.gain * max(-limit, min(limit, deviation - usual))

    def confirm(self, time_s: float, deviation: float) -> None:
        """Add a deviation to the regression of the day on the profile of the days before."""
        usual = self.usual(time_s)
        self.product += deviation * usual
        self.square += usual * usual

    def _slot(self, time_s: float) -> int:
        return int(time_s % DAY_S / self.slot_s)

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
        self.values = smooth
        self.days = 1
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
        self.days += 1
        mean = math.fsum(self.values) / len(self.values)
        self.values = [value - mean for value in self.values]


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


def _median_error(noise: float, phi: float) -> float:
    """Return the standard error of a median of AR(1) noise, times the root of its number."""
    return MEDIAN_ERROR * noise * math.sqrt((1 + phi) / (1 - phi))
