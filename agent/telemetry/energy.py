"""Energy of a device between two instants, by the best of the ways that its history allows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

from agent.model import NS_PER_S, Energy
from agent.telemetry.sample import CounterMethod, CounterReading

MIN_WINDOW_S: Final = 5.0

# Boards are specified to about 5 % and are not calibrated: Yang, Adamek and Armour, "Part-time
# Power Measurements: nvidia-smi's Lack of Attention" (2023), find that order against a meter.
# RAPL: Khan et al., "RAPL in Action" (2018), find it well correlated with power at the plug and
# give no bound for all processors, so that it is trusted no more than a board.
BOARD_REL_ERR: Final = 0.05
# A model that knows no more than the number of processors.
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

# What is left of the load's beginning when the region starts is not read: power rises within some
# tens of ms (Yang et al. 2023), and the counter lags by its step.
RISE_S: Final = 0.25
# A power reading is the mean of up to a second, published every 100 ms: only from so long after
# the load's beginning on does it hold nothing of the time before (Yang et al. 2023, table 2).
POWER_LAG_S: Final = 1.1

# Readings must span this share of the region, and miss at most this share of it.
MIN_SPAN_SHARE: Final = 0.5
MAX_GAP_SHARE: Final = 0.5
MIN_POWERS: Final = 3

# Power readings that follow each other overlap, so that the error of their mean is taken from the
# means of blocks (batch means: Law, Simulation Modeling and Analysis, ch. 9), with Student's
# 97.5 % quantile for the few that there are.
BLOCKS: Final = 5
STUDENT: Final[dict[int, float]] = {3: 4.303, 4: 3.182, 5: 2.776}

IDLE_SAMPLES_MIN: Final = 10
IDLE_SAMPLES_MAX: Final = 600
IDLE_PERCENTILE: Final = 10


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no energy to report, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of steady load, in CLOCK_MONOTONIC ns.

    Attributes:
        start_ns: Start of the region whose energy is asked for.
        end_ns: Its end.
        steady_start_ns: From when on the load was the same as in the region.
        steady_end_ns: Until when it was.
    """

    start_ns: int
    end_ns: int
    steady_start_ns: int
    steady_end_ns: int

    @property
    def length_s(self) -> float:
        """Length of the region in s."""
        return (self.end_ns - self.start_ns) / NS_PER_S


class IdlePower:
    """Power of the idle device: the 10th percentile of what it drew while nothing ran.

    A low percentile, because a device takes some seconds to settle after a load; over the last
    600 idle samples, because it also depends on the temperature of the room.
    """

    def __init__(self) -> None:
        self._watts: deque[float] = deque(maxlen=IDLE_SAMPLES_MAX)

    def add(self, *powers_w: float) -> None:
        """Takes samples in W that were taken while nothing ran."""
        self._watts.extend(powers_w)

    def value_w(self) -> float | None:
        """The learnt power in W; None until 10 samples are in."""
        if len(self._watts) < IDLE_SAMPLES_MIN:
            return None
        rank = math.ceil(len(self._watts) * IDLE_PERCENTILE / 100)
        return sorted(self._watts)[rank - 1]


PowerMethod = Literal["samples", "poll"]
Powers = Sequence[tuple[int, float]]


class History:
    """The last counter readings and powers of a device, as many as an energy needs.

    At one reading a second, ten polls a second and a hundred buffered samples a second in a window
    of two minutes the longest region fits.

    Attributes:
        counter: Readings of the energy counter.
        powers: Polled (CLOCK_MONOTONIC ns, W).
        samples: The driver's own (CLOCK_MONOTONIC ns, W).
        idle: Learns the idle device's power.
        disagreement: How far the counter is from the power, as a share of it, where a self-test
            has compared them.
        suspect: Whether that is too far; None before the first comparison.
    """

    def __init__(self) -> None:
        self.counter: deque[CounterReading] = deque(maxlen=600)
        self.powers: deque[tuple[int, float]] = deque(maxlen=2400)
        self.samples: deque[tuple[int, float]] = deque(maxlen=12_000)
        self.idle = IdlePower()
        self.disagreement = 0.0
        self.suspect: bool | None = None

    @property
    def power_ns(self) -> int:
        """CLOCK_MONOTONIC ns of the last polled power; 0 before the first."""
        return self.powers[-1][0] if self.powers else 0

    def energy(self, region: Region, method: CounterMethod | None) -> Energy | Absent:
        """Energy in the region: by the counter, by buffered samples, by polls, else absent.

        A counter that disagrees with the power is not corrected, for nobody knows which of the two
        is wrong: its energy is marked, and its uncertainty grows by the disagreement.

        Args:
            region: The steady region, at least 5 s long.
            method: What the counter readings are; None where the device has no counter.
        """
        if region.length_s < MIN_WINDOW_S:
            return Absent(f"the window lasted {region.length_s:.2f} s, and needs {MIN_WINDOW_S:g}")
        idle_w = self.idle.value_w()
        reasons: list[str] = []
        if method is not None:
            by_counter = from_counter(self.counter, region, method, idle_w)
            if isinstance(by_counter, Energy):
                rel_err = by_counter.rel_err + (self.disagreement if self.suspect else 0.0)
                return replace(by_counter, rel_err=rel_err, suspect=self.suspect)
            reasons.append(by_counter.reason)
        if self.samples:
            by_samples = from_powers(self.samples, region, "samples", idle_w)
            if isinstance(by_samples, Energy):
                return by_samples
        by_polls = from_powers(self.powers, region, "poll", idle_w)
        if isinstance(by_polls, Energy):
            return by_polls
        return Absent("; ".join([*reasons, by_polls.reason]))


