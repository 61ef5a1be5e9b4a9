"""Noise of a series beside a slow pattern: standard deviation, AR(1) coefficient, error of a median."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from costprobe.domain.detection.rounding import ROUNDING_NOISE

LARGEST_PHI = 0.85
# Standard error of a median over that of a mean.
MEDIAN_ERROR = 1.25


def median_error(noise: float, phi: float) -> float:
    """Return the standard error of a median of AR(1) noise, times the root of its number."""
    return MEDIAN_ERROR * noise * math.sqrt((1 + phi) / (1 - phi))


def noise_of(values: Sequence[float]) -> tuple[float, float]:
    """Estimate standard deviation and AR(1) coefficient from differences, robust to a slow pattern.

    For AR(1) noise the variance of differences at lag one is 2 s^2 (1 - phi), at lag two
    2 s^2 (1 - phi^2); their ratio is 1 + phi.
    """
    lag1 = 1.4826 * median(abs(b - a) for a, b in pairwise(values))
    lag2 = 1.4826 * median(abs(b - a) for a, b in zip(values, values[2:], strict=False))
    if lag1 < ROUNDING_NOISE:
        return 0.0, 0.0
    phi = min(LARGEST_PHI, max(0.0, (lag2 / lag1) ** 2 - 1))
    return lag1 / math.sqrt(2 * (1 - phi)), phi


def pattern_free(values: Sequence[float], reach: int) -> list[float]:
    """Return the differences of the known values from a running median, which follows a pattern.

    Args:
        values: The series; NaN where it is unknown.
        reach: Values on each side of the median.
    """
    known = [value for value in values if not math.isnan(value)]
    return [
        value - median(known[max(0, index - reach) : index + reach + 1])
        for index, value in enumerate(known)
    ]


def autocorrelation(residuals: Sequence[float], noise: float) -> float:
    """Estimate the AR(1) coefficient as the autocorrelation of the clipped values.

    It is more exact than `noise_of`, and too low where the noise is slow; the larger of both is
    on the side of fewer false alarms.

    Args:
        residuals: Values as from `pattern_free`.
        noise: Their standard deviation.
    """
    limit = 3 * noise
    clipped = [max(-limit, min(limit, value)) for value in residuals]
    square = math.fsum(value * value for value in clipped)
    product = math.fsum(b * a for a, b in pairwise(clipped))
    return min(LARGEST_PHI, max(0.0, product / square)) if square else 0.0
