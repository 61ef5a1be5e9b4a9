"""Energy of a device between two instants, by the most accurate method for its readings.

Idle power is estimated from the samples of the device. Further readings are taken between samples
for window edges, polls and the self-test.

The self-test compares the energy counter with the power over some seconds. Both sensors are on
the same board, so agreement does not prove their accuracy; if they disagree, one of them is
wrong, and every energy of the device is suspect.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final, Literal

from costprobe.adapters.sensors.child.sensor import NEVER_NS, Sensor
from costprobe.adapters.sensors.energy import BASE_REL_ERR, BOARD_REL_ERR, COUNTER_STEP_S, IdlePower
from costprobe.adapters.sensors.messages import (
    Absent,
    Emit,
    EnergyReading,
    Message,
    Sample,
    energy_message,
    selftest_message,
)
from costprobe.core.clock import Clock
from costprobe.core.records import (
    DEVICE_KINDS,
    NS_PER_S,
    Device,
    Energy,
    EnergyScope,
)

MIN_WINDOW_S: Final = 5.0

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

    def add(self, now_ns: int, *powers: tuple[int, float]) -> None:
        """Add the power that was read now: (CLOCK_MONOTONIC ns, W), or nothing."""
        if self._powers is not None:
            self._powers.extend(powers)
        self.due_ns = now_ns + POLL_EVERY_NS

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


# A counter that is read in quick succession is inaccurate: edges are read at most once a second, and
# at least 0.2 s after any other reading.
EDGE_SPACING_NS: Final = NS_PER_S
COUNTER_SPACING_NS: Final = NS_PER_S // 5
SAMPLES_EVERY_NS: Final = NS_PER_S // 2
POLL_AT_MOST_NS: Final = 120 * NS_PER_S


class Metering:
    """Reads one device's energy and answers requests for it.

    Args:
        sensor: Reads the device.
        clock: CLOCK_MONOTONIC.
        emit: Takes the result of the self-test.
        every_ns: Time between the regular samples in ns.
        selftest_s: How long the self-test takes in s; 0 for none.
        on_new_scope: Called with the last counter reading when power and energy are read in
            another scope from now on.
    """

    def __init__(
        self,
        sensor: Sensor,
        clock: Clock,
        emit: Emit,
        every_ns: int,
        selftest_s: float,
        on_new_scope: Callable[[EnergyReading], None],
    ) -> None:
        self.history = EnergyHistory()
        self.is_slice = False
        self._idle_sample_pct = 0.0
        self._sensor = sensor
        self._bounds = sensor.bounds
        self._clock = clock
        self._emit = emit
        self._every_ns = every_ns
        self._selftest_s = selftest_s
        self._on_new_scope = on_new_scope
        # If each sample has the mean power since the one before, power need not be polled.
        self._samples_suffice = False
        self._selftest: SelfTest | None = None
        self._counter_ns = -COUNTER_SPACING_NS
        self._edge_ns = -EDGE_SPACING_NS
        self._edge_due_ns: int | None = None
        self._poll_ns: int | None = None
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
        """Begin again after a suspension of the host: no window and no comparison spans it."""
        self.history.forget_readings()
        if self._selftest is not None:
            self._start_selftest()

    def retire(self) -> None:
        """Stop all reading of a device that is gone."""
        self._edge_due_ns = None
        self._poll_ns = None
        self._selftest = None

    def mark(self) -> None:
        """Schedule a reading of the counter, or polls of power: this is an edge of a window."""
        now_ns = self._clock.monotonic_ns()
        after_edge_ns = self._edge_ns + EDGE_SPACING_NS
        self._edge_due_ns = max(now_ns, after_edge_ns, self._counter_ns + COUNTER_SPACING_NS)

    @property
    def wake_ns(self) -> int:
        """When a reading is due, in CLOCK_MONOTONIC ns; NEVER_NS for never."""
        selftest_ns = None if self._selftest is None else self._selftest.due_ns
        wake_ns = NEVER_NS
        for due_ns in (self._edge_due_ns, self._poll_ns, selftest_ns):
            if due_ns is not None and due_ns < wake_ns:
                wake_ns = due_ns
        return wake_ns

    def due(self, now_ns: int) -> Callable[[], None] | None:
        """The driver calls that are due, if any."""
        if self._edge_due_ns is not None and now_ns >= self._edge_due_ns:
            return self._read_edge
        if self._poll_ns is not None and now_ns >= self._poll_ns:
            return self._poll
        test = self._selftest
        if test is not None and test.due_ns is not None and now_ns >= test.due_ns:
            return self._test
        return None

    def record(self, sample: Sample) -> None:
        """Add the power and counter of a regular sample to the history."""
        history = self.history
        if sample.counter is not None:
            history.counter.append(sample.counter)
        power_w, util_pct = sample.power_w, sample.util_pct
        if power_w is None:
            return
        history.powers.append((sample.t_ns, power_w))
        self._samples_suffice = sample.is_averaged and self._every_ns <= NS_PER_S
        if util_pct is not None and util_pct <= self._idle_sample_pct:
            history.idle.add(power_w)

    def read_counter(self) -> EnergyReading | None:
        """Read the energy counter into the history; return a reading made just before instead."""
        if self._is_fresh() and self.history.counter:
            return self.history.counter[-1]
        reading = self._bounds.energy(self._sensor.read_energy())
        if reading is not None:
            self.history.counter.append(reading)
            self._counter_ns = reading.t_ns
        return reading

    def _is_fresh(self) -> bool:
        return self._clock.monotonic_ns() - self._counter_ns < COUNTER_SPACING_NS

    def answer(self, request: Message, *, last: bool) -> Message | None:
        """The answer to an `energy` command; None while a later reading may improve it.

        Args:
            request: The command.
            last: Answer with the readings there are.
        """
        if self._edge_due_ns is not None:
            return None
        window = SteadyWindow(*(int(request[key]) for key in SteadyWindow.__slots__))
        result = self.history.energy(window)
        if isinstance(result, Energy) and self._bounds.is_suspect(
            window.steady_start_ns, window.steady_end_ns
        ):
            result = replace(result, suspect=True)
        by_counter = isinstance(result, Energy) and result.method not in ("samples", "poll")
        if not last and not by_counter:
            return None
        self._poll_ns = None
        scope: EnergyScope = "parent" if self.is_slice else self._sensor.energy_scope
        return energy_message(int(request["id"]), result, scope)

    def _read_edge(self) -> None:
        self._edge_due_ns = None
        self._edge_ns = now_ns = self._clock.monotonic_ns()
        if self.read_counter() is None:
            self._poll_ns = now_ns
            self._poll_until_ns = now_ns + POLL_AT_MOST_NS

    def _poll(self) -> None:
        samples = self._sensor.read_power_samples()
        if samples is None:
            self.history.powers.extend(self._read_power())
        else:
            self.history.samples.extend(self._bounds.powers(samples))
        now_ns = self._clock.monotonic_ns()
        every_ns = POLL_EVERY_NS if samples is None else SAMPLES_EVERY_NS
        self._poll_ns = now_ns + every_ns if now_ns < self._poll_until_ns else None

    def _read_power(self) -> list[tuple[int, float]]:
        """Read the power: (CLOCK_MONOTONIC ns, W), or nothing."""
        watts = self._sensor.read_power_w()
        reading = [] if watts is None else [(self._clock.monotonic_ns(), watts)]
        return self._bounds.powers(reading)

    def _test(self) -> None:
        """Execute the next step of the self-test."""
        test = self._selftest
        if test is None:
            return
        if not test.wants_counter:
            test.add(self._clock.monotonic_ns(), *self._read_power())
            return
        polls = not self._samples_suffice
        if not test.is_running and polls and test.would_fail(self.history.powers):
            test.postpone(self._clock.monotonic_ns())
            return
        reading = self.read_counter()
        if reading is None:
            test.back_off(self._clock.monotonic_ns())
        elif reading.method != "counter":
            self._selftest = None
        elif not test.is_running:
            test.begin(reading, polls=polls)
        else:
            verdict = test.end(reading, self.history.powers, self._every_ns)
            if verdict is not None and verdict.suspect and self._sensor.change_energy_scope():
                self._on_new_scope(reading)
                self.history = EnergyHistory()
                self._start_selftest()
            elif verdict is not None:
                self._judge(verdict)

    def _judge(self, verdict: Verdict) -> None:
        self.history.disagreement = verdict.disagreement
        self.history.suspect = verdict.suspect
        self._emit(selftest_message(self._sensor.name, verdict.ratio, suspect=verdict.suspect))
