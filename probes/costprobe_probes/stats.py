"""Statistics of timed runs, the rule that ends sampling, and the steady-state window of a probe.

The readings of the sensors are at both edges of the window. Load starts RISE_S before the window,
so that power has risen when the window begins, and continues after it until the sensor child has
read its counters. Both readings are therefore taken under constant load, and the energy does not
depend on how fast power falls.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from random import SystemRandom
from threading import Event
from typing import NamedTuple

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


# Time for power to rise before the window begins, in s.
RISE_S = 0.5
# Time from the request to read a counter until it has been read, in s: a pipe, a thread, a driver
# call of some ms, and the 0.1 s by which a counter may lag.
READ_S = 0.3
# Shortest window in s whose energy the sensors can resolve.
ENERGY_WINDOW_MIN_S = 5.0
# Longest period in s of a power sensor.
SENSOR_PERIOD_S = 0.1


class ProbeWindow(NamedTuple):
    """Instants of a window; all times are CLOCK_MONOTONIC ns.

    Attributes:
        steady_start_ns: Start of constant load.
        start_ns: Start of the window.
        end_ns: End of the window.
        steady_end_ns: End of constant load.
    """

    steady_start_ns: int
    start_ns: int
    end_ns: int
    steady_end_ns: int


class WindowSettings(NamedTuple):
    """Length of a window, and its connection to the sensors.

    Attributes:
        window_s: Shortest length of the window in seconds.
        tail_s: Longest time in seconds that load continues after the window.
        marked: Set once the sensors have been requested to read the end of the window.
        on_edge: Called with "window_start" and "window_end" and their instants, under load.
        phase_s: Delay before the load.
    """

    window_s: float
    tail_s: float
    marked: Event
    on_edge: Callable[[str, int], None]
    phase_s: float = 0.0


def random_phase_s() -> float:
    """Return a random part of the sensor's period.

    Power sensors that see a part of their period see other parts of the passes in each run, so that
    the error varies between runs instead of being the same in all (Yang, Adamek and Armour,
    "Part-time Power Measurements", 2023).
    """
    # An operator's model may seed the generator of the module `random`.
    return SystemRandom().uniform(0.0, SENSOR_PERIOD_S)
