"""Linear least squares without negative coefficients, and intervals of sums of the coefficients.

Each row is weighted by the inverse of its total (Lawson and Hanson, "Solving Least Squares Problems", 1974, ch. 23).
The intervals are those of linear regression with Student's quantile; they contain what the model does not explain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

from costprobe.domain.costing.quantiles import student_quantile

CONFIDENCE: Final = 0.95
# Below this share of its column's square a pivot is noise: the rows do not separate the terms.
MIN_PIVOT: Final = 1e-12
# A further term that reduces the mean squared error by less explains rounding errors.
MIN_GAIN: Final = 1e-18

_Vector = list[float]


class ConfidenceInterval(NamedTuple):
    """A figure with its interval of 95 %."""

    value: float
    low: float
    high: float


class Regression(NamedTuple):
    """Coefficients, and the covariance of those above zero."""

    values: _Vector
    active: tuple[int, ...]
    covariance: list[_Vector]
    degrees: int

    def interval(self, factors: _Vector) -> ConfidenceInterval:
        """Return a sum of coefficients, each times a factor, with its interval."""
        value = math.fsum(factor * x for factor, x in zip(factors, self.values, strict=True))
        own = [factors[term] for term in self.active]
        variance = math.fsum(
            a * b * self.covariance[i][j] for i, a in enumerate(own) for j, b in enumerate(own)
        )
        quantile = student_quantile((1 + CONFIDENCE) / 2, self.degrees)
        half = quantile * math.sqrt(max(0.0, variance))
        return ConfidenceInterval(value, max(0.0, value - half), value + half)


def nonnegative_fit(rows: Sequence[_Vector], totals: Sequence[float]) -> Regression:
    """Return the non-negative least squares of the relative errors, by trying each set of terms.

    The terms are few: the best of the sets whose unrestricted solution is above zero is the
    solution (the Karush-Kuhn-Tucker conditions hold for no other of them).

    Args:
        rows: What the coefficients are multiplied with, in each row; more rows than coefficients.
        totals: The sum of each row, above zero.

    Raises:
        ValueError: There is no solution.
    """
    terms = len(rows[0])
    scaled = [[x / total for x in row] for row, total in zip(rows, totals, strict=True)]
    scales = [max(abs(row[term]) for row in scaled) or 1.0 for term in range(terms)]
    scaled = [[x / scale for x, scale in zip(row, scales, strict=True)] for row in scaled]
    best: tuple[float, tuple[int, ...], _Vector, list[_Vector]] | None = None
    for size in range(1, terms + 1):
        for active in combinations(range(terms), size):
            inverse = _inverse(
                [[math.fsum(row[i] * row[j] for row in scaled) for j in active] for i in active]
            )
            if inverse is None:
                continue
            sums = [math.fsum(row[i] for row in scaled) for i in active]
            own = [math.fsum(a * b for a, b in zip(line, sums, strict=True)) for line in inverse]
            if min(own) < 0:
                continue
            error = math.fsum(
                (1 - math.fsum(row[i] * x for i, x in zip(active, own, strict=True))) ** 2
                for row in scaled
            )
            if best is None or error < best[0] - MIN_GAIN * len(rows):
                best = error, active, own, inverse
    if best is None:
        raise ValueError("the windows have no solution above zero")
    error, active, own, inverse = best
    degrees = len(rows) - len(active)
    values = [0.0] * terms
    for term, x in zip(active, own, strict=True):
        values[term] = x / scales[term]
    covariance = [
        [error / degrees * x / (scales[i] * scales[j]) for j, x in zip(active, line, strict=True)]
        for i, line in zip(active, inverse, strict=True)
    ]
    return Regression(values, active, covariance, degrees)


def _inverse(matrix: list[_Vector]) -> list[_Vector] | None:
    """Return the inverse of a symmetric matrix by elimination; None if it is singular."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(rows[i][column]))
        if abs(rows[pivot][column]) <= MIN_PIVOT * matrix[column][column]:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        rows[column] = [x / head for x in rows[column]]
        for i in range(size):
            if i != column:
                factor = rows[i][column]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[column], strict=True)]
    return [row[size:] for row in rows]
