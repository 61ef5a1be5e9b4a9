"""Differences that are rounding errors, so that no choice depends on the last digit of a sum.

Sums are computed with `math.fsum`: the result of `sum` differs between versions of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

# Noise of logarithms below it is rounding, and has no autocorrelation or pattern.
ROUNDING_NOISE = 1e-9
# Share of the largest figure within which two figures are equal.
_EQUAL = 1e-9


def first_least(indices: Iterable[int], figure: Callable[[int], float]) -> int:
    """Return the first index with the smallest figure, but for rounding; at least one index."""
    figures = {index: figure(index) for index in indices}
    limit = min(figures.values()) + _EQUAL * max(map(abs, figures.values()))
    return next(index for index, found in figures.items() if found <= limit)
