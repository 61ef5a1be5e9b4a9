"""What is done with one device: it is sampled, answered about, and left alone when lost.

One thread at a time visits a device (see `agent.telemetry.crew`), because a driver call that hangs
must not stop the other devices (ctypes gives up the interpreter's lock during a call).
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from agent.clock import Clock
from agent.model import NS_PER_S
from agent.telemetry.activity import ActivityLog
from agent.telemetry.aggregate import Aggregator
from agent.telemetry.backoff import Backoff
from agent.telemetry.faults import Reaction, SensorFault
from agent.telemetry.metering import Metering
from agent.telemetry.process_time import ProcessTime
from agent.telemetry.sample import CounterReading, Noted, Sample, Sensor
from agent.telemetry.wire import (
    Message,
    SensorSettings,
    activity_message,
    device_message,
    fault_message,
    reading_message,
)
from agent.waits import LEAST_WAIT_S

Emit = Callable[[Message], None]

# A board may be divided anew at any time.
PARTS_EVERY_NS: Final = 60 * NS_PER_S
INBOX_MAX: Final = 64
REINITS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class _Question:
    """An `energy` or `activity` command that waits for the samples it needs."""

    message: Message
    end_ns: int
    give_up_ns: int


def pace(start_ns: int, every_ns: int, now_ns: int) -> int:
    """The first instant after now on a grid; a late sample is skipped and moves no later one."""
    return start_ns + ((now_ns - start_ns) // every_ns + 1) * every_ns


class DeviceWorker:
    """Owns one device.

    Args:
        sensor: Reads the device.
        settings: How often.
        clock: CLOCK_MONOTONIC.
        emit: Takes messages for the daemon; must not block.
        start_ns: Instant from which the samples and the rows are counted off.
        retry_after_s: Leave the device alone for so long at first, in s.
    """

    def __init__(
        self,
        sensor: Sensor,
        settings: SensorSettings,
        clock: Clock,
        emit: Emit,
        start_ns: int,
        retry_after_s: float | None = None,
    ) -> None:
        self.sensor = sensor
        self.busy_since_ns: int | None = None
        self.overdue_ns: int | None = None
        self.sampled_ns: int | None = None
        self.opened = False
        self.settled = retry_after_s is not None
        self._clock = clock
        self._emit = emit
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._deadline_ns = int(settings.deadline_s * NS_PER_S)
        self._startup_ns = int(max(settings.startup_s, settings.deadline_s) * NS_PER_S)
        self._every_ns = int(settings.sample_every_s * NS_PER_S)
        self._aggregate_ns = int(settings.aggregate_every_s * NS_PER_S)
        self._start_ns = start_ns
        self._next_sample_ns = start_ns
        self._next_aggregate_ns = start_ns + self._aggregate_ns
        # Up to this instant only quick samples are due.
        self._quick_until_ns = 0
        self._retry_ns = clock.monotonic_ns() + int((retry_after_s or 0) * NS_PER_S)
        first_s, max_s = settings.quarantine_first_s, settings.quarantine_max_s
        self._backoff = Backoff(first_s, max_s, reset_after_s=max_s)
        self._reinits = 0
        self._ended = False
        self._fresh = True
        self._metering = Metering(sensor, clock, emit, self._every_ns, settings.selftest_s)
        self._parts_ns = 0
        # Samples that were not taken into account yet: together that costs half.
        self._samples: list[Sample | Noted] = []
        self._activity = ActivityLog(self._every_ns)
        self._aggregator = Aggregator(sensor.name)
        self._questions: list[_Question] = []
        self._watched_until_ns = 0
        self._busy_pids: frozenset[int] | None = None
        self._process_time = ProcessTime() if settings.processes else None

    def offer(self, command: Message) -> bool:
        """Hands the device a command; False where it has too many already."""
        if self._inbox.qsize() >= INBOX_MAX:
            return False
        self._inbox.put(command)
        return True

    @property
    def has_commands(self) -> bool:
        """Whether a command waits."""
        return not self._inbox.empty()

    def work(self) -> int:
        """Takes the commands that wait, does all that is due, and says when there is more.

        Returns:
            CLOCK_MONOTONIC ns.
        """
        if self._next_sample_ns < self._quick_until_ns and self._inbox.empty():
            # Nine of ten visits, at one sample a second and a row every ten.
            if self._next_sample_ns <= self._clock.monotonic_ns():
                self._guard(self._sample_quickly)
            if self._quick_until_ns:
                return min(self._next_sample_ns, self._quick_until_ns)
        while not self._inbox.empty():
            self.command(self._inbox.get_nowait())
        while True:
            self.step()
            if (wake_ns := self.next_wake_ns()) > self._clock.monotonic_ns():
                self._quick_until_ns = self._find_quick_until_ns()
                return wake_ns

    def await_command(self, until_ns: int) -> None:
        """Waits until an instant, in CLOCK_MONOTONIC ns, or for a command, which it takes."""
        wait_s = max(LEAST_WAIT_S, (until_ns - self._clock.monotonic_ns()) / NS_PER_S)
        try:
            self.command(self._inbox.get(timeout=wait_s))
        except queue.Empty:
            return

    def next_wake_ns(self) -> int:
        """When `step` has something to do, in CLOCK_MONOTONIC ns."""
        if self._ended:
            wake_ns = self._clock.monotonic_ns() + NS_PER_S
        elif self.opened:
            wake_ns = min(self._next_sample_ns, self._metering.wake_ns)
        else:
            wake_ns = self._retry_ns
        for question in self._questions:
            wake_ns = min(wake_ns, question.give_up_ns)
        return wake_ns

    def _find_quick_until_ns(self) -> int:
        """Up to when only quick samples are due, in CLOCK_MONOTONIC ns; 0 where more is, or may be."""
        may_be_more = self._fresh or self._questions or self._process_time is not None
        if may_be_more or not self.opened or self._watched_until_ns > self._next_sample_ns:
            return 0
        parts_ns = self._parts_ns + PARTS_EVERY_NS
        return min(self._next_aggregate_ns, self._metering.wake_ns, parts_ns)

    def step(self) -> None:
        """Does what is due."""
        now_ns = self._clock.monotonic_ns()
        if not self.opened:
            if now_ns >= self._retry_ns and not self._ended:
                self._guard(self._open)
        elif now_ns >= self._next_sample_ns:
            self._guard(self._sample)
        elif (visit := self._metering.due(now_ns)) is not None:
            self._take_in()
            self._guard(visit)
        if self._questions:
            self._answer()

    def command(self, message: Message) -> None:
        """Takes a command of the daemon that concerns this device."""
        now_ns = self._clock.monotonic_ns()
        self._quick_until_ns = 0
        match message["cmd"]:
            case "mark" if self.opened:
                self._metering.mark()
            case "watch":
                self._watch(int(message["until_ns"]))
            case "energy" | "activity" if len(self._questions) < INBOX_MAX:
                give_up_ns = now_ns + max(2 * NS_PER_S, 2 * self._every_ns)
                self._questions.append(_Question(message, int(message["end_ns"]), give_up_ns))
                self._answer()
            case "flush":
                self._close_interval(None)
                self._emit({"type": "flushed", "device": self.sensor.name})

    def _watch(self, until_ns: int) -> None:
        """Reads every metric at every sample until an instant, and once now."""
        is_new = self._watched_until_ns <= self._clock.monotonic_ns() < until_ns
        self._watched_until_ns = until_ns
        if is_new and self.opened:
            self._take_in()
            self._guard(lambda: self._activity.add(self.sensor.sample()))

    def _guard(self, action: Callable[[], None]) -> None:
        """Runs one visit to the driver; the only place that knows how long and how it ended."""
        self.busy_since_ns = self._clock.monotonic_ns()
        allowed_ns = self._deadline_ns if self.opened else self._startup_ns
        self.overdue_ns = self.busy_since_ns + allowed_ns
        try:
            action()
        except SensorFault as fault:
            self._react(fault)
        except Exception as error:  # noqa: BLE001 - one device's trouble must not end its thread
            detail = f"{type(error).__name__}: {error}"
            self._react(SensorFault(self.sensor.call, "FAILED", Reaction.QUARANTINE, detail))
        finally:
            self.overdue_ns = None
            self.busy_since_ns = None
            self.settled = True

    def _open(self) -> None:
        device = self.sensor.open()
        self._fresh = True
        now_ns = self._clock.monotonic_ns()
        if now_ns > self._start_ns:
            self._next_sample_ns = pace(self._start_ns, self._every_ns, now_ns)
            # A row holds two samples at least, between which something can be counted.
            first_ns = self._next_sample_ns
            self._next_aggregate_ns = pace(self._start_ns, self._aggregate_ns, first_ns)
        self.opened = True
        self._metering.opened()
        self._emit({"type": "device", "device": device_message(device)})
        self._look_for_parts()

    def _sample(self) -> None:
        """Takes a sample, and does what goes with it."""
        due_ns = self._next_sample_ns
        closes = due_ns >= self._next_aggregate_ns
        counter: CounterReading | None = None
        sample: Sample | Noted
        if closes or self._fresh or self._questions or due_ns < self._watched_until_ns:
            sample = self.sensor.sample()
            counter = sample.counter
        else:
            sample = self.sensor.quick_sample()
        if self._fresh:
            self._aggregator.restart(counter or self._own_counter())
            self._fresh = False
            if self._process_time is not None:
                self._process_time.restart(sample.t_ns)
        self._samples.append(sample)
        if self._process_time is not None:
            shares = self.sensor.util_by_pid_pct(self._process_time.seen_ns)
            self._process_time.add(sample.t_ns, shares)
        if closes:
            self._close_interval(counter or self._own_counter())
            self._next_aggregate_ns = pace(self._start_ns, self._aggregate_ns, due_ns)
        if due_ns - self._parts_ns >= PARTS_EVERY_NS:
            self._look_for_parts()
        self._sampled()

    def _sample_quickly(self) -> None:
        """Takes a sample, with which nothing else goes."""
        self._samples.append(self.sensor.quick_sample())
        self._sampled()

    def _sampled(self) -> None:
        """Says when the next sample is due."""
        self._reinits = 0
        self.sampled_ns = now_ns = self._clock.monotonic_ns()
        latest_ns = max(self._next_sample_ns, now_ns)
        self._next_sample_ns = pace(self._start_ns, self._every_ns, latest_ns)

    def _take_in(self) -> None:
        """Takes the samples since the last time into account."""
        noted, self._samples = self._samples, []
        samples = [sample.sample() if isinstance(sample, Noted) else sample for sample in noted]
        self._aggregator.add(*samples)
        self._activity.add(*samples)
        self._metering.remember(*samples)

    def _look_for_parts(self) -> None:
        """Tells of MIG devices; those that are known already are told again, which does nothing."""
        self._parts_ns = self._clock.monotonic_ns()
        for number in self.sensor.parts():
            self._emit({"type": "part", "device": self.sensor.name, "number": number})

    def _own_counter(self) -> CounterReading | None:
        """The energy counter for the series; a part's is its board's, and stands in its row."""
        self._take_in()
        return self._metering.read_counter() if self.sensor.energy_scope == "device" else None

    def _close_interval(self, counter: CounterReading | None) -> None:
        self._take_in()
        suspect = self._metering.history.suspect
        reading = self._aggregator.close(counter, self.sensor.counter_method, suspect=suspect)
        if reading is not None and self._process_time is not None:
            reading = replace(reading, busy_by_pid_s=self._process_time.close())
        if reading is not None:
            self._emit(reading_message(reading))

    def _answer(self) -> None:
        """Answers the questions whose samples are in, or that have waited long enough."""
        self._take_in()
        now_ns = self._clock.monotonic_ns()
        waiting: list[_Question] = []
        for question in self._questions:
            of_energy = question.message["cmd"] == "energy"
            # Conditions are in the samples alone; power is polled between them at times.
            seen_ns = self._metering.history.power_ns if of_energy else self._activity.seen_ns
            last = not self.opened or now_ns >= question.give_up_ns or seen_ns >= question.end_ns
            if of_energy:
                answer = self._metering.answer(question.message, last=last)
            else:
                answer = self._conditions(question.message) if last else None
            if answer is None:
                waiting.append(question)
            else:
                self._emit(answer)
        self._questions = waiting

    def _conditions(self, message: Message) -> Message:
        start_ns, end_ns = int(message["start_ns"]), int(message["end_ns"])
        if self.opened:
            self._guard(lambda: self._look_who_is_busy(start_ns))
        busy_pids, self._busy_pids = self._busy_pids, None
        activity = self._activity.between(start_ns, end_ns, message["own_pids"], busy_pids)
        return activity_message(int(message["id"]), activity)

    def _look_who_is_busy(self, since_ns: int) -> None:
        self._busy_pids = self.sensor.busy_pids(since_ns)

    def _react(self, fault: SensorFault) -> None:
        if fault.reaction is Reaction.REINIT and self._reinits < REINITS_MAX:
            self._reinits += 1
            self._retire()
            self._retry_ns = self._clock.monotonic_ns()
        elif fault.reaction in (Reaction.REINIT, Reaction.RESTART):
            self._retire()
            self._ended = True
            self.tell(SensorFault(fault.call, fault.code, Reaction.RESTART, fault.detail))
            self._emit({"type": "restart", "device": self.sensor.name})
        else:
            self._retire()
            wait_s = self._backoff.next_s(self._clock.monotonic_ns())
            self._retry_ns = self._clock.monotonic_ns() + int(wait_s * NS_PER_S)
            quarantined = SensorFault(fault.call, fault.code, Reaction.QUARANTINE, fault.detail)
            self.tell(quarantined, retry_after_s=wait_s)

    def _retire(self) -> None:
        """Ends the interval early: nothing is counted across the time without the device."""
        if self.opened:
            self._close_interval(None)
        self.opened = False
        self._quick_until_ns = 0
        self._metering.retire()

    def tell(self, fault: SensorFault, **more: float) -> None:
        """Tells the daemon of a fault of this device."""
        self._emit(fault_message(self.sensor.name, fault, **more))
