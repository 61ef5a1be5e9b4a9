"""Statistics of timed runs: what is reported, and when there are enough of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# A percentile is reported from this many samples on; with fewer, its place is luck.
SAMPLES_NEEDED = {"p90": 64, "p99": 662}
PRECISE_REL_STD_ERR = 0.005
MIN_BLOCKS = 5


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan 1996, type 7).

    Args:
        ordered: Values in ascending order, at least one.
        share: From 0 to 1.
    """
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def summary(latencies_ms: Sequence[float]) -> dict[str, float]:
    """Median, mean, coefficient of variation, and the percentiles the samples support.

    Args:
        latencies_ms: One value per timed run in ms, at least one.
    """
    ordered = sorted(latencies_ms)
    mean_ms = statistics.fmean(ordered)
    deviation_ms = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    found = {
        "p50": quantile(ordered, 0.5),
        "mean": mean_ms,
        "cv": deviation_ms / mean_ms if mean_ms > 0 else 0.0,
    }
    for name, needed in SAMPLES_NEEDED.items():
        if len(ordered) >= needed:
            found[name] = quantile(ordered, int(name[1:]) / 100)
    return found


def rel_std_err(block_means: Sequence[float]) -> float:
    """Relative standard error of the overall mean, by the method of batch means.

    Runs that follow each other are correlated, so the error of single runs would flatter; the
    means of blocks are nearly independent (Law, Simulation Modeling and Analysis, ch. 9).

    Args:
        block_means: Means of equally long blocks; with fewer than MIN_BLOCKS the error is
            infinite.
    """
    if len(block_means) < MIN_BLOCKS:
        return math.inf
    mean = statistics.fmean(block_means)
    if mean <= 0:
        return math.inf
    return statistics.stdev(block_means) / math.sqrt(len(block_means)) / mean


class StopRule:
    """When sampling may end, and why.

    At least `min_runs` runs; then as soon as the mean is known to 0.5 %, or when twice as many
    runs no longer make it better known (the noise has settled and more runs will not help).
    The time cap ends it in any case.

    Args:
        min_runs: Least number of timed runs.
        cap_s: Longest time in seconds.
    """

    def __init__(self, min_runs: int, cap_s: float) -> None:
        self._min_runs = min_runs
        self._cap_s = cap_s
        self._block_means: list[float] = []
        self._halfway_err = math.inf

    def update(self, block_mean: float, runs: int, elapsed_s: float) -> str:
        """Takes a block's mean latency; says why to stop, or "" to go on.

        Args:
            block_mean: Mean of the block, in any unit.
            runs: Runs so far.
            elapsed_s: Seconds since sampling began.

        Returns:
            "runs" (enough, and precise), "settled", "time_cap", or "".
        """
        self._block_means.append(block_mean)
        if runs >= self._min_runs:
            err = rel_std_err(self._block_means)
            if err <= PRECISE_REL_STD_ERR:
                return "runs"
            if runs < 2 * self._min_runs:
                self._halfway_err = min(self._halfway_err, err)
            elif err > self._halfway_err / math.sqrt(2):
                return "settled"
        return "time_cap" if elapsed_s >= self._cap_s else ""
