"""Size, start and kind of the change that the detector suspects, and how far a level moves by itself."""

from __future__ import annotations

import math
from statistics import median

from costprobe.domain.detection.change_filter import (
    EARLY_ERRORS,
    EARLY_VALUES,
    FIRST_DAY_REPORT,
    LevelChange,
)
from costprobe.domain.detection.normal import RECENT, SeriesModel
from costprobe.domain.detection.profile import DAY_S
from costprobe.domain.detection.rounding import first_least

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


def change_of(normal: SeriesModel, time_s: float) -> LevelChange | None:
    """Return the change that the run or the sums indicate; None below their thresholds."""
    if normal.profile is None and not _is_step(normal):
        return _early_change(normal, time_s)
    if _is_step(normal):
        sign = math.copysign(1.0, normal.run)
        length = min(abs(normal.run), RECENT)
        since_s = time_s - (length - 1) * normal.interval_s
    else:
        bounds = normal.bounds[3:6] * 2
        over = [total / h for total, h in zip(normal.sums, bounds, strict=True)]
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


def is_anomaly(normal: SeriesModel, residual: float, surprise: float) -> bool:
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


def _early_change(normal: SeriesModel, time_s: float) -> LevelChange | None:
    """Return a large change of the first day that the noise hides from single values."""
    values = list(normal.recent)
    before, after = values[:-EARLY_VALUES], values[-EARLY_VALUES:]
    if len(before) < 2 * EARLY_VALUES:
        return None
    level = median(after)
    shift = level - median(before)
    error = normal.long_run * math.sqrt(1 / len(before) + 1 / len(after))
    if abs(shift) < max(FIRST_DAY_REPORT, EARLY_ERRORS * error):
        return None
    # Least squares with two levels.
    lengths = range(EARLY_VALUES // 2, len(before))
    length = first_least(lengths, lambda length: -_explained(values, length))
    since_s = time_s - (length - 1) * normal.interval_s
    return LevelChange(time_s, since_s, level, shift, is_sharp=True)


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


def tolerance_of(normal: SeriesModel, change: LevelChange) -> float:
    """Return the natural movement of the level; smaller, the longer a change has lasted."""
    if change.is_sharp:
        return SHARP_WANDER * normal.wander
    unknown = 1 - (change.time_s - normal.started_s) / WANDER_KNOWN_S
    # A persistent change spreads the level too: it must not mask itself.
    wander = min(normal.wander, MOST_WANDER * normal.settings.least_effect)
    wander = max(wander, WANDER_PRIOR * unknown)
    lasted = (change.time_s - change.since_s) / WANDER_ENDS_S
    return GRADUAL_WANDER * wander * max(0.0, 1 - lasted)


def _explained(values: list[float], length: int) -> float:
    """Return the sum of squares that another level of the last `length` values explains."""
    before, after = values[:-length], values[-length:]
    shift = math.fsum(after) / length - math.fsum(before) / len(before)
    return shift * shift * length * len(before) / len(values)


def center(values: list[float]) -> float:
    """Return the mean of the middle three fifths; of fewer than six values the median."""
    if len(values) < 6:  # noqa: PLR2004 - there is no fifth to cut of fewer
        return median(values)
    cut = len(values) // 5
    middle = sorted(values)[cut : len(values) - cut]
    return math.fsum(middle) / len(middle)
