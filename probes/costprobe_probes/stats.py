"""Statistics of timed runs, and the rule that ends sampling."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# Fewest samples for a percentile; with fewer samples its estimate is unreliable.
SAMPLES_NEEDED = {"p90": 64, "p99": 662}
PRECISE_REL_STD_ERR = 0.005
MIN_BLOCKS = 5
# Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): a modified z-score above 3.5.
OUTLIER_SCORE = 3.5
# Median absolute deviation of a normal distribution over its standard deviation.
MAD_PER_SIGMA = 0.6745
# Timers have a resolution: values within this share of the median are never outliers.
LEAST_DISTANCE = 0.01


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation of order statistics (Hyndman and Fan 1996, type 7).

    Args:
        ordered: Values in ascending order, at least one.
        share: From 0 to 1.
    """
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def summary(latencies_ms: Sequence[float]) -> dict[str, float]:
    """Return median, mean, coefficient of variation, and the percentiles that the samples support.

    Args:
        latencies_ms: One value per timed run in ms, at least one.
    """
    ordered = sorted(latencies_ms)
    mean_ms = statistics.fmean(ordered)
    deviation_ms = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    figures = {
        "p50": quantile(ordered, 0.5),
        "mean": mean_ms,
        "cv": deviation_ms / mean_ms if mean_ms > 0 else 0.0,
    }
    for name, needed in SAMPLES_NEEDED.items():
        if len(ordered) >= needed:
            figures[name] = quantile(ordered, int(name[1:]) / 100)
    return figures


def outliers(values: Sequence[float]) -> int:
    """Count the values far from the median (modified z-score above 3.5).

    Outliers are counted, not removed: a slow inference did take that long, and a mean without it
    would be too low.

    Args:
        values: At least one.
    """
    middle = quantile(sorted(values), 0.5)
    distances = [abs(value - middle) for value in values]
    deviation = quantile(sorted(distances), 0.5)
    bound = max(OUTLIER_SCORE * deviation / MAD_PER_SIGMA, LEAST_DISTANCE * middle)
    return sum(distance > bound for distance in distances)


def rel_std_err(block_means: Sequence[float]) -> float:
    """Return the relative standard error of the mean, or median, by the method of batch means.

    Consecutive runs are correlated, so the error computed from single runs would be too small; the
    means of blocks are nearly independent (Law, Simulation Modeling and Analysis, ch. 9).

    Args:
        block_means: Means, or medians, of equally long blocks; with fewer than MIN_BLOCKS the
            error is infinite.
    """
    if len(block_means) < MIN_BLOCKS:
        return math.inf
    mean = statistics.fmean(block_means)
    if mean <= 0:
        return math.inf
    return statistics.stdev(block_means) / math.sqrt(len(block_means)) / mean


class StopRule:
    """Decides when sampling ends, with the reason.

    Sampling takes at least `min_runs` runs. It then ends when mean and median are known to 0.5 %,
    or when doubling the runs no longer reduces their error. The time cap ends it in any case.

    Args:
        min_runs: Least number of timed runs.
        cap_s: Longest time in seconds.

    Attributes:
        rel_err: Relative standard error of the mean or the median, whichever is larger; infinite
            while there are too few blocks.
    """

    def __init__(self, min_runs: int, cap_s: float) -> None:
        self._min_runs = min_runs
        self._cap_s = cap_s
        self._block_means: list[float] = []
        self._block_medians: list[float] = []
        self._halfway_err = math.inf
        self.rel_err = math.inf

    def update(self, block: Sequence[float], runs: int, elapsed_s: float) -> str:
        """Add the latencies of a block; return the reason to stop, or "" to continue.

        Args:
            block: The block's latencies in any unit, at least one.
            runs: Runs so far.
            elapsed_s: Seconds since sampling began.

        Returns:
            "runs" (enough, and precise), "settled", "time_cap", or "".
        """
        self._block_means.append(statistics.fmean(block))
        self._block_medians.append(quantile(sorted(block), 0.5))
        self.rel_err = max(rel_std_err(self._block_means), rel_std_err(self._block_medians))
        if runs >= self._min_runs:
            err = self.rel_err
            if err <= PRECISE_REL_STD_ERR:
                return "runs"
            if runs < 2 * self._min_runs:
                self._halfway_err = min(self._halfway_err, err)
            elif err > self._halfway_err / math.sqrt(2):
                return "settled"
        return "time_cap" if elapsed_s >= self._cap_s else ""
