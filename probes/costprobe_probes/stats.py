"""Statistics of timed runs, the rule that ends sampling, and the steady-state window of a probe.

The readings of the sensors are at both edges of the window. Load starts at least RISE_S before it,
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

from costprobe_probes.wire import Wire

# Part of the fingerprint. It changes with what a latency or a throughput means: warm-up, what lies
# between the two instants of a pass, the loop of back-to-back passes. Values before and after are
# not comparable.
DEFINITION = "2"
# Fewest samples for a percentile; with fewer samples its estimate is unreliable.
SAMPLES_NEEDED = {"p90": 64, "p99": 662}
PRECISE_REL_ERR = 0.005
MIN_BLOCKS = 5
LEAST_BATCHES = 10
# After as many doublings of the runs their error must be smaller.
DOUBLINGS = 3
# Student's 97.5 % quantiles for 1, 2, ... degrees of freedom.
STUDENT_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
)
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


def rel_interval(block_values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of a mean, or median, relative to it.

    The method of batch means: consecutive runs are correlated, so the error computed from single
    runs would be too small. Adjacent blocks are merged into 10 to 19 batches, as many as are still
    nearly independent (Schmeiser, "Batch Size Effects in the Analysis of Simulation Output", 1982),
    and their spread counts with Student's quantile. It covers what varies within the run: noise,
    and slow changes such as a clock that settles.

    Args:
        block_values: Means, or medians, of equally long blocks in the order of time; with fewer
            than MIN_BLOCKS the interval is infinite.
    """
    if len(block_values) < MIN_BLOCKS:
        return math.inf
    means = merged(block_values, LEAST_BATCHES)
    mean = statistics.fmean(means)
    if mean <= 0:
        return math.inf
    return _half_width(means) / mean


def merged(block_values: Sequence[float], least: int) -> list[float]:
    """Return the means of groups of adjacent blocks, as `batches` makes them."""
    return [statistics.fmean(group) for group in batches(block_values, least)]


