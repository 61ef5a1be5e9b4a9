"""Energy readings of a device between its samples: window edges, polls, self-test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from costprobe.adapters.sensors.child.energy import EnergyHistory, SteadyWindow
from costprobe.adapters.sensors.child.selftest import SelfTest, Verdict
from costprobe.adapters.sensors.child.sensor import Sensor
from costprobe.adapters.sensors.protocol.messages import Message, energy_message, selftest_message
from costprobe.adapters.sensors.protocol.sample import EnergyReading, Sample
from costprobe.core.clock import Clock
from costprobe.core.device_kinds import DEVICE_KINDS
from costprobe.core.records import NS_PER_S, Device, Energy, EnergyScope

Emit = Callable[[Message], None]

# A counter that is read in quick succession is inaccurate: edges are read at most once a second, and
# at least 0.2 s after any other reading.
EDGE_SPACING_NS: Final = NS_PER_S
COUNTER_SPACING_NS: Final = NS_PER_S // 5
POLL_EVERY_NS: Final = NS_PER_S // 10
SAMPLES_EVERY_NS: Final = NS_PER_S // 2
POLL_AT_MOST_NS: Final = 120 * NS_PER_S
NEVER_NS: Final = 2**63 - 1


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
        reading = self._sensor.read_energy()
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
            watts = self._sensor.read_power_w()
            if watts is not None:
                self.history.powers.append((self._clock.monotonic_ns(), watts))
        else:
            self.history.samples.extend(samples)
        now_ns = self._clock.monotonic_ns()
        every_ns = POLL_EVERY_NS if samples is None else SAMPLES_EVERY_NS
        self._poll_ns = now_ns + every_ns if now_ns < self._poll_until_ns else None

    def _test(self) -> None:
        """Execute the next step of the self-test."""
        test = self._selftest
        if test is None:
            return
        if not test.wants_counter:
            watts = self._sensor.read_power_w()
            test.add(self._clock.monotonic_ns(), watts)
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
