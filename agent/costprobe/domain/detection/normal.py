"""The model of a series: level, daily pattern, noise, and their uncertainty."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import median

from costprobe.core.clock_step import ClockStep
from costprobe.core.records import NS_PER_S
from costprobe.domain.detection.findings import DetectorSettings
from costprobe.domain.detection.first_day import FirstDay
from costprobe.domain.detection.profile import DAY_S, HOUR_S, DayProfile, WeekMemory
from costprobe.domain.detection.rounding import ROUNDING_NOISE
from costprobe.domain.detection.thresholds import decision_interval

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
# The three upper sums and the three lower sums.
Sums = tuple[float, float, float, float, float, float]
NO_SUMS: Sums = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class SeriesModel:
    """The model of one series, and the thresholds that follow from it.

    The logarithm of a value is a level, plus a daily pattern, plus AR(1) noise.

    Args:
        settings: Sensitivity.
    """

    # Accessed for every value: slots are the fastest.
    __slots__ = (
        "bounds",
        "clipped",
        "count",
        "far",
        "first_day",
        "floor",
        "gap_s",
        "hour_ends_s",
        "interval_s",
        "known_hour",
        "lag_product",
        "lag_rate",
        "lag_square",
        "last_log",
        "last_s",
        "level",
        "level_count",
        "long_run",
        "near",
        "phi",
        "profile",
        "recent",
        "repeats",
        "run",
        "scale",
        "scale_rate",
        "settings",
        "sigma",
        "sigma_all",
        "since_s",
        "started_s",
        "state",
        "sums",
        "wander",
        "week",
    )

    def __init__(self, settings: DetectorSettings) -> None:
        self.settings = settings
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.first_day: FirstDay | None = None
        self.profile: DayProfile | None = None
        self.week = WeekMemory()
        self.count = 0
        self.started_s = 0.0
        self.last_s = NEVER_S
        self.last_log = math.nan
        self.hour_ends_s = NEVER_S
        self.known_hour = 0
        self.interval_s = 300.0
        self.level = 0.0
        self.level_count = 1.0
        self.state = 0.0
        self.scale = 0.0
        self.floor = 0.0
        self.lag_product = 0.3
        self.lag_square = 1.0
        self.clipped = 0.0
        self.repeats = 0.0
        self.wander = 0.0
        self.sigma = 1.0
        self.run = 0
        self.sums: Sums = NO_SUMS
        self.since_s = [NEVER_S] * 6
        self.tune()

    @property
    def is_quantised(self) -> bool:
        """Whether the series takes few distinct values."""
        return QUANTISED_SHARES[0] < self.repeats < QUANTISED_SHARES[1]

    @property
    def hourly_noise(self) -> float:
        """Standard deviation of an hourly mean due to noise."""
        return self.long_run * math.sqrt(self.interval_s / HOUR_S)

    @property
    def level_variance(self) -> float:
        """Variance of the level: its estimate's, and how far it moves by itself."""
        return self.sigma_all**2 / self.level_count + self.wander**2

    def expected(self, time_s: float) -> float:
        """Return the level with the daily pattern at a time, UTC in s."""
        profile = self.profile
        slot = 0 if profile is None else int(time_s % DAY_S / profile.slot_s)
        return self.level + (0.0 if profile is None else profile.weight * profile.values[slot])

    def tune(self) -> None:
        """Update the thresholds from the noise."""
        settings, least = self.settings, self.settings.least_effect
        self.floor *= FLOOR_KEPT
        if self.clipped > CLIPPED_SHARE:
            self.floor = 1.15 * self.sigma
            self.clipped = CLIPPED_SHARE / 2
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
        k1, k2, k3 = (
            min(MAX_REFERENCE, max(share * least * unit, floor) + uncertainty)
            for share, floor in zip(REFERENCES, LEAST_REFERENCES, strict=True)
        )
        is_young = self.profile is None or self.profile.days < YOUNG_DAYS
        patience = YOUNG_PATIENCE if is_young else 1.0
        h1, h2, h3 = (
            decision_interval(k, settings.run_length * rarer) * patience
            for k, rarer in zip((k1, k2, k3), RARER, strict=True)
        )
        self.bounds = (k1, k2, k3, h1, h2, h3, h1 / 2)
        of_three = math.sqrt((3 + 4 * phi + 2 * phi * phi) / 9)  # AR(1) noise of a mean of three
        uncertainty_level = (
            self.sigma_all / math.sqrt(self.level_count) + WANDER_WEIGHT * self.wander
        )
        least_step = FIRST_DAY_STEP * least if self.profile is None else 0.75 * least
        far = FAR * (1 + min(MAX_TAIL, TAIL_WEIGHT * self.clipped))
        self.far = max(far * self.sigma_all * of_three + uncertainty_level, least_step)
        self.near = NEAR_SHARE * self.far

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
        fit = day.fit(self.last_s - self.started_s, self.settings.least_effect)
        if fit is None:
            return None
        self.level, self.level_count = fit.level, fit.level_count
        self.scale = CLIPPED_VARIANCE * fit.noise**2 * (1 - fit.phi**2)
        self.lag_product, self.lag_square = fit.phi * fit.noise**2, fit.noise**2
        self.profile, self.first_day = fit.profile, None
        self.known_hour = int(self.last_s // HOUR_S) + SETTLED_HOURS
        self._reset_sums()
        self.tune()
        return fit.shift, fit.since_s

    def follow(self, residual: float, x: float) -> None:
        """Update level and noise of the first day with a value that is not an outlier."""
        limit = CLIP * self.sigma_all
        moved = max(-limit, min(limit, residual))
        self.level += FIRST_DAY_GAIN * moved
        self.scale += (moved * moved - self.scale) / min(self.count, 400)
        self.week.total += x
        self.week.count += 1

    def end_hour(self, time_s: float) -> None:
        """End the previous hour, and the day if it is over."""
        hour = int(time_s // HOUR_S)
        if self.profile is not None and hour // 24 != self.week.hour // 24:
            self.profile.end_day()
            wander = self.week.wander(self.hourly_noise, self.known_hour)
            self.wander = max(wander, WANDER_KEPT * self.wander)
        self.week.end_hour(hour)
        self.hour_ends_s = (hour + 1) * HOUR_S

    def rebase(self, level: float, count: int) -> None:
        """Restart at another level, of which `count` values are known."""
        self.level, self.level_count = level, float(count)
        self._reset_sums()
        self.tune()

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        self.started_s = step.of_s(self.started_s)
        # Later values must have a later time.
        self.last_s = min(step.of_s(self.last_s), step.now_ns / NS_PER_S)
        self.since_s = [step.of_s(since_s) for since_s in self.since_s]
        settled_s = step.of_s((self.known_hour - SETTLED_HOURS) * HOUR_S)
        self.known_hour = round(settled_s / HOUR_S) + SETTLED_HOURS
        self.hour_ends_s = NEVER_S
        if self.first_day is not None:
            self.first_day.clock_was_stepped(step)

    def _reset_sums(self) -> None:
        self.state, self.run = 0.0, 0
        self.sums = NO_SUMS
        self.since_s = [self.last_s] * 6

    def _warm_up(self) -> None:
        recent = list(self.recent)
        self.level = median(recent[-12:])
        middle = median(recent)
        spread = 1.4826 * median(abs(x - middle) for x in recent)
        step = median(abs(b - a) for a, b in pairwise(recent))
        self.scale = CLIPPED_VARIANCE * max(1.0484 * step, min(spread, 3 * step)) ** 2
        self.level_count = FIRST_DAY_COUNT
        self.first_day = FirstDay(self.interval_s, self.started_s)
        for back, x in enumerate(reversed(recent)):
            self.first_day.add(self.last_s - back * self.interval_s, x)
        self.tune()
