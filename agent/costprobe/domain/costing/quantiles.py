"""Quantiles of samples, and of Student's distribution."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


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
