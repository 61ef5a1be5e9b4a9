"""Energy of a device between two instants, by the most accurate method for its readings."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

from costprobe.adapters.sensors.protocol.sample import Absent, CounterMethod, EnergyReading
from costprobe.core.records import NS_PER_S, Energy
from costprobe.domain.costing.idle_power import IdlePower

MIN_WINDOW_S: Final = 5.0

# Boards are specified to about 5 % and are not calibrated: Yang, Adamek and Armour, "Part-time
# Power Measurements: nvidia-smi's Lack of Attention" (2023), find that order against a meter.
# RAPL: Khan et al., "RAPL in Action" (2018), find a good correlation with power at the plug and
# give no general bound, so the uncertainty of a board is assumed.
BOARD_REL_ERR: Final = 0.05
# The model uses only the number of CPUs and their utilization.
MODEL_REL_ERR: Final = 0.5

# Longest time in s by which a counter lags behind the energy: GPUs publish theirs every 20 to
# 100 ms (Yang et al. 2023), RAPL about every ms, /proc/stat counts ticks of 10 ms.
COUNTER_STEP_S: Final[dict[CounterMethod, float]] = {
    "counter": 0.1,
    "rapl": 0.001,
    "modelled": 0.01,
}
BASE_REL_ERR: Final[dict[CounterMethod, float]] = {
    "counter": BOARD_REL_ERR,
    "rapl": BOARD_REL_ERR,
    "modelled": MODEL_REL_ERR,
}

# Readings this long before the window still count: power rises within some tens of ms (Yang et al.
# 2023), and the counter lags by its step.
RISE_S: Final = 0.25
# A power reading is the mean of up to a second, published every 100 ms: only this long after the
# start of the load does it average none of the time before (Yang et al. 2023, table 2).
POWER_LAG_S: Final = 1.1

# Readings must span this share of the window, and miss at most this share of it.
MIN_SPAN_SHARE: Final = 0.5
MAX_GAP_SHARE: Final = 0.5
MIN_POWERS: Final = 3

# Power readings that follow each other overlap, so that the error of their mean is taken from the
# means of blocks (batch means: Law, Simulation Modeling and Analysis, ch. 9), with Student's
# 97.5 % quantile for a small number of blocks.
BLOCKS: Final = 5
STUDENT: Final[dict[int, float]] = {3: 4.303, 4: 3.182, 5: 2.776}


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """A steady-state window, in CLOCK_MONOTONIC ns.

    Attributes:
        start_ns: Start of the window whose energy is requested.
        end_ns: End of the window.
        steady_start_ns: Start of the time in which the load was the same as in the window.
        steady_end_ns: End of that time.
    """

    start_ns: int
    end_ns: int
    steady_start_ns: int
    steady_end_ns: int

    @property
    def length_s(self) -> float:
        """Length of the window in s."""
        return (self.end_ns - self.start_ns) / NS_PER_S


PowerMethod = Literal["samples", "poll"]
Powers = Sequence[tuple[int, float]]


class EnergyHistory:
    """The latest counter readings and powers of a device, enough for the longest window.

    The bounds are two minutes at one counter reading, ten polls and a hundred buffered samples a second.

    Attributes:
        counter: Readings of the energy counter.
        powers: Polled (CLOCK_MONOTONIC ns, W).
        samples: The driver's own (CLOCK_MONOTONIC ns, W).
        idle: Power of the idle device.
        disagreement: Relative difference of counter and power in the last self-test.
        suspect: Whether that is too large; None before the first comparison.
    """

    def __init__(self) -> None:
        self.counter: deque[EnergyReading] = deque(maxlen=600)
        self.powers: deque[tuple[int, float]] = deque(maxlen=2400)
        self.samples: deque[tuple[int, float]] = deque(maxlen=12_000)
        self.idle = IdlePower()
        self.disagreement = 0.0
        self.suspect: bool | None = None

    def forget_readings(self) -> None:
        """Forget the counter and the powers, so that no window spans a suspension of the host."""
        for readings in (self.counter, self.samples, self.powers):
            readings.clear()

    @property
    def power_ns(self) -> int:
        """CLOCK_MONOTONIC ns of the last polled power; 0 before the first."""
        return self.powers[-1][0] if self.powers else 0

    def energy(self, window: SteadyWindow) -> Energy | Absent:
        """Energy in the window: by the counter, by buffered samples, by polls, else absent.

        A counter that disagrees with the power is not corrected, because either may be wrong: its
        energy is marked as suspect, and its uncertainty grows by the disagreement.

        Args:
            window: At least 5 s long.
        """
        if window.length_s < MIN_WINDOW_S:
            return Absent(f"the window lasted {window.length_s:.2f} s, and needs {MIN_WINDOW_S:g}")
        idle_w = self.idle.value_w()
        reasons: list[str] = []
        if self.counter:
            by_counter = from_counter(self.counter, window, idle_w)
            if isinstance(by_counter, Energy):
                rel_err = by_counter.rel_err + (self.disagreement if self.suspect else 0.0)
                return replace(by_counter, rel_err=rel_err, suspect=self.suspect)
            reasons.append(by_counter.reason)
        if self.samples:
            by_samples = from_powers(self.samples, window, "samples", idle_w)
            if isinstance(by_samples, Energy):
                return by_samples
        by_polls = from_powers(self.powers, window, "poll", idle_w)
        if isinstance(by_polls, Energy):
            return by_polls
        return Absent("; ".join([*reasons, by_polls.reason]))


def from_counter(
    readings: Sequence[EnergyReading],
    window: SteadyWindow,
    idle_power_w: float | None = None,
) -> Energy | Absent:
    """Energy by a running total: mean power between two readings, times the window's length.

    The readings are the outermost of the steady time after its rise, so that the power between
    them is the window's and the counter's step has the least weight. Uncertainty: the step over the
    time between the readings, plus the sensor's own.

    Args:
        readings: In order of time.
        window: The window.
        idle_power_w: Power of the idle device in W, copied to the result.
    """
    since_ns = min(
        window.start_ns, max(window.steady_start_ns, window.start_ns - int(RISE_S * NS_PER_S))
    )
    steady = [r for r in readings if since_ns <= r.t_ns <= window.steady_end_ns]
    if not steady:
        return Absent("the energy counter was not read in the window")
    first, last = steady[0], steady[-1]
    span_s = (last.t_ns - first.t_ns) / NS_PER_S
    if span_s < MIN_SPAN_SHARE * window.length_s:
        return Absent(f"the energy counter's readings span {span_s:.2f} s of the window")
    if any(after.energy_j < before.energy_j for before, after in pairwise(steady)):
        return Absent("the energy counter was reset in the window")
    used_j = last.energy_j - first.energy_j
    if used_j <= 0:
        return Absent("the energy counter did not advance in the window")
    method = last.method
    rel_err = COUNTER_STEP_S[method] / span_s + BASE_REL_ERR[method]
    return Energy(used_j / span_s * window.length_s, method, rel_err, idle_power_w)


def from_powers(
    powers: Powers, window: SteadyWindow, method: PowerMethod, idle_power_w: float | None = None
) -> Energy | Absent:
    """Energy by readings of power: their mean by the trapezoidal rule, times the window's length.

    The readings are those of the steady time that average none of the time before it; readings
    after the window count as well.
    Uncertainty: the longest gap between readings over the window, plus the board's own, plus the
    half width of a 95 % interval of the mean.

    Args:
        powers: (CLOCK_MONOTONIC ns, W) in order of time.
        window: The window.
        method: Source of the readings.
        idle_power_w: Power of the idle device in W, copied to the result.
    """
    since_ns = window.steady_start_ns + int(POWER_LAG_S * NS_PER_S)
    steady = [(t, w) for t, w in powers if since_ns <= t <= window.steady_end_ns]
    if len(steady) < MIN_POWERS:
        return Absent(f"power was polled {len(steady)} times in the window")
    span_s = (steady[-1][0] - steady[0][0]) / NS_PER_S
    longest_s = max((t1 - t0) / NS_PER_S for (t0, _), (t1, _) in pairwise(steady))
    gap_share = longest_s / window.length_s
    if span_s < MIN_SPAN_SHARE * window.length_s or gap_share > MAX_GAP_SHARE:
        return Absent(f"power was polled over {span_s:.1f} s with a gap of {longest_s:.1f} s")
    mean_w = mean_power_w(steady)
    if mean_w <= 0:
        return Absent("the polled power was zero")
    noise = mean_rel_err([w for _, w in steady])
    return Energy(mean_w * window.length_s, method, gap_share + BOARD_REL_ERR + noise, idle_power_w)


def mean_power_w(powers: Powers) -> float:
    """Mean power in W over the time between the first reading and the last, at least two."""
    joules = sum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in pairwise(powers))
    return joules / (powers[-1][0] - powers[0][0])


def mean_rel_err(watts: Sequence[float]) -> float:
    """Half width of a 95 % interval of the mean of correlated readings, as a share of it.

    Args:
        watts: In order of time, at least three, their mean above zero.
    """
    blocks = min(BLOCKS, len(watts))
    size = len(watts) // blocks
    # Without `statistics`, which needs 0.5 MB in the sensor child.
    means = [math.fsum(watts[i * size : (i + 1) * size]) / size for i in range(blocks)]
    mean = math.fsum(means) / blocks
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in means) / (blocks - 1))
    return STUDENT[blocks] * deviation / math.sqrt(blocks) / (math.fsum(watts) / len(watts))
