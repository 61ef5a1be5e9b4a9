"""Robust spread of a sample, and tails that are heavier than normal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import median

from costprobe.domain.costing.quantiles import quantile, student_quantile

_MAD_TO_SIGMA = 1.4826
# Values further from the center are left out of the second step, in spreads of the first one; the standard
# deviation of normal values within these limits is that share of their own.
CUT = 2.5
_CUT_SIGMA = 0.9546
# Degrees of freedom of Student's distribution among which a tail is chosen.
DEGREES = (5.0, 7.0, 10.0, 15.0, 30.0, 100.0)
# Fewer values do not show their tail.
LEAST_TAIL = 100


def spread_of(values: Sequence[float], center: float | None = None) -> float:
    """Return the standard deviation of the bulk of some values, in two steps.

    The median absolute deviation, which half of the values may not move, then the standard deviation of
    the values within 2.5 of it, corrected for those left out: as robust, and nearly as precise as a
    standard deviation (Rousseeuw and Leroy, "Robust Regression and Outlier Detection", 1987, reweighted
    least squares).

    Args:
        values: At least one.
        center: Known center; None for the median.
    """
    middle = median(values) if center is None else center
    distances = [abs(value - middle) for value in values]
    first = _MAD_TO_SIGMA * median(distances)
    kept = [distance for distance in distances if distance <= CUT * first]
    return math.sqrt(math.fsum(distance * distance for distance in kept) / len(kept)) / _CUT_SIGMA


def tail_degrees(scores: Sequence[float]) -> float:
    """Return the degrees of freedom of Student's distribution that the lower half of some scores follows.

    Faults make a GPU slower, so that the other half shows the tail of healthy ones (the empirical null of
    Efron, "Large-scale simultaneous hypothesis testing", 2004). Compared is the ratio of the 95 % and the
    50 % quantile.

    Args:
        scores: Values in units of their spread, centered at 0.
    """
    lower = sorted(-score for score in scores if score < 0)
    if len(lower) < LEAST_TAIL:
        return DEGREES[-1]
    ratio = quantile(lower, 0.95) / max(quantile(lower, 0.5), 1e-9)
    return next((df for df in reversed(DEGREES) if _ratio(df) >= ratio), DEGREES[0])


@cache
def _ratio(degrees: float) -> float:
    return student_quantile(0.975, degrees) / student_quantile(0.75, degrees)
