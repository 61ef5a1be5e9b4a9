"""The drift detector: persistent shifts and single outliers of one series, value by value.

The residual of the series model (`normal`) is scaled, clipped, and summed by three pairs of CUSUM
sums (Page, "Continuous inspection schemes", 1954) for small, medium and large changes, with
thresholds from Siegmund's approximation. Clipping keeps outliers from accumulating (Huber's psi).
A separate rule handles values beyond it: three values far from the level and close to each other
are a step, a single one is an anomaly.

Size, start and kind of a suspected change are estimated, and how far a level moves by itself. A
filter suppresses continued ramps, recurring patterns and false alarms.

The state of a detector is its fields; the thresholds follow from them.

A lasting step of the first day may be hidden from single values by the noise. Two levels are fitted
by least squares (Hinkley, "Inference about the change-point in a sequence of random variables", 1970).
Their difference is compared with its standard error, with the noise and its autocorrelation estimated
robustly, and with a daily pattern, which is not known yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import median
from typing import Literal

from costprobe.core.statistics import LARGEST_PHI, autocorrelation_of, first_least, spread_of
from costprobe.core.units import HOUR_S
from costprobe.drift.findings import DetectorSettings, Finding
from costprobe.drift.normal import (
    CLIP,
    CLIPPED_RATE,
    DAY_S,
    NEVER_S,
    OUTLIER_SIGMAS,
    OUTLYING,
    RECENT,
    TUNE_EVERY,
    FirstDay,
    Real,
    SeriesModel,
    explained_by_day,
)

FOLLOW_S = 3 * DAY_S
HOLD_S = 2.5 * DAY_S
WEEK_S = 7 * DAY_S
RETRACT_S = DAY_S
# Shortest time between two reports of a wandering series.
WANDER_REPORT_S = 30 * DAY_S
# Distance in standard deviations of its wander that is reported earlier.
WANDER_REACH = 5.0
# Smallest step in the first day that is reported at its end, in least effects.
LASTING_REPORT = 1.25
# Distance in standard errors by which nine of ten shifts exceed a threshold.
POWER = 1.28
AGAIN_SHARE = 0.5
BY_CHANCE = 2.5
WEEKEND = (-0.08, -0.02)

STEP_RUN = 3
# A step of e^0.4 may be three similar outliers: a fourth value is required.
TALL_STEP = 0.4
# This number of values on one side of the level is a step even if they are not close.
LONG_RUN = 6
STEP_RANGE = 4.0
SHARP_VALUES = 30
SPIKE_SIGMAS = 6.0
LEVEL_VALUES = 24
SHARP_WANDER = 1.6
GRADUAL_WANDER = 5.5
WANDER_ENDS_S = 14 * DAY_S
# Assumed wander of a series until it has been observed for WANDER_KNOWN_S.
MOST_WANDER = 0.75
WANDER_PRIOR = 0.011
WANDER_KNOWN_S = 12 * DAY_S

# Smallest change reported before the daily pattern is known.
FIRST_DAY_REPORT = 0.14
# Standard errors by which it exceeds that, and the distance of two levels in them that is a change.
CLEAR_ERRORS = 2.0
EARLY_ERRORS = 6.0
# Number of values from which a level of the first day is estimated.
EARLY_VALUES = 12
# Standard error of the mean of the middle three fifths of normal values, in that of their mean.
CENTER_ERROR = 1.07
# In the first day the median of the last values is compared with that of the others every few values.
EARLY_EVERY = 4


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A detected change of level.

    Attributes:
        time_s: Time of detection.
        since_s: Start.
        level: Logarithm of the level after it.
        shift: Difference from the level before.
        is_sharp: True for a step, False for a ramp.
    """

    time_s: float
    since_s: float
    level: float
    shift: float
    is_sharp: bool


