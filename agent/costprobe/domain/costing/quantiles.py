"""Quantiles of samples, and of Student's distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# Enough for 1e-10 at any number of degrees of freedom below 1e4.
_FRACTION_TERMS = 60


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation of order statistics (Hyndman and Fan 1996, type 7).

    Args:
        ordered: Samples in ascending order; at least one.
        share: From 0 to 1.
    """
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def student_quantile(share: float, degrees: float) -> float:
    """Return a quantile of Student's distribution (Abramowitz and Stegun, expansion 26.7.5).

    Args:
        share: From 0 to 1, both excluded.
        degrees: Degrees of freedom; below 1 counts as 1.
    """
    z, n = statistics.NormalDist().inv_cdf(share), max(1.0, degrees)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def student_tail(t: float, degrees: float) -> float:
    """Return the probability of a value above t in Student's distribution.

    Source: Abramowitz and Stegun, 26.7.1 and 26.5.8, the continued fraction of the incomplete beta function,
    evaluated from its end.

    Args:
        t: Any number.
        degrees: Degrees of freedom, at least 1.
    """
    if t < 0:
        return 1 - student_tail(-t, degrees)
    a, b, x = degrees / 2, 0.5, degrees / (degrees + t * t)
    if x > (a + 1) / (a + b + 2):
        # The fraction converges for the other tail of the beta distribution.
        return 0.5 - _beta_part(b, a, 1 - x) / 2
    return _beta_part(a, b, x) / 2


def _beta_part(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function, for x of at most (a + 1) / (a + b + 2)."""
    if x <= 0:
        return 0.0
    fraction = 1.0
    for m in range(_FRACTION_TERMS, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        fraction = 1 + even / (1 + odd / fraction)
    first = -(a + b) * x / (a + 1)
    whole = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(whole + a * math.log(x) + b * math.log1p(-x)) / a / (1 + first / fraction)
