"""Effort as a function of load and mix, by local linear regression.

The regression is conditionally parametric (Cleveland and Devlin, "Locally weighted regression", 1988): near
a load the effort is linear in load and mix, and the tricube weights depend on the load alone. Where the
samples near a load do not show the slope it is shrunk towards the expected one, and the coefficients of the
mix towards those of all loads. Those are estimated from samples with other mixes at the same load (Robinson,
"Root-N-consistent semiparametric regression", 1988): the load explains what load and mix could both explain.
Outside of the knots the curve continues with its slope at the edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from costprobe.domain.detection.moments import Matrix, Moments, Pair, moments_near

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
# Standard deviation of the coefficients of the mix: elasticities, of tokens whose weights are wrong by up to
# a factor of two. And that of the difference between a coefficient at one load and at all.
COEFFICIENT_ERROR = 0.2
LOCAL_ERROR = 0.1


class _Knot(NamedTuple):
    """The fitted plane at a load.

    Attributes:
        value: At the mix 0.
        slope: Over the load.
        mix: The mean one of the samples nearby.
        mixes: Ranges of both numbers of their mixes.
        coefficients: Of the mix.
        root: Cholesky factor of their covariance: its first column, and the last element.
        expected: Share of the slope that is the expected one.
    """

    value: float
    slope: float
    mix: Pair
    mixes: tuple[Pair, Pair]
    coefficients: Pair
    root: tuple[float, float, float]
    expected: float

    def at(self, mix: Pair) -> float:
        """Return the value at a mix."""
        return self.value + self.coefficients[0] * mix[0] + self.coefficients[1] * mix[1]


class EffortCurve:
    """A fitted curve.

    Args:
        loads: Least and largest load of the knots.
        slope: Expected slope.
    """

    def __init__(self, loads: Pair, slope: float) -> None:
        self._slope = slope
        self._low, self._high = loads
        self.width = max(LEAST_WIDTH, WIDTH_SHARE * (self._high - self._low))
        self._step = (self._high - self._low) / (KNOTS - 1)
        self._loads = [self._low + index * self._step for index in range(KNOTS)]
        self._knots: list[_Knot] = []

    @property
    def turns(self) -> float:
        """Sum of the squared changes of the slope from knot to knot."""
        return math.fsum(
            (later.slope - former.slope) ** 2 for former, later in pairwise(self._knots)
        )

    @property
    def edges(self) -> Pair:
        """Variances of the slope at both edges, without its change beyond them."""
        first, last = self._knots[0].expected, self._knots[-1].expected
        return SLOPE_ERROR**2 * first, SLOPE_ERROR**2 * last

    def value(self, load: float, mix: Pair) -> float:
        """Return the value at a load and a mix."""
        if load <= self._low:
            return self._knots[0].at(mix) + self._knots[0].slope * (load - self._low)
        if load >= self._high:
            return self._knots[-1].at(mix) + self._knots[-1].slope * (load - self._high)
        index = min(KNOTS - 2, int((load - self._low) / self._step))
        share = (load - self._loads[index]) / self._step
        return (1 - share) * self._knots[index].at(mix) + share * self._knots[index + 1].at(mix)

    def error(self, load: float, mix: Pair) -> Pair:
        """Return what the coefficients may be wrong by at a load and mix: independent standard errors.

        Those of two mixes have the sum of their products as covariance.
        """
        knot = self._nearest(load)
        a, b = mix[0] - knot.mix[0], mix[1] - knot.mix[1]
        first, both, last = knot.root
        return first * a + both * b, last * b

    def mixes(self, load: float) -> tuple[Pair, Pair]:
        """Return the ranges of both numbers of the mixes that were observed near a load."""
        return self._nearest(load).mixes

    def _nearest(self, load: float) -> _Knot:
        index = round((load - self._low) / self._step) if self._step else 0
        return self._knots[max(0, min(KNOTS - 1, index))]

    def fit(
        self,
        loads: Sequence[float],
        mixes: tuple[Sequence[float], Sequence[float]],
        values: Sequence[float],
        weights: Sequence[float],
        noise: float,
    ) -> None:
        """Fit the curve.

        Args:
            loads: Those of the samples, in ascending order.
            mixes: Both numbers of their mixes.
            values: Their values.
            weights: Their weights; at least one is positive.
            noise: Variance of the values.
        """
        columns = loads, *mixes, values, weights
        found = [moments_near(knot, 2 * self.width, columns) for knot in self._loads]
        usual, prior = self._usual(found, math.fsum(weights), noise)
        known = {
            index: self._plane(near, usual, prior, noise)
            for index, near in enumerate(found)
            if near is not None
        }
        self._knots = [
            known.get(index) or self._between(index, list(known.items())) for index in range(KNOTS)
        ]

    def _shrinkage(self, near: Moments, noise: float) -> float:
        return noise / SLOPE_ERROR**2 + near.total * LOAD_NOISE**2

    def _usual(
        self, found: Sequence[Moments | None], weight: float, noise: float
    ) -> tuple[Pair, Matrix]:
        """Return the coefficients of all loads, and the inverse covariance of those at one load."""
        known = [near.less(self._slope, (0.0, 0.0)) for near in found if near is not None]
        # A sample is near several knots.
        share = weight / math.fsum(near.total for near in known)
        least = noise / COEFFICIENT_ERROR**2
        matrix, of_values = Matrix(least, 0.0, least), (0.0, 0.0)
        for near in known:
            (aa, ab, bb), (ay, by) = near.within(self._shrinkage(near, noise))
            matrix = matrix.plus(Matrix(share * aa, share * ab, share * bb))
            of_values = of_values[0] + share * ay, of_values[1] + share * by
        usual = matrix.inverse().times(of_values)
        covariance = matrix.inverse(noise).plus(Matrix(LOCAL_ERROR**2, 0.0, LOCAL_ERROR**2))
        return usual, covariance.inverse()

    def _plane(self, near: Moments, usual: Pair, prior: Matrix, noise: float) -> _Knot:
        """Return the plane at a knot."""
        rest, shrinkage = near.less(self._slope, usual), self._shrinkage(near, noise)
        matrix, of_values = rest.within(shrinkage)
        matrix = matrix.plus(Matrix(noise * prior.aa, noise * prior.ab, noise * prior.bb))
        a, b = matrix.inverse().times(of_values)
        slope = (rest.xy - rest.xa * a - rest.xb * b) / (rest.xx + shrinkage)
        value = rest.y - slope * rest.x - a * rest.mix[0] - b * rest.mix[1]
        aa, ab, bb = matrix.inverse(noise)
        root = math.sqrt(aa), ab / math.sqrt(aa), math.sqrt(max(0.0, bb - ab * ab / aa))
        coefficients = usual[0] + a, usual[1] + b
        expected = shrinkage / (near.xx + shrinkage)
        return _Knot(value, self._slope + slope, near.mix, near.mixes, coefficients, root, expected)

    def _between(self, index: int, known: Sequence[tuple[int, _Knot]]) -> _Knot:
        """Return the plane at a knot without samples: the nearest one, through the values on both sides."""
        left, before = next((pair for pair in reversed(known) if pair[0] < index), known[0])
        right, after = next((pair for pair in known if pair[0] > index), known[-1])
        nearest, plane = min(known, key=lambda pair: abs(pair[0] - index))
        value = plane.value + self._slope * (index - nearest) * self._step
        if left < index < right:
            value = before.value + (index - left) / (right - left) * (after.value - before.value)
        return plane._replace(value=value, slope=self._slope, expected=1.0)