def values_since(day: FirstDay, since_s: float) -> tuple[list[float], list[float]]:
    """Return times (UTC in s) and logarithms of the values of a first day from an instant on."""
    times_s = [(day.first_slot + index) * day.slot_s for index in range(len(day.values))]
    known = [
        (at_s, value)
        for at_s, value in zip(times_s, day.values, strict=True)
        if at_s > since_s - day.slot_s and not math.isnan(value)
    ]
    return [at_s for at_s, _ in known], [value for _, value in known]


def step_in(
    times_s: Sequence[float], values: Sequence[float], least_effect: float
) -> LevelChange | None:
    """Return the step where two levels explain some values best, if it is clearly larger than their noise.

    Args:
        times_s: Times of the values, UTC in s.
        values: Logarithms.
        least_effect: Smallest persistent shift of interest; the noise is at least a quarter of it.
    """
    if len(values) < 3 * EARLY_VALUES:
        return None
    split = _split_of(values)
    before, after = values[:split], values[split:]
    if min(len(before), len(after)) < EARLY_VALUES:
        return None
    levels = center(before), center(after)
    shift = levels[1] - levels[0]
    residuals = [*(x - levels[0] for x in before), *(x - levels[1] for x in after)]
    error = error_of(residuals, least_effect)
    if abs(shift) < needed(error * math.sqrt(1 / len(before) + 1 / len(after))):
        return None
    limit = OUTLIER_SIGMAS * error
    clipped = [
        levels[index >= split] + max(-limit, min(limit, x)) for index, x in enumerate(residuals)
    ]
    distance = math.fsum(clipped[split:]) - math.fsum(clipped) * len(after) / len(values)
    explained = distance**2 * len(values) / (len(before) * len(after))
    is_daily = explained < explained_by_day(times_s, clipped)
    if is_daily:
        return None
    return LevelChange(times_s[-1], times_s[split], levels[1], shift, is_sharp=True)


def needed(error: float) -> float:
    """Return the smallest step that is reported, from its standard error."""
    return max(FIRST_DAY_REPORT + CLEAR_ERRORS * error, EARLY_ERRORS * error)


def error_of(residuals: Sequence[float], least_effect: float) -> float:
    """Return the standard error of a center times the root of its number of values.

    Args:
        residuals: Distances of values from fitted levels; at least one.
        least_effect: As of `step_in`.
    """
    noise = max(spread_of(residuals, 0.0), least_effect / 4)
    phi = min(LARGEST_PHI, autocorrelation_of(residuals, noise))
    return CENTER_ERROR * noise * math.sqrt((1 + phi) / (1 - phi))


def center(values: Sequence[float]) -> float:
    """Return the mean of the middle three fifths; of fewer than six values the median."""
    if len(values) < 6:  # noqa: PLR2004 - there is no fifth to cut of fewer
        return median(values)
    cut = len(values) // 5
    middle = sorted(values)[cut : len(values) - cut]
    return math.fsum(middle) / len(middle)


def _split_of(values: Sequence[float]) -> int:
    """Return the index from which another level explains the largest sum of squares, without outliers."""
    ordered = sorted(values)
    cut = len(values) // 20
    low, high = ordered[cut], ordered[-1 - cut]
    sums = [0.0, *accumulate(min(high, max(low, value)) for value in values)]
    count = len(values)

    def unexplained(split: int) -> float:
        distance = sums[split] - sums[-1] * split / count
        return -distance * distance / (split * (count - split))

    return first_least(range(1, count), unexplained)


