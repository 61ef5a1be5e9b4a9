"""A robust regression of the runs of one level on one signal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from costprobe.domain.detection.attribution import Estimate

LEAST_PAIRS = 5
# Standard error of a median of normal values, in that of their mean.
MEDIAN_ERROR = 1.2533
# A change of slope between two levels is not in the scatter of one.
LEAST_SLOPE_ERROR = 0.03
# Below this part of the scatter of y explained, x may vary by the noise of its reading, which reduces the
# slope by as much (regression dilution).
LEAST_EXPLAINED = 0.5


def slope_of(
    groups: Sequence[Sequence[tuple[float, float]]],
    least_distance: float,
    *,
    is_exact: bool = False,
) -> Estimate | None:
    """Return the slope of y over x and its standard error; None without enough variation of x.

    Theil's incomplete method ("A rank-invariant method of linear and polynomial regression analysis",
    1950): each value of the lower half of x is paired with one of the upper half, and the slope is the
    median of the pairs', here weighted by their distance. A quarter of the pairs may be outliers.

    Args:
        groups: x and y of each level; pairs are formed within a group only.
        least_distance: Pairs that are closer in x are omitted: noise of x would reduce the slope.
        is_exact: Whether the variation of x is known not to be noise of its reading. Otherwise the
            slope must explain half of the scatter of y.
    """
    pairs = []
    for group in groups:
        ordered = sorted(group)
        half = (len(ordered) + 1) // 2
        for (x, y), (far_x, far_y) in zip(ordered, ordered[half:], strict=False):
            if far_x - x >= least_distance:
                pairs.append((far_x - x, far_y - y))
    if len(pairs) < LEAST_PAIRS:
        return None
    slope = _weighted_median([(dy / dx, dx) for dx, dy in pairs])
    spread = median(abs(dy - slope * dx) for dx, dy in pairs)
    error = 1.4826 * MEDIAN_ERROR * spread / math.sqrt(math.fsum(dx * dx for dx, _ in pairs))
    if is_exact:
        return Estimate(slope, max(error, LEAST_SLOPE_ERROR))
    scatter = median(abs(dy) for _, dy in pairs)
    explained = 1 - (spread / scatter) ** 2 if scatter else 0.0
    if explained < LEAST_EXPLAINED:
        return None
    dilution = abs(slope) * (1 - explained) / 2
    return Estimate(slope, max(error, dilution, LEAST_SLOPE_ERROR))


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    ordered = sorted(values)
    half = math.fsum(weight for _, weight in ordered) / 2
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return ordered[-1][0]