def from_counter(
    readings: Sequence[CounterReading],
    region: Region,
    method: CounterMethod,
    idle_power_w: float | None = None,
) -> Energy | Absent:
    """Energy by a running total: mean power between two readings, times the region's length.

    The readings are the outermost of the steady stretch after its rise, so that power between
    them is the region's and the counter's step weighs least. Uncertainty: the step over the time
    between the readings, plus the sensor's own.

    Args:
        readings: In order of time.
        region: The region, in CLOCK_MONOTONIC ns.
        method: What the readings are.
        idle_power_w: Is passed on.
    """
    since_ns = min(
        region.start_ns, max(region.steady_start_ns, region.start_ns - int(RISE_S * NS_PER_S))
    )
    steady = [r for r in readings if since_ns <= r.t_ns <= region.steady_end_ns]
    if not steady:
        return Absent("the energy counter was not read in the window")
    first, last = steady[0], steady[-1]
    span_s = (last.t_ns - first.t_ns) / NS_PER_S
    if span_s < MIN_SPAN_SHARE * region.length_s:
        return Absent(f"the energy counter's readings span {span_s:.2f} s of the window")
    if any(after.energy_j < before.energy_j for before, after in pairwise(steady)):
        return Absent("the energy counter was reset in the window")
    used_j = last.energy_j - first.energy_j
    if used_j <= 0:
        return Absent("the energy counter did not advance in the window")
    rel_err = COUNTER_STEP_S[method] / span_s + BASE_REL_ERR[method]
    return Energy(used_j / span_s * region.length_s, method, rel_err, idle_power_w)


def from_powers(
    powers: Powers, region: Region, method: PowerMethod, idle_power_w: float | None = None
) -> Energy | Absent:
    """Energy by readings of power: their mean by the trapezoidal rule, times the region's length.

    The readings are those of the steady stretch that hold nothing of the time before it, also
    ones that were read behind the region.
    Uncertainty: the longest gap between readings over the region, plus the board's own, plus the
    half width of a 95 % interval of the mean.

    Args:
        powers: (CLOCK_MONOTONIC ns, W) in order of time.
        region: The region, in CLOCK_MONOTONIC ns.
        method: Where the readings come from.
        idle_power_w: Is passed on.
    """
    since_ns = region.steady_start_ns + int(POWER_LAG_S * NS_PER_S)
    steady = [(t, w) for t, w in powers if since_ns <= t <= region.steady_end_ns]
    if len(steady) < MIN_POWERS:
        return Absent(f"power was polled {len(steady)} times in the window")
    span_s = (steady[-1][0] - steady[0][0]) / NS_PER_S
    longest_s = max((t1 - t0) / NS_PER_S for (t0, _), (t1, _) in pairwise(steady))
    gap_share = longest_s / region.length_s
    if span_s < MIN_SPAN_SHARE * region.length_s or gap_share > MAX_GAP_SHARE:
        return Absent(f"power was polled over {span_s:.1f} s with a gap of {longest_s:.1f} s")
    mean_w = mean_power_w(steady)
    if mean_w <= 0:
        return Absent("the polled power was zero")
    noise = mean_rel_err([w for _, w in steady])
    return Energy(mean_w * region.length_s, method, gap_share + BOARD_REL_ERR + noise, idle_power_w)


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
    # By hand: `statistics` brings half a megabyte into the sensor child.
    means = [math.fsum(watts[i * size : (i + 1) * size]) / size for i in range(blocks)]
    mean = math.fsum(means) / blocks
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in means) / (blocks - 1))
    return STUDENT[blocks] * deviation / math.sqrt(blocks) / (math.fsum(watts) / len(watts))
