"""Weighted moments of load, mix and value of the samples near a load, for a local linear regression."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

# Samples at each end of a range that are not known well enough.
EXTREMES = 4

Pair = tuple[float, float]


class Matrix(NamedTuple):
    """A symmetric matrix of two rows."""

    aa: float
    ab: float
    bb: float

    def inverse(self, scale: float = 1.0) -> Matrix:
        """Return the inverse with a factor."""
        scale /= self.aa * self.bb - self.ab * self.ab
        return Matrix(scale * self.bb, -scale * self.ab, scale * self.aa)

    def plus(self, other: Matrix) -> Matrix:
        """Return the sum."""
        return Matrix(self.aa + other.aa, self.ab + other.ab, self.bb + other.bb)

    def times(self, pair: Pair) -> Pair:
        """Return the product with a vector."""
        a, b = pair
        return self.aa * a + self.ab * b, self.ab * a + self.bb * b


class Moments(NamedTuple):
    """Weighted samples near a knot: weight, means, and products around the means.

    x is the load less that of the knot, a and b are the mix, and y is the value; `mixes` has the ranges of
    both numbers of the mix.
    """

    total: float
    x: float
    mix: Pair
    mixes: tuple[Pair, Pair]
    y: float
    xx: float
    xa: float
    xb: float
    of_mix: Matrix
    xy: float
    ay: float
    by: float

    def less(self, slope: float, coefficients: Pair) -> Moments:
        """Return those of the values less a plane."""
        a, b = coefficients
        of_a, of_b = self.of_mix.times(coefficients)
        return self._replace(
            y=self.y - slope * self.x - a * self.mix[0] - b * self.mix[1],
            xy=self.xy - slope * self.xx - a * self.xa - b * self.xb,
            ay=self.ay - slope * self.xa - of_a,
            by=self.by - slope * self.xb - of_b,
        )

    def within(self, shrinkage: float) -> tuple[Matrix, Pair]:
        """Return the products of the mix, and those with the value, that a slope does not explain."""
        xx = self.xx + shrinkage
        matrix = Matrix(-self.xa * self.xa / xx, -self.xa * self.xb / xx, -self.xb * self.xb / xx)
        of_values = self.ay - self.xa * self.xy / xx, self.by - self.xb * self.xy / xx
        return self.of_mix.plus(matrix), of_values


def moments_near(knot: float, reach: float, columns: Sequence[Sequence[float]]) -> Moments | None:
    """Return the moments of the samples near a knot; None if there are none with a weight.

    Args:
        knot: A load.
        reach: Distance from it at which the tricube weight is zero.
        columns: Loads in ascending order, both numbers of the mixes, values and weights.
    """
    near = slice(bisect_left(columns[0], knot - reach), bisect_right(columns[0], knot + reach))
    loads, a, b, y, weights = (column[near] for column in columns)
    x = [load - knot for load in loads]
    kernel = [
        weight * (1 - (abs(distance) / reach) ** 3) ** 3
        for distance, weight in zip(x, weights, strict=True)
    ]
    total = math.fsum(kernel)
    if total <= 0:
        return None
    of_a, of_b = (
        known_range([number for number, weight in zip(mix, weights, strict=True) if weight > 0])
        for mix in (a, b)
    )
    (mean_x, x), (mean_a, a), (mean_b, b), (mean_y, y) = (
        _around_mean(column, kernel, total) for column in (x, a, b, y)
    )
    kx, ka, kb = (list(map(mul, kernel, column)) for column in (x, a, b))
    xx, xa, xb, xy = (math.fsum(map(mul, kx, column)) for column in (x, a, b, y))
    aa, ab, ay = (math.fsum(map(mul, ka, column)) for column in (a, b, y))
    bb, by = (math.fsum(map(mul, kb, column)) for column in (b, y))
    mix, products = (mean_a, mean_b), Matrix(aa, ab, bb)
    return Moments(total, mean_x, mix, (of_a, of_b), mean_y, xx, xa, xb, products, xy, ay, by)


def _around_mean(
    values: Sequence[float], weights: Sequence[float], total: float
) -> tuple[float, list[float]]:
    """Return the weighted mean of values, and their differences from it."""
    mean = math.fsum(map(mul, weights, values)) / total
    return mean, [value - mean for value in values]


def known_range(values: Sequence[float]) -> Pair:
    """Return the range of values without a few at each end."""
    ordered = sorted(values)
    left_out = min(EXTREMES, (len(ordered) - 1) // 2)
    return ordered[left_out], ordered[-1 - left_out]