@dataclass
class ChangeFilter:
    """Decide whether a change is reported, from earlier changes that were reported or suppressed."""

    reported_s: float = NEVER_S
    reported_level: float = 0.0
    reported_after: float = 0.0
    followed_s: float = NEVER_S
    follow_sign: float = 0.0
    held_level: Real = math.nan
    held_since_s: float = NEVER_S

    def is_new(self, change: LevelChange, normal: SeriesModel) -> bool:
        """Return whether to report a change; the caller adopts the new level in any case."""
        if normal.profile is None and abs(change.shift) < FIRST_DAY_REPORT:
            return False
        if self._is_wandering(change, normal):
            return False
        if self._is_retraction(change, normal) or self._has_reverted(change, normal):
            return False
        sign = math.copysign(1.0, change.shift)
        if self.continues_ramp(change):
            self.followed_s = change.time_s
            return False
        if math.isnan(self.held_level) and _is_recurring(change, normal):
            self.held_level, self.held_since_s = normal.level, change.since_s
            return False
        self.followed_s, self.follow_sign = change.time_s, sign
        self.reported_s, self.reported_level = change.time_s, normal.level
        self.reported_after = change.level
        return True

    def unreported_before(self, step: LevelChange, normal: SeriesModel) -> float | None:
        """Return the level before the first day's step; None if it is small or was reported.

        Args:
            step: The step, at the end of the first day.
            normal: The model of the series, at the level after it.
        """
        before, smallest = step.level - step.shift, LASTING_REPORT * normal.settings.least_effect
        if self.reported_s > NEVER_S:
            # Large steps were reported when they began, with a level that follows a daily pattern.
            before, error = self.reported_after, normal.long_run / math.sqrt(EARLY_VALUES)
            smallest = max(FIRST_DAY_REPORT, EARLY_ERRORS * error)
        if step.shift == 0 or abs(step.level - before) < smallest:
            return None
        self.reported_s, self.reported_level = step.time_s, before
        self.reported_after = step.level
        return before

    def continues_ramp(self, change: LevelChange) -> bool:
        """Return whether a change continues a reported ramp."""
        is_same_way = math.copysign(1.0, change.shift) == self.follow_sign
        is_followed = change.time_s < self.followed_s + FOLLOW_S
        return is_same_way and not change.is_sharp and is_followed

    def overdue(self, time_s: float, normal: SeriesModel) -> LevelChange | None:
        """Return a change that was suppressed as recurring and has not reverted in time."""
        if math.isnan(self.held_level) or time_s - self.held_since_s < HOLD_S:
            return None
        before, self.held_level = self.held_level, math.nan
        shift = normal.level - before
        if abs(shift) < normal.settings.least_effect / 2:
            return None
        self.reported_s, self.reported_level, self.reported_after = time_s, before, normal.level
        return LevelChange(time_s, self.held_since_s, normal.level, shift, is_sharp=True)

    def _is_wandering(self, change: LevelChange, normal: SeriesModel) -> bool:
        """Return whether a change of a wandering series is close to the last report."""
        if change.is_sharp or normal.wander < normal.settings.least_effect / 8:
            return False
        is_late = change.time_s - self.reported_s > WANDER_REPORT_S
        return (
            not is_late and abs(change.level - self.reported_after) < WANDER_REACH * normal.wander
        )

    def _is_retraction(self, change: LevelChange, normal: SeriesModel) -> bool:
        """Return whether a change reverts a small recent report, which was a false alarm."""
        if change.time_s - self.reported_s > RETRACT_S:
            return False
        small = max(1.5 * normal.settings.least_effect, 2.5 * normal.sigma_all)
        returns = abs(change.level - self.reported_level) < 0.5 * abs(change.shift)
        return abs(change.shift) < small and returns

    def _has_reverted(self, change: LevelChange, normal: SeriesModel) -> bool:
        """Return whether a change reverts one that was suppressed."""
        if math.isnan(self.held_level):
            return False
        close = 0.4 * abs(change.shift) + normal.settings.least_effect / 4
        if abs(change.level - self.held_level) >= close:
            return False
        self.held_level = math.nan
        return True


