"""A curve of the load by local linear regression (Cleveland, 1979), with an expected slope.

Samples have tricube weights. Where those near a load do not show the slope it is shrunk towards the
expected one. Outside of the knots the curve continues with its slope at the edge.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import pairwise

KNOTS = 13
# Width of the regression: a share of the range of loads, and the least one in log units. Twice as wide it
# is wrong by 3 to 8 % at the highest loads of a server that saturates.
WIDTH_SHARE = 0.1
LEAST_WIDTH = 0.12
# Standard deviation of the expected slope, which is between 0 (an additive server) and -1 (a device that
# is busy, or draws power, whatever the load).
SLOPE_ERROR = 0.4
# Loads that differ by less show no slope: counts are in the load and in the effort per count, so that
# their noise has a slope of -1.
LOAD_NOISE = 0.05


class EffortCurve:
    """A fitted curve.

    Args:
        loads: Least and largest load of the knots.
        slope: Expected slope.
    """

    def __init__(self, loads: tuple[float, float], slope: float) -> None:
        self._slope = slope
        self._low, self._high = loads
        self.width = max(LEAST_WIDTH, WIDTH_SHARE * (self._high - self._low))
        self._step = (self._high - self._low) / (KNOTS - 1)
        self._knots = array("d", [self._low + index * self._step for index in range(KNOTS)])
        self._values, self._slopes = array("d"), array("d")
        # Variances of the slope at both edges, without its change beyond them.
        self.edges = SLOPE_ERROR**2, SLOPE_ERROR**2

    @property
    def turns(self) -> float:
        """Sum of the squared changes of the slope from knot to knot."""
        return sum((later - former) ** 2 for former, later in pairwise(self._slopes))

    def value(self, load: float) -> float:
        """Return the value at a load."""
        if load <= self._low:
            return self._values[0] + self._slopes[0] * (load - self._low)
        if load >= self._high:
            return self._values[-1] + self._slopes[-1] * (load - self._high)
        index = min(KNOTS - 2, int((load - self._low) / self._step))
        share = (load - self._knots[index]) / self._step
        return (1 - share) * self._values[index] + share * self._values[index + 1]

    def fit(
        self,
        loads: Sequence[float],
        values: Sequence[float],
        weights: Sequence[float],
        noise: float,
    ) -> None:
        """Fit the curve.

        Args:
            loads: Those of the samples.
            values: Their values.
            weights: Their weights; at least one is positive.
            noise: Variance of the values.
        """
        fitted, slopes = array("d"), array("d")
        # Of the slope at each knot, the share that is the expected one.
        expected = []
        prior, reach = noise / SLOPE_ERROR**2, 2 * self.width
        for knot in self._knots:
            total = of_x = of_y = of_xx = of_xy = 0.0
            for load, value, weight in zip(loads, values, weights, strict=True):
                x = load - knot
                if not -reach < x < reach:
                    continue
                distance = abs(x) / reach
                tricube = 1 - distance * distance * distance
                kernel = weight * tricube * tricube * tricube
                moment = kernel * x
                total += kernel
                of_x += moment
                of_y += kernel * value
                of_xx += moment * x
                of_xy += moment * value
            if total <= 0:
                fitted.append(math.nan)
                slopes.append(self._slope)
                expected.append(1.0)
                continue
            mean_x, mean_y = of_x / total, of_y / total
            spread, product = of_xx - total * mean_x**2, of_xy - total * mean_x * mean_y
            shrinkage = prior + total * LOAD_NOISE**2
            slope = (product + shrinkage * self._slope) / (max(0.0, spread) + shrinkage)
            fitted.append(mean_y - slope * mean_x)
            slopes.append(slope)
            expected.append(shrinkage / (max(0.0, spread) + shrinkage))
        self._values, self._slopes = self._filled(fitted), slopes
        self.edges = SLOPE_ERROR**2 * expected[0], SLOPE_ERROR**2 * expected[-1]

    def _filled(self, values: array[float]) -> array[float]:
        """Interpolate knots without values between their neighbours; at the edges continue the nearest one."""
        known = [index for index, value in enumerate(values) if not math.isnan(value)]
        for left, right in pairwise(known):
            for index in range(left + 1, right):
                share = (index - left) / (right - left)
                values[index] = values[left] + share * (values[right] - values[left])
        for edge, outer in ((known[0], range(known[0])), (known[-1], range(known[-1] + 1, KNOTS))):
            for index in outer:
                values[index] = values[edge] + self._slope * (index - edge) * self._step
        return values