def batches(block_values: Sequence[float], least: int) -> list[Sequence[float]]:
    """Return groups of adjacent blocks: `least` to twice as many, or the blocks if fewer.

    Args:
        block_values: One value for each block, in the order of time.
        least: Fewest groups.
    """
    size = max(1, len(block_values) // least)
    groups = len(block_values) // size
    # A remainder that is shorter than a group belongs to the last one.
    ends = [size * (i + 1) for i in range(groups - 1)] + [len(block_values)]
    return [block_values[i:j] for i, j in zip([0, *ends], ends)]


def _half_width(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of the mean of independent values, at least two."""
    quantile_t = STUDENT_975[min(len(values) - 1, len(STUDENT_975)) - 1]
    return quantile_t * statistics.stdev(values) / math.sqrt(len(values))


class StopRule:
    """Decides when sampling ends, with the reason.

    Sampling takes at least `min_runs` runs. It then ends when mean and median are known to 0.5 %,
    or when eight times the runs have not reduced their error, which independent runs would divide
    by 2.8: the device itself varies as slowly as it is observed. The time cap ends it in any case.

    The error is compared at doublings of the runs only. A comparison after each block would end
    sampling at the first error that is too small by chance.

    Args:
        min_runs: Least number of timed runs.
        cap_s: Longest time in seconds.

    Attributes:
        block_medians: Median latency of each block.
    """

    def __init__(self, min_runs: int, cap_s: float) -> None:
        self._next_check = min_runs
        self._cap_s = cap_s
        self._block_means: list[float] = []
        self.block_medians: list[float] = []
        self._errors: list[float] = []

    @property
    def rel_err(self) -> float:
        """Half-width of the 95 % interval of mean or median within the run, the larger, relative.

        Infinite while there are too few blocks.
        """
        return max(rel_interval(self._block_means), rel_interval(self.block_medians))

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
        self.block_medians.append(quantile(sorted(block), 0.5))
        if runs >= self._next_check and len(self._block_means) >= LEAST_BATCHES:
            self._next_check = 2 * runs
            err = self.rel_err
            if err <= PRECISE_REL_ERR:
                return "runs"
            self._errors.append(err)
            if len(self._errors) > DOUBLINGS and err > self._errors[-1 - DOUBLINGS]:
                return "settled"
        return "time_cap" if elapsed_s >= self._cap_s else ""


def change_over(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return how much a value changes over a time by its least-squares slope, with its 95 % error.

    Args:
        points: Times and values in the order of time, at least three at different times.
    """
    times = [t for t, _ in points]
    values = [value for _, value in points]
    middle, mean = statistics.fmean(times), statistics.fmean(values)
    squares = math.fsum((t - middle) ** 2 for t in times)
    slope = math.fsum((t - middle) * (value - mean) for t, value in points) / squares
    left = math.fsum((value - mean - slope * (t - middle)) ** 2 for t, value in points)
    degrees = len(points) - 2
    error = STUDENT_975[min(degrees, len(STUDENT_975)) - 1] * math.sqrt(left / degrees / squares)
    span = times[-1] - times[0]
    return slope * span, error * span


# First and last third of a run that differ by more than this are an unsteady run.
UNSTEADY = 0.03
# The distance of the quartiles over that from each to its neighbouring decile: 1.1 for normal and
# exponential noise, 1.7 for a uniform distribution, above 3 for two modes.
TWO_MODES = 2.5


def is_unsteady(block_values: Sequence[float]) -> bool:
    """Return whether the first and the last third of a run differ by more than 3 %.

    A difference that is within the 95 % interval of these thirds is noise.

    Args:
        block_values: Time of a pass in each block, in the order of time; with fewer than six the
            answer is False.
    """
    length = len(block_values) // 3
    if length < 2:  # noqa: PLR2004 - no spread of one value
        return False
    first, last = block_values[:length], block_values[-length:]
    difference = abs(statistics.fmean(last) - statistics.fmean(first))
    error = math.hypot(*(_half_width(merged(third, LEAST_BATCHES)) for third in (first, last)))
    return difference > max(UNSTEADY * statistics.fmean(block_values), error)


def has_two_modes(latencies_ms: Sequence[float]) -> bool:
    """Return whether the latencies are around two values, with the median between or in one of them.

    Then the quartiles are apart: by more than 3 % of the median, and far compared with what is
    around each of them.

    Args:
        latencies_ms: With fewer than a p90 needs the answer is False.
    """
    if len(latencies_ms) < SAMPLES_NEEDED["p90"]:
        return False
    ordered = sorted(latencies_ms)
    p10, p25, p50, p75, p90 = (quantile(ordered, share) for share in (0.1, 0.25, 0.5, 0.75, 0.9))
    between, around = p75 - p25, (p25 - p10) + (p90 - p75)
    return between > max(UNSTEADY * p50, TWO_MODES * around)


# Shortest warm-up, and the time over which its slope counts, in s.
WARM_UP_S = 1.0
# Shortest time for power to rise before the window begins, in s.
RISE_S = 0.5
# Back-to-back passes at the end of each run, before a window if there is one: for at least this
# time, and of slow passes so many, or as many as fit into the longest time.
LOOP_S = 1.0
LOOP_PASSES = 10
LOOP_CAP_S = 5.0
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

    @classmethod
    def of(cls, wire: Wire, window_s: float, tail_s: float) -> WindowSettings:
        """Return the settings of a window whose edges are reported on the pipe to the daemon."""
        return cls(
            window_s=window_s,
            tail_s=tail_s,
            marked=wire.marked,
            on_edge=lambda edge, t_ns: wire.report(edge, t_ns=t_ns),
            phase_s=random_phase_s(),
        )


def random_phase_s() -> float:
    """Return a random part of the sensor's period.

    Power sensors that see a part of their period see other parts of the passes in each run, so that
    the error varies between runs instead of being the same in all (Yang, Adamek and Armour,
    "Part-time Power Measurements", 2023).
    """
    # An operator's model may seed the generator of the module `random`.
    return SystemRandom().uniform(0.0, SENSOR_PERIOD_S)
