"""Decision intervals of cumulative sums."""

from __future__ import annotations

import math
from functools import lru_cache

# Siegmund's correction for the overshoot over a boundary, in standard deviations.
_OVERSHOOT = 1.166
_KEYS_PER_UNIT = 64


def decision_interval(reference: float, run_length: float) -> float:
    """Return the threshold h of a one-sided CUSUM of white noise for a mean time to a false alarm.

    Args:
        reference: The reference value k, in standard deviations; positive.
        run_length: The mean number of values until a false alarm.

    Returns:
        h in standard deviations, from Siegmund's approximation
        ARL = (exp(2kb) - 2kb - 1) / (2k^2) with b = h + 1.166 (Siegmund, "Sequential Analysis",
        1985, ch. II), to 1/64 of a standard deviation of k.
    """
    return _solved(max(1, round(reference * _KEYS_PER_UNIT)), run_length)


@lru_cache(maxsize=1024)
def _solved(key: int, run_length: float) -> float:
    reference = key / _KEYS_PER_UNIT
    wanted = 2 * reference * reference * run_length
    exponent = math.log(wanted + 1)
    for _ in range(20):  # exponent = ln(wanted + 1 + exponent): the iteration converges fast
        exponent = math.log(wanted + 1 + exponent)
    return max(1.0, exponent / (2 * reference) - _OVERSHOOT)
