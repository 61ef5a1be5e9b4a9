"""When a device's energy sensors are read beside the regular samples: edges, polls, self-test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent.clock import Clock
from agent.model import NS_PER_S, Energy
from agent.telemetry.energy import History, Region
from agent.telemetry.sample import CounterReading, Sample, Sensor
from agent.telemetry.selftest import SelfTest, Verdict
from agent.telemetry.wire import Message, energy_message, selftest_message

Emit = Callable[[Message], None]

# A counter that is read in quick succession lies: edges are read at most once a second, and never
# closer than a fifth of one to any other reading.
EDGE_SPACING_NS: Final = NS_PER_S
COUNTER_SPACING_NS: Final = NS_PER_S // 5
POLL_EVERY_NS: Final = NS_PER_S // 10
SAMPLES_EVERY_NS: Final = NS_PER_S // 2
POLL_AT_MOST_NS: Final = 120 * NS_PER_S
NEVER_NS: Final = 2**63 - 1


class Metering:
    """One device's energy: what is read for it, and what is answered of it.

    Args:
        sensor: Reads the device.
        clock: CLOCK_MONOTONIC.
        emit: Takes the self-test's verdict.
        every_ns: Time between the regular samples in ns.
        selftest_s: How long the self-test takes in s; 0 for none.
    """

    def __init__(
        self, sensor: Sensor, clock: Clock, emit: Emit, every_ns: int, selftest_s: float
    ) -> None:
        self.history = History()
        self._sensor = sensor
        self._clock = clock
        self._emit = emit
        self._every_ns = every_ns
        self._selftest_s = selftest_s
        # Where each sample says what power was since the one before, nothing needs to be polled.
        self._samples_suffice = False
        self._selftest: SelfTest | None = None
        self._counter_ns = -COUNTER_SPACING_NS
        self._edge_ns = -EDGE_SPACING_NS
        self._edge_due_ns: int | None = None
        self._poll_ns: int | None = None
        self._poll_until_ns = 0

    @property
    def edge_is_due(self) -> bool:
        """Whether an edge of a window waits to be read."""
        return self._edge_due_ns is not None

    def opened(self) -> None:
        """Begins anew with a device that was found; its sensors are compared again."""
        self.retire()
        if self._selftest_s and self._sensor.counter_method == "counter":
            self._selftest = SelfTest(self._clock.monotonic_ns(), self._selftest_s)

    def retire(self) -> None:
        """Leaves a device alone that is gone."""
        self._edge_due_ns = None
        self._poll_ns = None
        self._selftest = None

    def mark(self) -> None:
        """Has the counter read, or power polled, from now on: an edge of a window."""
        now_ns = self._clock.monotonic_ns()
        after_edge_ns = self._edge_ns + EDGE_SPACING_NS
        self._edge_due_ns = max(now_ns, after_edge_ns, self._counter_ns + COUNTER_SPACING_NS)

    @property
    def wake_ns(self) -> int:
        """When there is something to do, in CLOCK_MONOTONIC ns; NEVER_NS for never."""
        selftest_ns = None if self._selftest is None else self._selftest.due_ns
        wake_ns = NEVER_NS
        for due_ns in (self._edge_due_ns, self._poll_ns, selftest_ns):
            if due_ns is not None and due_ns < wake_ns:
                wake_ns = due_ns
        return wake_ns

    def due(self, now_ns: int) -> Callable[[], None] | None:
        """The visit to the driver that is due, if any."""
        if self._edge_due_ns is not None and now_ns >= self._edge_due_ns:
            return self._read_edge
        if self._poll_ns is not None and now_ns >= self._poll_ns:
            return self._poll
        test = self._selftest
        if test is not None and test.due_ns is not None and now_ns >= test.due_ns:
            return self._test
        return None

    def remember(self, *samples: Sample) -> None:
        """Takes what regular samples say of energy."""
        history, idle_below_pct = self.history, self._sensor.idle_below_pct
        for sample in samples:
            if sample.counter is not None:
                history.counter.append(sample.counter)
            power_w, util_pct = sample.power_w, sample.util_pct
            if power_w is None:
                continue
            history.powers.append((sample.t_ns, power_w))
            self._samples_suffice = sample.is_averaged and self._every_ns <= NS_PER_S
            if util_pct is not None and util_pct <= idle_below_pct:
                history.idle.add(power_w)

    def read_counter(self) -> CounterReading | None:
        """Reads the energy counter and keeps what it says; a reading just made stands for this."""
        if self._is_fresh() and self.history.counter:
            return self.history.counter[-1]
        reading = self._sensor.read_counter()
        if reading is not None:
            self.history.counter.append(reading)
            self._counter_ns = reading.t_ns
        return reading

    def _is_fresh(self) -> bool:
        return self._clock.monotonic_ns() - self._counter_ns < COUNTER_SPACING_NS

    def answer(self, question: Message, *, last: bool) -> Message | None:
        """The answer to an `energy` command; None while a better one may come with a reading.

        Args:
            question: The command.
            last: Whether no more can be waited for.
        """
        if self._edge_due_ns is not None:
            return None
        region = Region(*(int(question[key]) for key in Region.__slots__))
        result = self.history.energy(region, self._sensor.counter_method)
        by_counter = isinstance(result, Energy) and result.method == self._sensor.counter_method
        if not last and not by_counter:
            return None
        self._poll_ns = None
        return energy_message(int(question["id"]), result, self._sensor.energy_scope)

    def _read_edge(self) -> None:
        self._edge_due_ns = None
        self._edge_ns = now_ns = self._clock.monotonic_ns()
        self.read_counter()
        if self._sensor.counter_method is None:
            self._poll_ns = now_ns
            self._poll_until_ns = now_ns + POLL_AT_MOST_NS

    def _poll(self) -> None:
        samples = self._sensor.read_samples()
        if samples is None:
            watts = self._sensor.read_power_w()
            if watts is not None:
                self.history.powers.append((self._clock.monotonic_ns(), watts))
        else:
            self.history.samples.extend(samples)
        now_ns = self._clock.monotonic_ns()
        every_ns = POLL_EVERY_NS if samples is None else SAMPLES_EVERY_NS
        self._poll_ns = now_ns + every_ns if now_ns < self._poll_until_ns else None

    def _test(self) -> None:
        """Takes the self-test's next step."""
        test = self._selftest
        if test is None:
            return
        if not test.wants_counter:
            watts = self._sensor.read_power_w()
            test.add(self._clock.monotonic_ns(), watts)
            return
        polls = not self._samples_suffice
        if not test.is_running and polls and test.is_hopeless(self.history.powers):
            test.look_again(self._clock.monotonic_ns())
            return
        reading = self.read_counter()
        if reading is None:
            test.put_off(self._clock.monotonic_ns())
        elif not test.is_running:
            test.begin(reading, polls=polls)
        else:
            verdict = test.end(reading, self.history.powers, self._every_ns)
            if verdict is not None:
                self._judge(verdict)

    def _judge(self, verdict: Verdict) -> None:
        self.history.disagreement = verdict.disagreement
        self.history.suspect = verdict.suspect
        self._emit(selftest_message(self._sensor.name, verdict.ratio, suspect=verdict.suspect))
