"""Readings of a device's energy between its samples: window edges, polls, and the self-test.

Idle power is learned from the samples of the device.

The self-test compares the energy counter with the power over some seconds. Both sensors are on
the same board, so agreement does not prove their accuracy; if they disagree, one of them is
wrong, and every energy of the device is suspect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from costprobe.adapters.sensors.child.sensor import NEVER_NS, Sensor
from costprobe.adapters.sensors.energy import POWER_LAG_S, IdlePower, mean_power_w, mean_rel_err
from costprobe.adapters.sensors.messages import (
    Emit,
    EnergyReading,
    Message,
    Power,
    Sample,
    WatchedReadings,
)
from costprobe.core.clock import Clock
from costprobe.core.records import DEVICE_KINDS, NS_PER_S, Device

SUSPECT_BEYOND: Final = 0.10
# Power that changes by more than this, as a share of its mean, cannot be compared: the two sensors
# report a change at different times.
UNSTEADY_BEYOND: Final = 0.05
POLL_EVERY_NS: Final = NS_PER_S // 10
# Two halves of at least two readings each.
MIN_READINGS: Final = 4
AGAIN_FIRST_S: Final = 300.0
AGAIN_MAX_S: Final = 3600.0


def compare(
    first: EnergyReading, last: EnergyReading, powers: Sequence[tuple[int, float]]
) -> float | None:
    """Return a counter's energy over the integrated power's; None if power was not steady.

    Args:
        first: The counter at the beginning.
        last: The counter at the end.
        powers: Polled power between them, in order of time.
    """
    since_ns = first.t_ns + int(POWER_LAG_S * NS_PER_S)
    steady = [power for power in powers if since_ns <= power[0] <= last.t_ns]
    span_ns = last.t_ns - first.t_ns
    enough = len(steady) >= span_ns / POLL_EVERY_NS / 2
    if not enough or len(steady) < MIN_READINGS or last.energy_j < first.energy_j:
        return None
    mean_w = mean_power_w(steady)
    if not _is_steady(steady, mean_w):
        return None
    return (last.energy_j - first.energy_j) / (span_ns / NS_PER_S) / mean_w


def _is_steady(powers: Sequence[tuple[int, float]], mean_w: float) -> bool:
    """Whether power was steady enough to compare two sensors."""
    middle = len(powers) // 2
    halves = mean_power_w(powers[: middle + 1]), mean_power_w(powers[middle:])
    if mean_w <= 0 or abs(halves[1] - halves[0]) > UNSTEADY_BEYOND * mean_w:
        return False
    return mean_rel_err([power_w for _, power_w in powers]) <= UNSTEADY_BEYOND


class SelfTest:
    """Schedule and data of the comparison of a device's energy sensors.

    If power was not steady, the comparison is repeated after five minutes, and after waits that
    double up to an hour; after a result it is not.

    Args:
        start_ns: CLOCK_MONOTONIC ns at which it may begin.
        length_s: How long it takes in s.
    """

    def __init__(self, start_ns: int, length_s: float) -> None:
        self.due_ns = start_ns
        self._length_ns = int(length_s * NS_PER_S)
        self._again_s = AGAIN_FIRST_S
        self._first: EnergyReading | None = None
        self._powers: list[Power] = []

    @property
    def wants_counter(self) -> bool:
        """Whether the next step reads the counter, at the start or the end of a comparison."""
        return self._first is None or self.due_ns >= self._first.t_ns + self._length_ns

    def add(self, now_ns: int, powers: Sequence[Power]) -> None:
        """Add the power that was read now, if it was."""
        self._powers += powers
        self.due_ns = now_ns + POLL_EVERY_NS

    def take_counter(self, now_ns: int, reading: EnergyReading | None) -> float | None:
        """Start or end a comparison with a reading of the counter; return the result if there is one."""
        first, powers, self._first, self._powers = self._first, self._powers, None, []
        if first is None and reading is not None:
            self._first, self.due_ns = reading, reading.t_ns + POLL_EVERY_NS
            return None
        if first is not None and reading is not None:
            ratio = compare(first, reading, powers)
            if ratio is not None:
                return ratio
        self.due_ns = now_ns + int(self._again_s * NS_PER_S)
        self._again_s = min(2 * self._again_s, AGAIN_MAX_S)
        return None


# A counter that is read in quick succession is inaccurate: edges are read at most once a second, and
# at least 0.2 s after any other reading.
EDGE_SPACING_NS: Final = NS_PER_S
COUNTER_SPACING_NS: Final = NS_PER_S // 5
SAMPLES_EVERY_NS: Final = NS_PER_S // 2
POLL_AT_MOST_NS: Final = 120 * NS_PER_S
# Readings that a message holds, and of an unwatched device those that are sent when it is watched.
KEPT: Final = 10


class Metering:
    """Reads one device's energy, and keeps what is sent of it while it is watched.

    Args:
        sensor: Reads the device.
        clock: CLOCK_MONOTONIC.
        emit: Takes the result of the self-test.
        selftest_s: How long the self-test takes in s; 0 for none.
        on_new_scope: Called with the last counter reading when power and energy are read in
            another scope from now on.
    """

    def __init__(
        self,
        sensor: Sensor,
        clock: Clock,
        emit: Emit,
        selftest_s: float,
        on_new_scope: Callable[[EnergyReading], None],
    ) -> None:
        self.readings = WatchedReadings(KEPT)
        self.is_slice = False
        self.watched_until_ns = 0
        self._idle = IdlePower()
        self._idle_sample_pct = 0.0
        self._sensor = sensor
        self._bounds = sensor.bounds
        self._clock = clock
        self._emit = emit
        self._selftest_s = selftest_s
        self._on_new_scope = on_new_scope
        self._selftest: SelfTest | None = None
        # Nothing that was sent before may be joined with the next readings.
        self._is_first = True
        self._counter: EnergyReading | None = None
        # When each reading is due.
        self._edge_due_ns = self._poll_ns = NEVER_NS
        self._poll_until_ns = 0

    def opened(self, device: Device) -> None:
        """Start with a device that was discovered; its energy sensors are compared again."""
        self.retire()
        kind = DEVICE_KINDS[device.kind]
        self.is_slice = kind.is_slice
        self._idle_sample_pct = kind.idle_sample_pct
        if not kind.is_host:
            self._start_selftest()

    def _start_selftest(self) -> None:
        if self._selftest_s:
            self._selftest = SelfTest(self._clock.monotonic_ns(), self._selftest_s)

    def resumed(self) -> None:
        """Begin again after a suspension of the host, or with another scope: no window spans it."""
        self.readings.clear()
        self._is_first, self._counter = True, None

    def retire(self) -> None:
        """Stop all reading of a device that is gone."""
        self._edge_due_ns = self._poll_ns = NEVER_NS
        self._selftest = None

    def mark(self) -> None:
        """Schedule a reading of the counter, or polls of power: this is an edge of a window."""
        spaced_ns = self.readings.edge_ns + EDGE_SPACING_NS
        if self._counter is not None:
            spaced_ns = max(spaced_ns, self._counter.t_ns + COUNTER_SPACING_NS)
        self._edge_due_ns = max(self._clock.monotonic_ns(), spaced_ns)

    @property
    def wake_ns(self) -> int:
        """When a reading is due, in CLOCK_MONOTONIC ns; NEVER_NS for never."""
        selftest_ns = NEVER_NS if self._selftest is None else self._selftest.due_ns
        return min(self._edge_due_ns, self._poll_ns, selftest_ns)

    def due(self, now_ns: int) -> Callable[[], None] | None:
        """The driver calls that are due, if any."""
        if now_ns >= self._edge_due_ns:
            return self._read_edge
        if now_ns >= self._poll_ns:
            return self._poll
        return self._test if now_ns >= self.wake_ns else None

    def record(self, sample: Sample) -> None:
        """Add a regular sample, with its power and its counter."""
        readings = self.readings
        readings.samples.append(sample._replace(counter=None))
        if sample.counter is not None:
            readings.counter.append(sample.counter)
        power_w, util_pct = sample.power_w, sample.util_pct
        if power_w is None:
            return
        readings.powers.append(Power(sample.t_ns, power_w))
        if util_pct is not None and util_pct <= self._idle_sample_pct:
            self._idle.add(power_w)

    def read_counter(self) -> EnergyReading | None:
        """Read the energy counter; return a reading made just before instead."""
        last, now_ns = self._counter, self._clock.monotonic_ns()
        if last is not None and now_ns - last.t_ns < COUNTER_SPACING_NS:
            return last
        reading = self._bounds.energy(self._sensor.read_energy())
        if reading is not None:
            self.readings.counter.append(reading)
            self._counter = reading
        return reading

    def message(self) -> Message:
        """The message with what was read since the last one."""
        readings, self._is_first, is_first = self.readings, False, self._is_first
        readings.idle_power_w = self._idle.value_w()
        readings.suspect_ns = list(self._bounds.suspect_ns)
        readings.scope = "parent" if self.is_slice else self._sensor.energy_scope
        message = readings.message(self._sensor.name, is_first=is_first)
        readings.clear()
        return message

    def _read_edge(self) -> None:
        self._edge_due_ns = NEVER_NS
        self.readings.edge_ns = now_ns = self._clock.monotonic_ns()
        if self.read_counter() is None:
            self._poll_ns = now_ns
            self._poll_until_ns = now_ns + POLL_AT_MOST_NS

    def _poll(self) -> None:
        powers = self._sensor.read_power_samples()
        if powers is None:
            self.readings.powers.extend(self._read_power())
        else:
            self.readings.buffered.extend(self._bounds.powers(powers))
        now_ns = self._clock.monotonic_ns()
        every_ns = POLL_EVERY_NS if powers is None else SAMPLES_EVERY_NS
        if max(len(self.readings.powers), len(self.readings.buffered)) >= KEPT:
            self._emit(self.message())
        is_over = now_ns >= min(self._poll_until_ns, self.watched_until_ns)
        self._poll_ns = NEVER_NS if is_over else now_ns + every_ns

    def _read_power(self) -> list[Power]:
        """Read the power, if the device has it."""
        watts = self._sensor.read_power_w()
        return [] if watts is None else self._bounds.powers([(self._clock.monotonic_ns(), watts)])

    def _test(self) -> None:
        """Execute the next step of the self-test."""
        test, now_ns = self._selftest, self._clock.monotonic_ns()
        if test is None:
            return
        if not test.wants_counter:
            test.add(self._clock.monotonic_ns(), self._read_power())
            return
        reading = self.read_counter()
        if reading is not None and reading.method != "counter":
            self._selftest = None
            return
        ratio = test.take_counter(now_ns, reading)
        if ratio is None or reading is None:
            return
        self._selftest = None
        disagreement = abs(ratio - 1)
        is_suspect = disagreement > SUSPECT_BEYOND
        if is_suspect and self._sensor.change_energy_scope():
            self._on_new_scope(reading)
            self.readings, self._idle = WatchedReadings(KEPT), IdlePower()
            self.resumed()
            self._start_selftest()
        else:
            self.readings.disagreement, self.readings.suspect = disagreement, is_suspect
            result = {"device": self._sensor.name, "ratio": ratio, "suspect": is_suspect}
            self._emit({"type": "selftest", **result})
