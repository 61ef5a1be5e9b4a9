"""A lasting step among the values of a first day, whose noise hides it from single values.

Two levels are fitted by least squares (Hinkley, "Inference about the change-point in a sequence of random
variables", 1970). Their difference is compared with its standard error, with the noise and its
autocorrelation estimated robustly, and with a daily pattern, which is not known yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from statistics import median
from typing import Final, NamedTuple

from costprobe.core.statistics import LARGEST_PHI, autocorrelation_of, first_least, spread_of
from costprobe.drift.excursion import OUTLIER_SIGMAS
from costprobe.drift.normal import CLIP, DAY_S, FirstDay

# Smallest change reported before the daily pattern is known.
FIRST_DAY_REPORT: Final = 0.14
# Standard errors by which it exceeds that, and the distance of two levels in them that is a change.
CLEAR_ERRORS: Final = 2.0
EARLY_ERRORS: Final = 6.0
# Number of values from which a level of the first day is estimated.
EARLY_VALUES: Final = 12
# Standard error of the mean of the middle three fifths of normal values, in that of their mean.
CENTER_ERROR: Final = 1.07
# Shorter columns are rounding errors.
LEAST_COLUMN: Final = 1e-9


class Step(NamedTuple):
    """A step: UTC in s of the first value after it, the level there, and the difference from that before."""

    since_s: float
    level: float
    shift: float


def values_since(day: FirstDay, since_s: float) -> tuple[list[float], list[float]]:
    """Return times (UTC in s) and logarithms of the values of a first day from an instant on."""
    times_s = [(day.first_slot + index) * day.slot_s for index in range(len(day.values))]
    known = [
        (at_s, value)
        for at_s, value in zip(times_s, day.values, strict=True)
        if at_s > since_s - day.slot_s and not math.isnan(value)
    ]
    return [at_s for at_s, _ in known], [value for _, value in known]


def step_in(times_s: Sequence[float], values: Sequence[float], least_effect: float) -> Step | None:
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
    clipped = [max(-limit, min(limit, x)) for x in residuals]
    clipped = [x + levels[index >= split] for index, x in enumerate(clipped)]
    return None if _is_daily(times_s, clipped, split) else Step(times_s[split], levels[1], shift)


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
    phi = autocorrelation_of([x for x in residuals if abs(x) < CLIP * noise], noise)
    # The levels take some of it (Kendall, "Note on bias in the estimation of autocorrelation", 1954).
    phi = min(LARGEST_PHI, phi + (2 + 4 * phi) / len(residuals))
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


def _is_daily(times_s: Sequence[float], values: Sequence[float], split: int) -> bool:
    """Return whether two harmonics of a day explain more of some values than a step at an index."""
    count = len(values)
    mean = math.fsum(values) / count
    rest = [value - mean for value in values]
    step = math.fsum(rest[split:]) ** 2 * count / (split * (count - split))
    basis = [[1 / math.sqrt(count)] * count]
    pattern = 0.0
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
                pattern += _product(basis[-1], rest) ** 2
    return step < pattern


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(mul, one, other))