@dataclass
class Detector:
    """Detect changes of one series: no clock, no I/O; the same values give the same findings.

    The first `warm_up` values give no findings. On the first day only large steps and anomalies are
    reported, because the daily pattern is unknown; a smaller step is detected on the second day.

    Attributes:
        series: The model of the series.
        filter: Which changes are reported.
    """

    series: SeriesModel
    filter: ChangeFilter = field(default_factory=ChangeFilter)

    @classmethod
    def new(cls, settings: DetectorSettings) -> Detector:
        """Return a detector without a history."""
        return cls(SeriesModel(settings))

    @property
    def settings(self) -> DetectorSettings:
        """Its sensitivity."""
        return self.series.settings

    @property
    def level(self) -> float:
        """Logarithm of the current level; meaningless during the warm-up.

        A change may revert without a finding; this value shows it.
        """
        return self.series.level

    def expected(self, time_s: float) -> float | None:
        """Return the logarithm of the usual value at a time, UTC in s; None in the warm-up."""
        normal = self.series
        is_known = normal.profile is not None or normal.first_day is not None
        return normal.expected(time_s) if is_known else None

    @property
    def min_detectable_pct(self) -> float | None:
        """Smallest persistent rise that nine of ten times is found within a day of now; None in the warm-up.

        The minimum detectable effect: what the noise of the series and the settings permit.
        """
        normal = self.series
        runs = max(DAY_S / normal.interval_s, LONG_RUN)
        if normal.profile is not None:
            least = min(_least_of(normal, SHARP_VALUES), _least_of(normal, runs))
        elif normal.first_day is not None:
            _, values = values_since(normal.first_day, normal.since_s[0])
            if not values:
                return None
            level = center(values)
            error = error_of([x - level for x in values], normal.settings.least_effect)
            of_shift = error * math.sqrt(1 / len(values) + 1 / runs)
            least = needed(of_shift) + POWER * of_shift
        else:
            return None
        return 100 * max(math.expm1(least), normal.settings.least_effect)

    @property
    def last_s(self) -> float:
        """Time of the last value, UTC in s since 1970; far in the past before the first."""
        return self.series.last_s

    def update(self, time_s: float, value: float) -> list[Finding]:
        """Add the next value; return the findings that it completes.

        Args:
            time_s: UTC in s since 1970; a value not later than the last one is skipped.
            value: Any positive number; others are skipped.
        """
        normal = self.series
        if not 0.0 < value < math.inf or time_s <= normal.last_s:
            return []
        x = math.log(value)
        hour = int(time_s // HOUR_S)
        findings = self._end_hour(hour, time_s) if hour != normal.week.hour else []
        profile = normal.profile
        if profile is None:
            return findings + self._update_early(time_s, x)
        residual, surprise = normal.add(profile, time_s, x)
        is_run = abs(normal.run) >= STEP_RUN
        if abs(surprise / normal.sigma) < OUTLYING:
            normal.learn(profile, x, surprise)
            is_suspect = is_run or normal.is_over()
        else:
            # Outliers on one side in succession are no outliers: the sums decide on those that follow.
            normal.learn_outlier(profile, x, residual if is_run else normal.phi * normal.state)
            is_suspect = is_run
            if _is_anomaly(normal, residual, surprise):
                findings.append(self._finding("anomaly", time_s, time_s, x - residual, x))
        return findings + self._judge(time_s) if is_suspect else findings

    def _update_early(self, time_s: float, x: float) -> list[Finding]:
        """Add a value of the first day: a fast level, large steps, and anomalies."""
        normal = self.series
        if not normal.begin(time_s, x):
            return []
        ended = normal.end_first_day()
        if ended is not None:
            return self._lasting_step(time_s, *ended)
        residual = x - normal.level
        normal.extend_run(residual)
        is_wide = abs(residual) > CLIP * normal.sigma_all
        normal.clipped += CLIPPED_RATE * (is_wide - normal.clipped)
        findings = []
        if abs(residual) <= OUTLYING * normal.sigma_all:
            normal.follow(residual, x)
        elif _is_anomaly(normal, residual, residual):
            findings.append(self._finding("anomaly", time_s, time_s, normal.level, x))
        if not normal.count % TUNE_EVERY:
            normal.tune()
        if abs(normal.run) >= STEP_RUN or not normal.count % EARLY_EVERY:
            return findings + self._judge(time_s)
        return findings

    def _lasting_step(self, time_s: float, shift: float, since_s: float) -> list[Finding]:
        """Return the persistent shift of the first day unless it was reported."""
        step = LevelChange(time_s, since_s, self.series.level, shift, is_sharp=True)
        before = self.filter.unreported_before(step, self.series)
        if before is None:
            return []
        return [self._finding("drift", time_s, since_s, before, step.level)]

    def _end_hour(self, hour: int, time_s: float) -> list[Finding]:
        normal = self.series
        normal.end_hour(hour)
        late = self.filter.overdue(time_s, normal)
        if late is None:
            return []
        return [self._finding("drift", time_s, late.since_s, late.level - late.shift, late.level)]

    def _judge(self, time_s: float) -> list[Finding]:
        """Confirm a suspected change, adopt its level, and return it if it is to be reported."""
        normal = self.series
        change = _change_of(normal, time_s)
        if change is None:
            return []
        tolerance = 0.0 if self.filter.continues_ramp(change) else _tolerance_of(normal, change)
        if abs(change.shift) < self.settings.least_effect / 2 + tolerance:
            normal.sums = [
                min(total, 1.5 * h) for total, h in zip(normal.sums, normal.intervals, strict=True)
            ]
            return []
        return self._adopted(change)

    def _adopted(self, change: LevelChange) -> list[Finding]:
        """Adopt the level of a change; return it if it is to be reported."""
        normal, time_s = self.series, change.time_s
        findings = []
        if self.filter.is_new(change, normal):
            findings.append(
                self._finding(
                    "drift", time_s, change.since_s, change.level - change.shift, change.level
                )
            )
        if change.is_sharp:
            normal.week.explained += change.shift
        lasted = round((time_s - change.since_s) / normal.interval_s) + 1
        normal.rebase(change.level, max(3, min(lasted, LEVEL_VALUES)))
        if normal.profile is None:
            normal.since_s = [change.since_s] * 6
            while len(normal.recent) > max(STEP_RUN, lasted):
                normal.recent.popleft()
        return findings

    def _finding(
        self,
        kind: Literal["drift", "anomaly"],
        time_s: float,
        since_s: float,
        before: float,
        after: float,
    ) -> Finding:
        began_s = max(since_s, self.series.started_s, NEVER_S)
        return Finding(kind, time_s, began_s, math.exp(before), math.exp(after), after - before)


def _is_recurring(change: LevelChange, normal: SeriesModel) -> bool:
    """Return whether a shift also occurred a day or a week before, or may be a first weekend.

    A fall at the edge of a day counts as a weekend until a week is known.
    """
    by_chance = BY_CHANCE * math.sqrt(2) * normal.hourly_noise
    for lag_hours in (24, 168):
        earlier = normal.week.shift_before(change.since_s, lag_hours)
        if earlier is None or abs(earlier) < by_chance:
            continue
        if abs(earlier - change.shift) < AGAIN_SHARE * max(abs(change.shift), abs(earlier)):
            return True
    lasted_s = change.since_s - normal.started_s
    # Edges of days in UTC, or relative to the first value.
    edges_s = ((at_s + HOUR_S / 2) % DAY_S for at_s in (change.since_s, lasted_s))
    is_at_edge = any(edge_s < HOUR_S for edge_s in edges_s)
    return is_at_edge and lasted_s < WEEK_S - HOUR_S and WEEKEND[0] < change.shift < WEEKEND[1]


def _change_of(normal: SeriesModel, time_s: float) -> LevelChange | None:
    """Return the change that the run or the sums indicate; None below their thresholds."""
    if normal.profile is None and not _is_step(normal):
        return _early_change(normal, time_s)
    if _is_step(normal):
        sign = math.copysign(1.0, normal.run)
        length = min(abs(normal.run), RECENT)
        since_s = time_s - (length - 1) * normal.interval_s
    else:
        over = [total / h for total, h in zip(normal.sums, normal.intervals, strict=True)]
        arm = max(range(6), key=over.__getitem__)
        if over[arm] <= 1:
            return None
        sign = 1.0 if arm < STEP_RUN else -1.0
        since_s = normal.since_s[arm]
        length = round((time_s - since_s) / normal.interval_s)
    values = list(normal.recent)
    level = center(values[-max(3, min(length, LEVEL_VALUES)) :])
    shift = level - normal.level
    if shift * sign <= 0:
        shift = 0.0
    before = values[-length - 6 : -length] if 0 < length < RECENT - 3 else []
    came_at_once = not before or abs(median(before) - normal.level) < 0.5 * abs(shift)
    return LevelChange(time_s, since_s, level, shift, length <= SHARP_VALUES and came_at_once)


def _is_step(normal: SeriesModel) -> bool:
    """Return whether three or more values are far from the level and close to each other."""
    run = abs(normal.run)
    if run < STEP_RUN:
        return False
    recent = normal.recent
    last = (recent[-1], recent[-2], recent[-3])
    shift = abs(math.fsum(last) / len(last) - normal.level)
    is_doubtful = shift > TALL_STEP or normal.is_quantised
    if shift < normal.far or (is_doubtful and run == STEP_RUN):
        return False
    return run >= LONG_RUN or max(last) - min(last) < STEP_RANGE * normal.sigma_all


def _early_change(normal: SeriesModel, time_s: float) -> LevelChange | None:
    """Return a large step of the first day that the noise hides from single values.

    Searched are all values since the last change, and the recent ones where a slot of the day has several.
    """
    day = normal.first_day
    if day is None:
        return None
    least_effect = normal.settings.least_effect
    step = step_in(*values_since(day, normal.since_s[0]), least_effect)
    if step is None and normal.interval_s < day.slot_s / 2:
        values = list(normal.recent)
        times_s = [time_s - back * normal.interval_s for back in reversed(range(len(values)))]
        step = step_in(times_s, values, least_effect)
    return None if step is None else replace(step, time_s=time_s)


def _least_of(normal: SeriesModel, runs: float) -> float:
    """Return the shift that nine of ten times is found within so many values."""
    # A sum rises by the shift, less its reference, at every value.
    arms = zip(normal.references[:3], normal.intervals[:3], strict=True)
    by_sums = min(k + h / runs + POWER / math.sqrt(runs) for k, h in arms) * normal.long_run
    now_s, is_sharp = normal.last_s, runs <= SHARP_VALUES
    change = LevelChange(now_s + runs * normal.interval_s, now_s, 0.0, 0.0, is_sharp)
    return max(by_sums, normal.settings.least_effect / 2 + _tolerance_of(normal, change))


def _is_anomaly(normal: SeriesModel, residual: float, surprise: float) -> bool:
    """Return whether a value is far from the level, the prediction, and the values before.

    Args:
        normal: The model of the series, which has the value already.
        residual: Its distance from the level.
        surprise: Its distance from the prediction.
    """
    spike = normal.settings.spike
    far = max(SPIKE_SIGMAS * normal.sigma, spike)
    if abs(residual) < far or abs(surprise) < far:
        return False
    newest, *before = list(normal.recent)[-1:-7:-1]
    is_alone = abs(newest - before[0]) > max(4 * normal.sigma, spike / 2)
    return is_alone and abs(newest - median(before)) > far / 2


def _tolerance_of(normal: SeriesModel, change: LevelChange) -> float:
    """Return the natural movement of the level; smaller, the longer a change has lasted."""
    if change.is_sharp:
        return SHARP_WANDER * normal.wander
    unknown = 1 - (change.time_s - normal.started_s) / WANDER_KNOWN_S
    # A persistent change spreads the level too: it must not mask itself.
    wander = min(normal.wander, MOST_WANDER * normal.settings.least_effect)
    wander = max(wander, WANDER_PRIOR * unknown)
    lasted = (change.time_s - change.since_s) / WANDER_ENDS_S
    return GRADUAL_WANDER * wander * max(0.0, 1 - lasted)
