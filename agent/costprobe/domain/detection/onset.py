"""Where a series of runs changes its level: the change point, and how exactly it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from costprobe.domain.detection.rounding import first_least

# Rise of the sum of squares, in variances of the noise, within which a change point is as likely:
# the 95 % quantile of the likelihood ratio with one degree of freedom, doubled because the position is
# discrete and was chosen as the best.
AS_LIKELY = 2 * 3.84
# A series without noise: a share of its change.
LEAST_NOISE = 1e-3
LEAST_VALUES = 4


def change_point(values: Sequence[float]) -> tuple[int, int, int] | None:
    """Return the first index after a change of level, and the first and last index that are as likely.

    Two levels are fitted by least squares (Hinkley, "Inference about the change-point in a sequence
    of random variables", 1970); the noise is estimated from differences of neighbours.

    Args:
        values: The series; None with fewer than LEAST_VALUES.
    """
    count = len(values)
    if count < LEAST_VALUES:
        return None
    total, head = math.fsum(values), 0.0
    explained = {}
    for index in range(1, count):
        head += values[index - 1]
        shift = (total - head) / (count - index) - head / index
        explained[index] = shift * shift * index * (count - index) / count
    best = first_least(explained, lambda index: -explained[index])
    shift = math.fsum(values[best:]) / (count - best) - math.fsum(values[:best]) / best
    # The change itself is one of the differences.
    noise = 1.4826 * median(abs(b - a) for a, b in pairwise(values)) / 2**0.5
    noise = max(noise, LEAST_NOISE * abs(shift))
    floor = explained[best] - AS_LIKELY * noise * noise
    likely = [index for index, gain in explained.items() if gain >= floor]
    return best, likely[0], likely[-1]
