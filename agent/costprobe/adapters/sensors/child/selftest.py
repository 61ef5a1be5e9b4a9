"""The self-test of a device's energy sensors: the counter against the power, over some seconds.

Both sensors are on the same board, so agreement does not prove their accuracy; if they disagree, one
of them is wrong, and every energy of the device is suspect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from costprobe.adapters.sensors.child.energy import POWER_LAG_S, mean_power_w, mean_rel_err
from costprobe.adapters.sensors.protocol.sample import EnergyReading
from costprobe.core.records import NS_PER_S

SUSPECT_BEYOND: Final = 0.10
# Power that changes by more than this, as a share of its mean, cannot be compared: the two sensors
# report a change at different times.
UNSTEADY_BEYOND: Final = 0.05
POLL_EVERY_NS: Final = NS_PER_S // 10
# Two halves of at least two readings each.
MIN_READINGS: Final = 4
AGAIN_FIRST_S: Final = 60.0
AGAIN_MAX_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a self-test.

    Attributes:
        ratio: The counter's energy over the integrated power's.
    """

    ratio: float

    @property
    def disagreement(self) -> float:
        """Relative difference of counter and power."""
        return abs(self.ratio - 1)

    @property
    def suspect(self) -> bool:
        """Whether the difference is too large to trust either."""
        return self.disagreement > SUSPECT_BEYOND


def compare(
    first: EnergyReading,
    last: EnergyReading,
    powers: Sequence[tuple[int, float]],
    every_ns: int = POLL_EVERY_NS,
) -> Verdict | None:
    """Compare a counter's advance with the mean power; None if power was not steady.

    Args:
        first: The counter at the beginning.
        last: The counter at the end.
        powers: (CLOCK_MONOTONIC ns, W) in order of time.
        every_ns: Intended time between the powers in ns.
    """
    since_ns = first.t_ns + int(POWER_LAG_S * NS_PER_S)
    # From the end: the history covers forty minutes, of which a test needs seconds.
    newest = takewhile(lambda power: power[0] >= since_ns, reversed(powers))
    steady = [power for power in newest if power[0] <= last.t_ns][::-1]
    span_s = (last.t_ns - first.t_ns) / NS_PER_S
    enough = len(steady) >= span_s * NS_PER_S / every_ns / 2
    if not enough or len(steady) < MIN_READINGS or last.energy_j < first.energy_j:
        return None
    if not is_steady(steady):
        return None
    mean_w = mean_power_w(steady)
    return Verdict((last.energy_j - first.energy_j) / span_s / mean_w)


def is_steady(powers: Sequence[tuple[int, float]]) -> bool:
    """Whether power was steady enough to compare two sensors.

    Args:
        powers: (CLOCK_MONOTONIC ns, W) in order of time, at least MIN_READINGS.
    """
    mean_w = mean_power_w(powers)
    middle = len(powers) // 2
    halves = mean_power_w(powers[: middle + 1]), mean_power_w(powers[middle:])
    if mean_w <= 0 or abs(halves[1] - halves[0]) > UNSTEADY_BEYOND * mean_w:
        return False
    return mean_rel_err([w for _, w in powers]) <= UNSTEADY_BEYOND


class SelfTest:
    """Schedule and data of the comparison of a device's energy sensors.

    If power was not steady, the comparison is repeated after a minute; after a result it is not. If
    power has to be polled, the wait doubles up to an hour, and a comparison that the regular readings
    of power show to be hopeless is postponed by a minute without reading, for an hour at most.

    Args:
        start_ns: CLOCK_MONOTONIC ns at which it may begin.
        length_s: How long it takes in s.
    """

    def __init__(self, start_ns: int, length_s: float) -> None:
        self.due_ns: int | None = start_ns
        self._length_ns = int(length_s * NS_PER_S)
        self._again_s = AGAIN_FIRST_S
        self._tried_ns = start_ns
        self._first: EnergyReading | None = None
        self._powers: list[tuple[int, float]] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a comparison is in progress."""
        return self._first is not None

    @property
    def wants_counter(self) -> bool:
        """Whether the next step reads the counter, at the start or the end of a comparison."""
        return self._first is None or self._is_over(self.due_ns or 0)

    def begin(self, reading: EnergyReading, *, polls: bool) -> None:
        """Start a comparison.

        Args:
            reading: The counter now.
            polls: Whether power is read for the test, ten times a second.
        """
        self._first = reading
        self._tried_ns = reading.t_ns
        self._powers = [] if polls else None
        self.due_ns = reading.t_ns + (POLL_EVERY_NS if polls else self._length_ns)

    def add(self, t_ns: int, power_w: float | None) -> None:
        """Add a power in W that was read at an instant."""
        if power_w is not None and self._powers is not None:
            self._powers.append((t_ns, power_w))
        self.due_ns = t_ns + POLL_EVERY_NS

    def end(
        self, reading: EnergyReading, regular: Sequence[tuple[int, float]], every_ns: int
    ) -> Verdict | None:
        """End the comparison; return None if it has to be repeated.

        Args:
            reading: The counter now.
            regular: The regular readings of power, for a test that polls none.
            every_ns: Time between those in ns.
        """
        first, self._first = self._first, None
        polled, self._powers = self._powers, None
        verdict = None
        if first is not None and polled is not None:
            verdict = compare(first, reading, polled)
        elif first is not None:
            verdict = compare(first, reading, regular, every_ns)
        if verdict is not None:
            self.due_ns = None
        elif polled is None:
            self.postpone(reading.t_ns)
        else:
            self.back_off(reading.t_ns)
        return verdict

    def would_fail(self, powers: Sequence[tuple[int, float]]) -> bool:
        """Whether a comparison that starts now would fail, judged by the regular readings.

        That is if power changed in most intervals of the last minute that are as long as a test: a
        single steady interval may be chance.

        Args:
            powers: The newest, as for `is_steady`; too few of them decide nothing.
        """
        if not powers or powers[-1][0] > self._tried_ns + AGAIN_MAX_S * NS_PER_S:
            return False
        stretches = int(AGAIN_FIRST_S * NS_PER_S) // self._length_ns
        ends_ns = [powers[-1][0] - i * self._length_ns for i in range(max(1, stretches))]
        usable = [
            [(t, w) for t, w in powers if end_ns - self._length_ns <= t <= end_ns]
            for end_ns in ends_ns
        ]
        steady = [is_steady(stretch) for stretch in usable if len(stretch) >= MIN_READINGS]
        return sum(steady) < len(steady) / 2

    def postpone(self, now_ns: int) -> None:
        """Try again in a minute, because hardly anything was read."""
        self.due_ns = now_ns + int(AGAIN_FIRST_S * NS_PER_S)

    def back_off(self, now_ns: int) -> None:
        """Try again later: the counter could not be read, or power was not steady."""
        self._first = None
        self.due_ns = now_ns + int(self._again_s * NS_PER_S)
        self._again_s = min(2 * self._again_s, AGAIN_MAX_S)

    def _is_over(self, now_ns: int) -> bool:
        return self._first is not None and now_ns >= self._first.t_ns + self._length_ns
