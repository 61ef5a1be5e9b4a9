"""Energy of a device between two instants, by the best of the ways that its history allows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

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

# Counter readings must span this share of the region, polled power may miss this share of it.
MIN_SPAN_SHARE: Final = 0.5
MAX_GAP_SHARE: Final = 0.5
MIN_POLLS: Final = 3

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

    def add(self, power_w: float) -> None:
        """Takes a sample in W that was taken while nothing ran."""
        self._watts.append(power_w)

    def value_w(self) -> float | None:
        """The learnt power in W; None until 10 samples are in."""
        if len(self._watts) < IDLE_SAMPLES_MIN:
            return None
        rank = math.ceil(len(self._watts) * IDLE_PERCENTILE / 100)
        return sorted(self._watts)[rank - 1]


class History:
    """The last counter readings and polled powers of a device, as many as an energy needs.

    At one reading a second and ten polls a second in a window of two minutes the longest region
    fits twice.
    """

    def __init__(self) -> None:
        self.counter: deque[CounterReading] = deque(maxlen=600)
        self.powers: deque[tuple[int, float]] = deque(maxlen=2400)
        self.idle = IdlePower()

    @property
    def power_ns(self) -> int:
        """CLOCK_MONOTONIC ns of the last polled power; 0 before the first."""
        return self.powers[-1][0] if self.powers else 0

    def energy(self, region: Region, method: CounterMethod | None) -> Energy | Absent:
        """Energy in the region: by the counter, else by polled power, else absent.

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
                return by_counter
            reasons.append(by_counter.reason)
        by_polls = from_polls(self.powers, region, idle_w)
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

    The readings are those nearest the region's edges among the ones in the steady stretch, so
    that power at their instants is the region's. Uncertainty: the counter's step over the time
    between the readings, plus the sensor's own.

    Args:
        readings: In order of time.
        region: The region, in CLOCK_MONOTONIC ns.
        method: What the readings are.
        idle_power_w: Is passed on.
    """
    steady = [r for r in readings if region.steady_start_ns <= r.t_ns <= region.steady_end_ns]
    if not steady:
        return Absent("the energy counter was not read in the window")
    first = min(steady, key=lambda reading: abs(reading.t_ns - region.start_ns))
    last = min(steady, key=lambda reading: abs(reading.t_ns - region.end_ns))
    span_s = (last.t_ns - first.t_ns) / NS_PER_S
    if span_s < MIN_SPAN_SHARE * region.length_s:
        return Absent(f"the energy counter's readings span {span_s:.2f} s of the window")
    between = [r.energy_j for r in steady if first.t_ns <= r.t_ns <= last.t_ns]
    if any(after < before for before, after in pairwise(between)):
        return Absent("the energy counter was reset in the window")
    used_j = last.energy_j - first.energy_j
    if used_j <= 0:
        return Absent("the energy counter did not advance in the window")
    rel_err = COUNTER_STEP_S[method] / span_s + BASE_REL_ERR[method]
    return Energy(used_j / span_s * region.length_s, method, rel_err, idle_power_w)


def from_polls(
    powers: Sequence[tuple[int, float]], region: Region, idle_power_w: float | None = None
) -> Energy | Absent:
    """Energy by polled power: the trapezoidal rule, clipped to the region.

    At the region's edges power is interpolated where a sample of the steady stretch lies beyond,
    and else held.
    Uncertainty: the longest gap between samples over the region, plus the board's own, plus
    twice the standard error of the mean of the samples, which grows where they are few.

    Args:
        powers: (CLOCK_MONOTONIC ns, W) in order of time.
        region: The region, in CLOCK_MONOTONIC ns.
        idle_power_w: Is passed on.
    """
    steady = [(t, w) for t, w in powers if region.steady_start_ns <= t <= region.steady_end_ns]
    inside = [(t, w) for t, w in steady if region.start_ns <= t <= region.end_ns]
    if len(inside) < MIN_POLLS:
        return Absent(f"power was polled {len(inside)} times in the window")
    before = max((p for p in steady if p[0] < region.start_ns), default=None)
    after = min((p for p in steady if p[0] > region.end_ns), default=None)
    start_w = _between(before, inside[0], region.start_ns)
    end_w = _between(after, inside[-1], region.end_ns)
    points = [(region.start_ns, start_w), *inside, (region.end_ns, end_w)]
    energy_j = 0.0
    longest_s = 0.0
    for (t0, w0), (t1, w1) in pairwise(points):
        step_s = (t1 - t0) / NS_PER_S
        energy_j += step_s * (w0 + w1) / 2
        longest_s = max(longest_s, step_s)
    gap_share = longest_s / region.length_s
    if gap_share > MAX_GAP_SHARE:
        return Absent(f"power was not polled for {longest_s:.1f} s of the window")
    if energy_j <= 0:
        return Absent("the polled power was zero")
    watts = [w for _, w in inside]
    mean_w = sum(watts) / len(watts)
    variance = sum((w - mean_w) ** 2 for w in watts) / (len(watts) - 1)
    noise = 2 * math.sqrt(variance / len(watts)) / mean_w
    return Energy(energy_j, "poll", gap_share + BOARD_REL_ERR + noise, idle_power_w)


def _between(outside: tuple[int, float] | None, inside: tuple[int, float], t_ns: int) -> float:
    """Power in W at an edge that lies between two samples; the inner one's without an outer."""
    if outside is None:
        return inside[1]
    share = (t_ns - outside[0]) / (inside[0] - outside[0])
    return outside[1] + share * (inside[1] - outside[1])
