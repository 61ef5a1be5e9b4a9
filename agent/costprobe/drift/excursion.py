"""Whether one excursion from a level describes a day better than a daily pattern does.

By the Bayesian information criterion (Schwarz, "Estimating the dimension of a model", 1978): the sum of
squares over the variance of the noise, plus the degrees of freedom times the logarithm of the number of
values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

# Longest excursion as a share of the day; working hours are longer.
LONGEST_EXCURSION = 0.25
OUTLIER_SIGMAS = 4.0
# Degrees of freedom: two levels, start and end; two amplitudes and phases, and a level.
EXCURSION_FREEDOM = 4
HARMONICS_FREEDOM = 5


def is_excursion(
    values: Sequence[float], smooth: Sequence[float], variance: float, freedom: float
) -> bool:
    """Return whether one excursion from a level describes a day better than a pattern does.

    Args:
        values: Values of the day.
        smooth: The smooth profile at the same times.
        variance: Long-run variance of the noise.
        freedom: Degrees of freedom of the smooth profile.
    """
    limit = OUTLIER_SIGMAS * math.sqrt(variance)
    # Without the outliers, which no model describes.
    values = [
        pattern + max(-limit, min(limit, value - pattern))
        for value, pattern in zip(values, smooth, strict=True)
    ]
    count = len(values)
    mean = math.fsum(values) / count
    values = [value - mean for value in values]
    total_squares = math.fsum(value * value for value in values)
    of_profile = math.fsum(
        (value + mean - pattern) ** 2 for value, pattern in zip(values, smooth, strict=True)
    )
    harmonics = _explained_by_harmonics(values)
    price = variance * math.log(count)
    pattern = min(
        of_profile + freedom * price, total_squares - harmonics + HARMONICS_FREEDOM * price
    )
    return total_squares - _explained_by_excursion(values) + EXCURSION_FREEDOM * price < pattern


def _explained_by_excursion(values: Sequence[float]) -> float:
    """Return the largest sum of squares that one excursion explains of values with mean 0."""
    sums = [0.0, *accumulate(values)]
    count = len(values)
    best = 0.0
    for length in range(1, int(count * LONGEST_EXCURSION) + 1):
        weight = 1 / length + 1 / (count - length)
        largest = max(
            abs(sums[first + length] - sums[first]) for first in range(count - length + 1)
        )
        best = max(best, largest * largest * weight)
    return best


def _explained_by_harmonics(values: Sequence[float]) -> float:
    """Return the sum of squares that the first two harmonics of a day explain."""
    count = len(values)
    explained = 0.0
    for harmonic in (1, 2):
        for wave in (math.cos, math.sin):
            product = math.fsum(
                value * wave(2 * math.pi * harmonic * index / count)
                for index, value in enumerate(values)
            )
            explained += 2 * product * product / count
    return explained
