"""Which of many deviations are reported: a bounded share of false ones, and intervals after the selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costprobe.domain.costing.quantiles import student_quantile, student_tail
from costprobe.domain.fleet.deviation import Deviation

# Expected share of false ones among the reported.
FALSE_SHARE = 0.05
# Smallest deviation that is reported.
LEAST_EFFECT = 0.02


@dataclass(frozen=True, slots=True)
class Excess:
    """How much more than its peers, as a share: 0.05 for 5 % more.

    Attributes:
        mean: Estimate.
        low: Lower end of its interval.
        high: Upper end.
    """

    mean: float
    low: float
    high: float


def discoveries(tests: Sequence[Deviation]) -> list[int]:
    """Return which deviations are reported: at least 2 % more than peers, and at most 5 % of them false.

    Source: Benjamini and Hochberg, "Controlling the false discovery rate", 1995, which holds for these tests
    too, whose dependence within a host is weak (Storey et al. 2004). The p-values are two-sided, like the
    intervals; smaller deviations count as tested and are never reported.

    Args:
        tests: Every deviation that is tested, reported or not.

    Returns:
        Their indices, the smallest p-value first.
    """
    ranked = sorted(
        (2 * student_tail(one.score, one.degrees), n)
        for n, one in enumerate(tests)
        if math.expm1(one.log_excess) >= LEAST_EFFECT
    )
    allowed = FALSE_SHARE / max(1, len(tests))
    last = max((rank for rank, (p, _) in enumerate(ranked, 1) if p <= allowed * rank), default=0)
    return [n for _, n in ranked[:last]]


def interval_of(deviation: Deviation, reported: int, tested: int) -> Excess:
    """Return a reported deviation with an interval that allows for its selection.

    The largest of many are too large. With R of m reported, intervals at the level 1 - 0.05 R / m miss at
    most 5 % of the reported (Benjamini and Yekutieli, "False discovery rate-adjusted multiple confidence
    intervals", 2005). The spread of healthy GPUs is part of the interval.

    Args:
        deviation: The deviation.
        reported: Number of reported ones, at least 1.
        tested: Number of all.
    """
    missed = FALSE_SHARE * reported / tested
    half = student_quantile(1 - missed / 2, deviation.degrees) * deviation.error
    mean = deviation.log_excess
    return Excess(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half))
