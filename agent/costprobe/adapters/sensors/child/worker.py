"""The work for one device: sample it, answer requests about it, quarantine it after a fault.

Each device has a thread of its own, because a driver call that hangs must not stop the other
devices (ctypes releases the interpreter's lock during a call).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from costprobe.adapters.sensors.child.aggregate import Aggregator
from costprobe.adapters.sensors.child.metering import Metering
from costprobe.adapters.sensors.child.pending import PendingRequests
from costprobe.adapters.sensors.child.process_time import ProcessTime
from costprobe.adapters.sensors.child.recovery import Recovery
from costprobe.adapters.sensors.child.sample_grid import SampleGrid
from costprobe.adapters.sensors.child.sensor import Sensor
from costprobe.adapters.sensors.child.slice_watch import SliceWatch
from costprobe.adapters.sensors.protocol.activity import ActivityLog
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.adapters.sensors.protocol.messages import (
    Message,
    SensorSettings,
    device_message,
    reading_message,
)
from costprobe.adapters.sensors.protocol.sample import EnergyReading, Sample
from costprobe.core.clock import Clock, suspended_ns
from costprobe.core.records import NS_PER_S, EnergyScope

Emit = Callable[[Message], None]

INBOX_MAX: Final = 64
# A shorter difference of the clocks is none.
SUSPENSION_NS: Final = NS_PER_S // 2


@dataclass(frozen=True, slots=True)
class DriverVisit:
    """A sequence of driver calls that is in progress, in CLOCK_MONOTONIC ns."""

    began_ns: int
    deadline_ns: int


class DeviceWorker:
    """Samples one device.

    Args:
        sensor: Reads the device.
        settings: Periods and deadlines.
        clock: CLOCK_MONOTONIC.
        emit: Takes messages for the main thread; must not block.
        start_ns: Origin of the grid of samples and rows.
        retry_after_s: Initial time without access to the device, in s.

    Attributes:
        visit: The driver calls in progress; None while there are none.
        sampled_ns: CLOCK_MONOTONIC ns of the last sample; None before the first.
        opened: The device was discovered and is not quarantined.
        settled: The first attempt to discover the device ended, or is postponed.
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
        self.visit: DriverVisit | None = None
        self.sampled_ns: int | None = None
        self.opened = False
        self.settled = retry_after_s is not None
        # The device no longer exists: its thread ends.
        self._is_gone = False
        self._clock = clock
        self._emit = emit
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._deadline_ns = int(settings.deadline_s * NS_PER_S)
        self._startup_ns = int(max(settings.startup_s, settings.deadline_s) * NS_PER_S)
        every_ns = int(settings.every_s * NS_PER_S)
        self._grid = SampleGrid(start_ns, every_ns, int(settings.aggregate_s * NS_PER_S))
        self._retry_ns = clock.monotonic_ns() + int((retry_after_s or 0) * NS_PER_S)
        self._recovery = Recovery(sensor, settings, clock)
        self._suspended_ns = suspended_ns(clock)
        # The device is not discovered again.
        self._ended = False
        # The next sample starts an interval, and ends none.
        self._fresh = True
        self._metering = Metering(
            sensor, clock, emit, every_ns, settings.selftest_s, self._start_scope
        )
        self._scope: EnergyScope = sensor.energy_scope
        self._slices = SliceWatch(sensor, clock, emit)
        self._activity = ActivityLog(every_ns)
        self._aggregator = Aggregator(sensor.name)
        self._requests = PendingRequests(
            self._metering, self._activity, self._read_busy_pids, clock, every_ns
        )
        self._watched_until_ns = 0
        self._process_time = ProcessTime() if settings.processes else None

    def start(self) -> None:
        """Start the device's thread."""
        threading.Thread(target=self._run, name=self.sensor.name, daemon=True).start()

    def _run(self) -> None:
        while not self._is_gone:
            wait_s = (self.work() - self._clock.monotonic_ns()) / NS_PER_S
            try:
                self.command(self._inbox.get(timeout=max(0.0, wait_s)))
            except queue.Empty:
                continue

    def offer(self, command: Message) -> bool:
        """Queue a command for the device; return False if the queue is full. Thread-safe."""
        if self._inbox.qsize() >= INBOX_MAX:
            return False
        self._inbox.put(command)
        return True

    def work(self) -> int:
        """Do everything that is due; return when there is more to do, in CLOCK_MONOTONIC ns."""
        while True:
            self.step()
            if (wake_ns := self.next_wake_ns()) > self._clock.monotonic_ns():
                return wake_ns

    def next_wake_ns(self) -> int:
        """When `step` has something to do, in CLOCK_MONOTONIC ns."""
        if self._ended:
            wake_ns = self._clock.monotonic_ns() + NS_PER_S
        elif self.opened:
            wake_ns = min(self._grid.sample_ns, self._metering.wake_ns)
        else:
            wake_ns = self._retry_ns
        return min(wake_ns, self._requests.give_up_ns)

    def step(self) -> None:
        """Do what is due next."""
        now_ns = self._clock.monotonic_ns()
        if not self.opened:
            if now_ns >= self._retry_ns and not self._ended:
                self._guard(self._open)
        elif now_ns >= self._grid.sample_ns:
            self._guard(self._sample)
        elif (visit := self._metering.due(now_ns)) is not None:
            self._guard(visit)
        if self._requests:
            self._answer()

    def command(self, message: Message) -> None:
        """Execute a command of the daemon that concerns this device."""
        match message["cmd"]:
            case "mark" if self.opened:
                self._metering.mark()
            case "watch":
                self._watch(int(message["until_ns"]))
            case "energy" | "activity":
                self._requests.add(message)
                self._answer()
            case "flush":
                self._close_interval(None)
                self._emit({"type": "flushed", "device": self.sensor.name})
            case "slices" if self.opened:
                self._slices.forget()
                self._guard(self._slices.find)
            case "end":
                self._retire()
                self._ended = self._is_gone = True

    def _watch(self, until_ns: int) -> None:
        """Read every metric at every sample until an instant, and once now."""
        is_new = self._watched_until_ns <= self._clock.monotonic_ns() < until_ns
        self._watched_until_ns = until_ns
        if is_new and self.opened:
            self._guard(lambda: self._activity.add(self.sensor.sample()))

    def _guard(self, action: Callable[[], Any]) -> None:
        """Run driver calls under a deadline and react to their faults; the only place that does."""
        began_ns = self._clock.monotonic_ns()
        allowed_ns = self._deadline_ns if self.opened else self._startup_ns
        self.visit = DriverVisit(began_ns, began_ns + allowed_ns)
        try:
            action()
        except SensorFault as fault:
            self._react(fault)
        except Exception as error:  # noqa: BLE001 - an error of one device must not end its thread
            detail = f"{type(error).__name__}: {error}"
            self._react(SensorFault(self.sensor.call, "FAILED", Reaction.QUARANTINE, detail))
        finally:
            self.visit = None
            self.settled = True

    def _open(self) -> None:
        device = self.sensor.discover()
        self._fresh = True
        self._grid.begin(self._clock.monotonic_ns())
        self.opened = True
        self._metering.opened(device)
        self._slices.forget()
        self._emit({"type": "device", "device": device_message(device)})
        self._slices.find()

    def _sample(self) -> None:
        """Take a sample, and do everything that is due with it."""
        due_ns, closes = self._grid.sample_ns, self._grid.closes_row
        is_full = closes or self._fresh or bool(self._requests) or due_ns < self._watched_until_ns
        sample = self.sensor.sample(quick=not is_full)
        if self._was_suspended():
            # What the counters advanced meanwhile is not of this interval, nor of any window.
            self._close_interval(None)
            self._fresh = True
            self._metering.resumed()
        if self._fresh:
            self._aggregator.restart(sample.counter or self._series_counter())
            self._fresh = False
            self._scope = self.sensor.energy_scope
            if self._process_time is not None:
                self._process_time.restart(sample.t_ns)
        self._record(sample)
        if closes:
            self._close_interval(sample.counter or self._series_counter())
        if self._slices.is_due(due_ns):
            self._slices.find()
        self._recovery.worked()
        self.sampled_ns = now_ns = self._clock.monotonic_ns()
        self._grid.advance(now_ns)

    def _was_suspended(self) -> bool:
        before_ns, self._suspended_ns = self._suspended_ns, suspended_ns(self._clock)
        return self._suspended_ns - before_ns > SUSPENSION_NS

    def _record(self, sample: Sample) -> None:
        self._aggregator.add(sample)
        self._activity.add(sample)
        self._metering.record(sample)
        if self._process_time is not None:
            shares = self.sensor.util_by_pid_pct(self._process_time.seen_ns)
            self._process_time.add(sample.t_ns, shares)

    def _start_scope(self, counter: EnergyReading) -> None:
        """Start again with power and energy of another scope than so far."""
        self._close_interval(counter)
        self._fresh = True

    def _series_counter(self) -> EnergyReading | None:
        """The energy counter for the series; a slice's is its board's, and is in its board's row."""
        return None if self._metering.is_slice else self._metering.read_counter()

    def _close_interval(self, counter: EnergyReading | None) -> None:
        scope = "device" if self._metering.is_slice else self._scope
        suspect = self._metering.history.suspect
        reading = self._aggregator.close(counter, suspect=suspect, scope=scope)
        if reading is not None and self._process_time is not None:
            reading = replace(reading, busy_by_pid_s=self._process_time.close())
        if reading is not None:
            self._emit(reading_message(reading))

    def _answer(self) -> None:
        for answer in self._requests.answers(opened=self.opened):
            self._emit(answer)

    def _read_busy_pids(self, since_ns: int) -> frozenset[int] | None:
        pid_sets: list[frozenset[int]] = []

        def read() -> None:
            shares = self.sensor.util_by_pid_pct(since_ns)
            if shares is not None:
                pid_sets.append(frozenset(pid for pid, pct in shares.items() if pct > 0))

        if self.opened:
            self._guard(read)
        return pid_sets[0] if pid_sets else None

    def _react(self, fault: SensorFault) -> None:
        self._retire()
        step = self._recovery.after(fault)
        self._ended |= step.retry_ns is None
        self._is_gone |= step.is_gone
        self._retry_ns = step.retry_ns or 0
        for message in step.messages:
            self._emit(message)

    def _retire(self) -> None:
        """End the interval early: nothing is counted across the time without the device."""
        if self.opened:
            self._close_interval(None)
        self.opened = False
        self._metering.retire()
