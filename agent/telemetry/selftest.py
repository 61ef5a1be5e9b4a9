"""The self-test of a device's energy sensors: the counter against the power, over some seconds.

Both come from the same board, so that their agreement proves neither; where they disagree, one of
them is wrong, and every energy of the device is in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from agent.model import NS_PER_S
from agent.telemetry.energy import POWER_LAG_S, mean_power_w, mean_rel_err
from agent.telemetry.sample import CounterReading

SUSPECT_BEYOND: Final = 0.10
# Power that moves by more than this, as a share of its mean, compares nothing: the two sensors
# see the same change at different times.
UNSTEADY_BEYOND: Final = 0.05
POLL_EVERY_NS: Final = NS_PER_S // 10
# Two halves of at least two readings each.
MIN_READINGS: Final = 4
AGAIN_FIRST_S: Final = 60.0
AGAIN_MAX_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a self-test came to.

    Attributes:
        ratio: The counter's energy over the integrated power's.
    """

    ratio: float

    @property
    def disagreement(self) -> float:
        """How far the counter is from the power, as a share of it."""
        return abs(self.ratio - 1)

    @property
    def suspect(self) -> bool:
        """Whether that is too far to trust either."""
        return self.disagreement > SUSPECT_BEYOND


def compare(
    first: CounterReading,
    last: CounterReading,
    powers: Sequence[tuple[int, float]],
    every_ns: int = POLL_EVERY_NS,
) -> Verdict | None:
    """Compares a counter's advance with the mean of the powers; None where power was not steady.

    Args:
        first: The counter at the beginning.
        last: The counter at the end.
        powers: (CLOCK_MONOTONIC ns, W) in order of time.
        every_ns: Time in ns between those that were to be read.
    """
    since_ns = first.t_ns + int(POWER_LAG_S * NS_PER_S)
    # From the end: what is kept reaches back forty minutes, of which a test needs seconds.
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
    """Whether power stood still enough for two sensors to see the same.

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
    """When a device's sensors are compared, and with what.

    It begins anew a minute after a comparison that power did not stand still for; after a verdict it
    does not. Where power has to be polled for it, it begins anew after two minutes the next time, and
    so on up to an hour, and one that the regular readings of power promise nothing of is put off by a
    minute without reading anything, for an hour at most.

    Args:
        start_ns: CLOCK_MONOTONIC ns at which it may begin.
        length_s: How long it takes in s.
    """

    def __init__(self, start_ns: int, length_s: float) -> None:
        self.due_ns: int | None = start_ns
        self._length_ns = int(length_s * NS_PER_S)
        self._again_s = AGAIN_FIRST_S
        self._tried_ns = start_ns
        self._first: CounterReading | None = None
        self._powers: list[tuple[int, float]] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a comparison has begun."""
        return self._first is not None

    @property
    def wants_counter(self) -> bool:
        """Whether the next step begins or ends a comparison, by a reading of the counter."""
        return self._first is None or self._is_over(self.due_ns or 0)

    def begin(self, reading: CounterReading, *, polls: bool) -> None:
        """Takes the counter at the beginning.

        Args:
            reading: What it says.
            polls: Whether power is read for the test, ten times a second.
        """
        self._first = reading
        self._tried_ns = reading.t_ns
        self._powers = [] if polls else None
        self.due_ns = reading.t_ns + (POLL_EVERY_NS if polls else self._length_ns)

    def add(self, t_ns: int, power_w: float | None) -> None:
        """Takes a power in W read at an instant."""
        if power_w is not None and self._powers is not None:
            self._powers.append((t_ns, power_w))
        self.due_ns = t_ns + POLL_EVERY_NS

    def end(
        self, reading: CounterReading, regular: Sequence[tuple[int, float]], every_ns: int
    ) -> Verdict | None:
        """Takes the counter at the end; None where the comparison has to be made again.

        Args:
            reading: What it says.
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
            self.look_again(reading.t_ns)
        else:
            self.put_off(reading.t_ns)
        return verdict

    def is_hopeless(self, powers: Sequence[tuple[int, float]]) -> bool:
        """Whether a comparison that begins now would come to nothing, by the regular readings.

        That is where power moved in most of the last minute's stretches that are as long as a test:
        one that stood still by chance promises nothing of the next.

        Args:
            powers: The newest, as for `is_steady`; too few of them say nothing.
        """
        if not powers or powers[-1][0] > self._tried_ns + AGAIN_MAX_S * NS_PER_S:
            return False
        stretches = int(AGAIN_FIRST_S * NS_PER_S) // self._length_ns
        ends_ns = [powers[-1][0] - i * self._length_ns for i in range(max(1, stretches))]
        found = [
            [(t, w) for t, w in powers if end_ns - self._length_ns <= t <= end_ns]
            for end_ns in ends_ns
        ]
        steady = [is_steady(stretch) for stretch in found if len(stretch) >= MIN_READINGS]
        return sum(steady) < len(steady) / 2

    def look_again(self, now_ns: int) -> None:
        """Tries again in a minute: hardly anything was read for it."""
        self.due_ns = now_ns + int(AGAIN_FIRST_S * NS_PER_S)

    def put_off(self, now_ns: int) -> None:
        """Tries again later: the counter could not be read, or power was not steady."""
        self._first = None
        self.due_ns = now_ns + int(self._again_s * NS_PER_S)
        self._again_s = min(2 * self._again_s, AGAIN_MAX_S)

    def _is_over(self, now_ns: int) -> bool:
        return self._first is not None and now_ns >= self._first.t_ns + self._length_ns
