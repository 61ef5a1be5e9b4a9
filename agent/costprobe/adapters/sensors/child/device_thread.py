"""The thread of one device: samples it, aggregates rows, answers requests, quarantines it.

Each device has a thread of its own, because a driver call that hangs must not stop the other
devices (ctypes releases the interpreter's lock during a call). Samples and the ends of rows are
on fixed grids, so that a late one delays no other. Samples of an interval become the fields of
the `device` series; the busy time of each process is summed from the driver's shares.

While the daemon watches the device, its samples are sent as they are taken. After a fault of the
device follows another try, a wait, or the end of its thread. The slices of a board, such as MIG instances, come
and go while the child runs; their threads follow.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from costprobe.adapters.sensors.child.energy import Metering
from costprobe.adapters.sensors.child.sensor import Sensor
from costprobe.adapters.sensors.messages import (
    Backoff,
    CounterMethod,
    Emit,
    EnergyReading,
    Message,
    Quarantined,
    Reaction,
    Sample,
    SensorFault,
    SensorSettings,
    Shares,
    fault_message,
    reading_message,
)
from costprobe.core.clock import Clock, suspended_ns
from costprobe.core.records import (
    NS_PER_S,
    EnergyScope,
    FieldValue,
    Reading,
    present,
)

# Power is not integrated across a longer gap between two samples, in s.
MAX_BRIDGED_S = 30.0
# A counter reading that follows its sample this closely is of the same instant: the counter itself
# lags by up to 100 ms.
TOGETHER_NS: Final = 10_000_000


# The fields that are means over the samples.
MEANS: Final = ("power_w", "util_pct", "mem_util_pct", "sm_clock_mhz", "mem_clock_mhz")


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def _advance(before: float | None, after: float | None) -> float | None:
    """The advance of a running total; None where it is absent or decreased."""
    return None if before is None or after is None or after < before else after - before


def _counted(total: str, base: Sample | None, last: Sample | None) -> float | None:
    """The advance of a running total in an interval, if it was read at both ends."""
    if base is None or last is None or last is base:
        return None
    return _advance(getattr(base, total), getattr(last, total))


def _time_counted(total: str, base: Sample | None, last: Sample | None) -> float | None:
    """The same of a total of seconds, which may be published late: no more than the time passed."""
    counted_s = _counted(total, base, last)
    if counted_s is None or base is None or last is None:
        return None
    return min(counted_s, (last.t_ns - base.t_ns) / NS_PER_S)


def _since_j(counter: EnergyReading, sample: Sample) -> float:
    """The energy in J from a counter reading to a sample by its power; negative if that is earlier."""
    gap_ns = sample.t_ns - counter.t_ns
    return 0.0 if abs(gap_ns) < TOGETHER_NS else (sample.power_w or 0.0) * gap_ns / NS_PER_S


class Aggregator:
    """Aggregates one device; intervals follow each other without a gap.

    An interval runs from the last sample of the one before (or from its own first) to its own
    last. Each instant is counted in one interval, by the counter or by polls: the energies of all
    intervals add up to the counter's advance, whichever of them were polled.

    Args:
        device: Name of the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._samples: list[Sample] = []
        # The last sample of the interval before, and the last full one.
        self._before: Sample | None = None
        self._full: Sample | None = None
        # The last counter reading that an interval was counted by, and the energy that intervals
        # have counted beyond it: negative if they have not counted up to it.
        self._counter: EnergyReading | None = None
        self._beyond_j = 0.0
        self._method: CounterMethod = "counter"

    def restart(self, counter: EnergyReading | None) -> None:
        """Start again after a pause, so that nothing is counted across it.

        Args:
            counter: The energy counter now, if there is one.
        """
        self._samples = []
        self._before = self._full = None
        self._counter, self._beyond_j = counter, 0.0
        if counter is not None:
            self._method = counter.method

    def add(self, *samples: Sample) -> None:
        """Add the next samples."""
        self._samples += samples

    def close(
        self,
        counter: EnergyReading | None = None,
        *,
        suspect: bool | None = None,
        scope: EnergyScope = "device",
    ) -> Reading | None:
        """End the interval and return its reading; None if it has no sample.

        Args:
            counter: The energy counter at the end, if there is one.
            suspect: Whether the device's energy sensors contradict each other; None if unknown.
            scope: What power and energy cover.
        """
        samples = self._samples
        if not samples:
            return None
        first, last = self._before or samples[0], samples[-1]
        columns = dict(zip(Sample._fields, zip(*samples, strict=True), strict=True))
        energy_j, energy_method = self._energy(counter)
        # Quick samples have no running totals: these advance from one full sample to the next.
        full = [sample for sample in samples if not sample.is_quick]
        base = self._full or (full[0] if full else None)
        self._full = full[-1] if full else self._full
        fields: dict[str, FieldValue | None] = {
            **{name: _mean(columns[name]) for name in MEANS},
            "power_max_w": max(
                _known(columns["power_w"] + columns["power_instant_w"]), default=None
            ),
            "energy_j": energy_j,
            "energy_method": energy_method,
            "energy_suspect": suspect,
            "energy_scope": None if scope == "device" else scope,
            # Memory consumes power: a counter that does not advance counts nothing.
            "dram_energy_j": _counted("dram_j", base, self._full) or None,
            "mem_used_bytes": last.mem_used_bytes,
            "mem_total_bytes": last.mem_total_bytes,
            "temp_c": max(_known(columns["temp_c"]), default=None),
            "power_limit_w": last.power_limit_w,
            "throttle_power_s": _time_counted("throttle_power_s", base, self._full),
            "throttle_thermal_s": _time_counted("throttle_thermal_s", base, self._full),
            "ecc_uncorrected": last.ecc_uncorrected,
            "processes": None if last.pids is None else len(last.pids),
        }
        reading = Reading(self._device, first.t_ns, last.t_ns, present(fields))
        self._before, self._samples = last, []
        return reading

    def _energy(self, counter: EnergyReading | None) -> tuple[float | None, str | None]:
        """The energy of the interval in J, by the counter if it advanced, else by polls."""
        last = self._samples[-1]
        if counter is not None:
            self._method = counter.method
        if self._before is None and self._counter is not None:
            # Energy before the first sample is not part of any interval.
            self._beyond_j = _since_j(self._counter, self._samples[0])
        base = self._counter
        if counter is not None and (base is None or counter.energy_j < base.energy_j):
            # The first reading, or the first after a reset: polls count up to the last sample.
            self._counter, self._beyond_j = counter, _since_j(counter, last)
        elif counter is not None and base is not None and counter.energy_j > base.energy_j:
            # A reading may be up to 0.2 s older than the last sample, or later after a stall.
            since_j = _since_j(counter, last)
            energy_j = counter.energy_j - base.energy_j - self._beyond_j + since_j
            if energy_j > 0:
                self._counter, self._beyond_j = counter, since_j
                return energy_j, counter.method
        # A counter that did not advance has not been updated yet, or is defective: power is never 0 W.
        polled_j = self._polled_j()
        if self._counter is base:
            self._beyond_j += polled_j
        if polled_j:
            # The power of such a sample is computed from the counter, so polling is not a second method.
            return polled_j, "poll" if self._method == "counter" else self._method
        return None, None

    def _polled_j(self) -> float:
        """The energy of the interval in J by its powers, with the trapezoidal rule."""
        before = [] if self._before is None else [self._before]
        return sum(
            (after.t_ns - first.t_ns) / NS_PER_S * (first.power_w + after.power_w) / 2
            for first, after in pairwise([*before, *self._samples])
            if first.power_w is not None
            and after.power_w is not None
            and after.t_ns - first.t_ns <= MAX_BRIDGED_S * NS_PER_S
        )


MAX_PROCESSES: Final = 256


class ProcessTime:
    """Busy seconds by process and interval; unknown if one sample of the interval is unknown."""

    def __init__(self) -> None:
        self._busy_s: dict[int, float] = {}
        self._is_known = False

    def restart(self) -> None:
        """Start again; earlier time counts for no process."""
        self._busy_s, self._is_known = {}, True

    def add(self, step_s: float, util_pct: Mapping[int, float] | None) -> None:
        """Add the shares of a time.

        Args:
            step_s: Its length in s.
            util_pct: Share of it by process, in percent; None if unknown.
        """
        if util_pct is None:
            self._is_known = False
            return
        for pid, pct in util_pct.items():
            if pid in self._busy_s or len(self._busy_s) < MAX_PROCESSES:
                self._busy_s[pid] = self._busy_s.get(pid, 0.0) + step_s * pct / 100
            else:
                # The cost of uncounted time would be allocated to other processes.
                self._is_known = False

    def close(self) -> dict[int, float] | None:
        """End the interval; return its seconds by process, None if unknown."""
        busy_s = self._busy_s if self._is_known else None
        self._busy_s, self._is_known = {}, True
        return busy_s


REINITS_MAX: Final = 3
# A slice that cannot be read may be about to be destroyed: its board lists its slices again, and the
# slice is tried this often, after this time, before it counts as failed.
SLICE_RETRIES_MAX: Final = 3
SLICE_RETRY_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True, slots=True)
class NextStep:
    """What follows a fault.

    Attributes:
        retry_ns: When the device is discovered again, in CLOCK_MONOTONIC ns; None for never.
        messages: For the main thread.
        is_gone: The device does not exist any more.
    """

    retry_ns: int | None
    messages: tuple[Message, ...] = ()
    is_gone: bool = False


class Recovery:
    """Decides on the next step after each fault of a device; a fault that recurs is waited for longer.

    Args:
        sensor: Reads the device.
        settings: The shortest and the longest quarantine.
        clock: CLOCK_MONOTONIC.
    """

    def __init__(self, sensor: Sensor, settings: SensorSettings, clock: Clock) -> None:
        self._sensor = sensor
        self._clock = clock
        first_s, max_s = settings.quarantine_first_s, settings.quarantine_max_s
        self._backoff = Backoff(first_s, max_s, reset_after_s=max_s)
        self._reinits = 0
        self._slice_retries = 0

    def worked(self) -> None:
        """Note that the device was sampled."""
        self._reinits = self._slice_retries = 0

    def after(self, fault: SensorFault) -> NextStep:
        """Return what follows a fault that ended sampling."""
        name, now_ns = self._sensor.name, self._clock.monotonic_ns()
        if fault.reaction is Reaction.REINIT and self._reinits < REINITS_MAX:
            self._reinits += 1
            return NextStep(now_ns)
        if fault.reaction is Reaction.GONE:
            return NextStep(None, ({"type": "gone", "sensor": self._sensor},), is_gone=True)
        if fault.reaction in (Reaction.REINIT, Reaction.RESTART):
            restart = SensorFault(fault.call, fault.code, Reaction.RESTART, fault.detail)
            messages = (fault_message(name, restart), {"type": "restart", "device": name})
            return NextStep(None, messages)
        if self._sensor.parent and self._slice_retries < SLICE_RETRIES_MAX:
            self._slice_retries += 1
            relist = {"type": "relist", "device": self._sensor.parent}
            return NextStep(now_ns + SLICE_RETRY_NS, (relist,))
        wait_s = self._backoff.next_s(now_ns)
        quarantined = SensorFault(fault.call, fault.code, Reaction.QUARANTINE, fault.detail)
        message = fault_message(name, quarantined, retry_after_s=wait_s)
        return NextStep(now_ns + int(wait_s * NS_PER_S), (message,))


def next_on_grid(start_ns: int, every_ns: int, now_ns: int) -> int:
    """Return the first instant after now on a grid; a late sample is skipped and delays no other."""
    return start_ns + ((now_ns - start_ns) // every_ns + 1) * every_ns


class SampleGrid:
    """When a device is sampled, and which samples end a row.

    Args:
        start_ns: Origin of both grids, in CLOCK_MONOTONIC ns.
        every_ns: Interval of samples.
        row_ns: Length of rows.

    Attributes:
        sample_ns: When the next sample is due.
    """

    def __init__(self, start_ns: int, every_ns: int, row_ns: int) -> None:
        self._start_ns = start_ns
        self._every_ns = every_ns
        self._row_ns = row_ns
        self.sample_ns = start_ns
        self._row_end_ns = start_ns + row_ns

    @property
    def closes_row(self) -> bool:
        """Whether the next sample ends a row."""
        return self.sample_ns >= self._row_end_ns

    def begin(self, now_ns: int) -> None:
        """Skip what was due before now."""
        if now_ns > self._start_ns:
            self.sample_ns = next_on_grid(self._start_ns, self._every_ns, now_ns)
            # A row holds two samples at least, between which something can be counted.
            self._row_end_ns = next_on_grid(self._start_ns, self._row_ns, self.sample_ns)

    def advance(self, now_ns: int) -> None:
        """Move on from the sample that was due and has been taken."""
        if self.closes_row:
            self._row_end_ns = next_on_grid(self._start_ns, self._row_ns, self.sample_ns)
        self.sample_ns = next_on_grid(self._start_ns, self._every_ns, max(self.sample_ns, now_ns))


# A board may be repartitioned at any time.
SLICES_EVERY_NS: Final = 60 * NS_PER_S


class SliceWatch:
    """Finds the slices of a board, and reports them to the main thread, which keeps their workers.

    Args:
        sensor: Reads the board.
        clock: CLOCK_MONOTONIC.
        emit: Takes messages for the main thread.
    """

    def __init__(self, sensor: Sensor, clock: Clock, emit: Emit) -> None:
        self._sensor = sensor
        self._clock = clock
        self._emit = emit
        self._found_ns = 0
        self._names: frozenset[str] | None = None

    def is_due(self, now_ns: int) -> bool:
        """Return whether the slices were found long ago.

        Args:
            now_ns: CLOCK_MONOTONIC ns.
        """
        return now_ns - self._found_ns >= SLICES_EVERY_NS

    def forget(self) -> None:
        """Report the slices after the next `find`, even if they are the same."""
        self._names = None

    def find(self) -> None:
        """Find the slices, and report them if they changed; a slice has none.

        Raises:
            SensorFault: The driver failed.
        """
        self._found_ns = self._clock.monotonic_ns()
        if self._sensor.parent or (slices := self._sensor.slices()) is None:
            return
        names = frozenset(sensor.name for sensor in slices)
        if names != self._names:
            self._names = names
            self._emit({"type": "slices", "device": self._sensor.name, "sensors": slices})


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
        self._metering = Metering(sensor, clock, emit, settings.selftest_s, self._start_scope)
        self._scope: EnergyScope = sensor.energy_scope
        # CLOCK_MONOTONIC ns after the end of the interval before.
        self._closed_ns = 0
        self._slices = SliceWatch(sensor, clock, emit)
        self._aggregator = Aggregator(sensor.name)
        # CLOCK_MONOTONIC ns up to which the processes' shares were read.
        self._shares_ns = 0
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
            return self._clock.monotonic_ns() + NS_PER_S
        if self.opened:
            return min(self._grid.sample_ns, self._metering.wake_ns)
        return self._retry_ns

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

    def command(self, message: Message) -> None:
        """Execute a command of the daemon that concerns this device."""
        match message["cmd"]:
            case "mark" if self.opened:
                self._metering.mark()
            case "watch":
                self._watch(int(message["until_ns"]))
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
        metering = self._metering
        is_new = metering.watched_until_ns <= self._clock.monotonic_ns() < until_ns
        metering.watched_until_ns = until_ns
        if is_new and self.opened:
            self._guard(self._sample_between)

    def _sample_between(self) -> None:
        """Take a sample that is part of no row."""
        sample = self._read()
        self._metering.readings.samples.append(sample._replace(counter=None))
        self._read_shares(sample.t_ns)
        self._emit(self._metering.message())

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
            for impossible in self.sensor.bounds.take_faults():
                self._emit(fault_message(self.sensor.name, impossible))
            self.visit = None
            self.settled = True

    def _open(self) -> None:
        device = self.sensor.discover()
        self._fresh = True
        self._grid.begin(self._clock.monotonic_ns())
        self.opened = True
        self._metering.opened(device)
        self._slices.forget()
        self._emit({"type": "device", "device": asdict(device)})
        self._slices.find()

    def _sample(self) -> None:
        """Take a sample, and do everything that is due with it."""
        due_ns, closes = self._grid.sample_ns, self._grid.closes_row
        is_watched = due_ns < self._metering.watched_until_ns
        sample = self._read(quick=not (closes or self._fresh or is_watched))
        if self._was_suspended():
            # What the counters advanced meanwhile is not of this interval, nor of any window.
            self._close_interval(None)
            self._fresh = True
            self._metering.resumed()
        if self._fresh:
            self._aggregator.restart(sample.counter or self._series_counter())
            self._fresh = False
            self._scope = self.sensor.energy_scope
            self._shares_ns = sample.t_ns
            if self._process_time is not None:
                self._process_time.restart()
        self._aggregator.add(sample)
        self._metering.record(sample)
        if is_watched or self._process_time is not None:
            self._read_shares(sample.t_ns)
        if closes:
            self._close_interval(sample.counter or self._series_counter())
        if is_watched:
            self._emit(self._metering.message())
        if self._slices.is_due(due_ns):
            self._slices.find()
        self._recovery.worked()
        self.sampled_ns = now_ns = self._clock.monotonic_ns()
        self._grid.advance(now_ns)

    def _read(self, *, quick: bool = False) -> Sample:
        """Read a sample, without its impossible values."""
        return self.sensor.bounds.sample(self.sensor.sample(quick=quick))

    def _was_suspended(self) -> bool:
        before_ns, self._suspended_ns = self._suspended_ns, suspended_ns(self._clock)
        return self._suspended_ns - before_ns > SUSPENSION_NS

    def _read_shares(self, t_ns: int) -> None:
        """Read how busy each process kept the device since the last call."""
        since_ns, self._shares_ns = self._shares_ns, t_ns
        util_pct = self.sensor.util_by_pid_pct(since_ns)
        pairs = None if util_pct is None else [*util_pct.items()]
        self._metering.readings.shares.append(Shares(since_ns, t_ns, pairs))
        if self._process_time is not None:
            self._process_time.add((t_ns - since_ns) / NS_PER_S, util_pct)

    def _start_scope(self, counter: EnergyReading) -> None:
        """Start again with power and energy of another scope than so far."""
        self._close_interval(counter)
        self._fresh = True

    def _series_counter(self) -> EnergyReading | None:
        """The energy counter for the series; a slice's is its board's, and is in its board's row."""
        return None if self._metering.is_slice else self._metering.read_counter()

    def _close_interval(self, counter: EnergyReading | None) -> None:
        scope = "device" if self._metering.is_slice else self._scope
        now_ns = self._clock.monotonic_ns()
        suspect = self._metering.readings.suspect
        if self.sensor.bounds.is_suspect(self._closed_ns, now_ns):
            suspect = True
        self._closed_ns = now_ns + 1
        reading = self._aggregator.close(counter, suspect=suspect, scope=scope)
        if reading is not None and self._process_time is not None:
            reading = replace(reading, busy_by_pid_s=self._process_time.close())
        if reading is not None:
            self._emit(reading_message(reading))

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


class WorkerPool:
    """One worker for each device; one thread changes it, and others read it.

    Args:
        settings: What the daemon asks for.
        quarantined: Devices not to access at first.
        clock: The host's clocks.
        emit: Takes the messages of the workers.

    Attributes:
        workers: The workers by the names of their devices.
    """

    def __init__(
        self,
        settings: SensorSettings,
        quarantined: Sequence[Quarantined],
        clock: Clock,
        emit: Emit,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self._retry_after_s = {entry.device: entry.retry_after_s for entry in quarantined}
        # Rows end at multiples of their length since 1970 UTC, as the daemon's jobs begin.
        rows_ns = int(settings.aggregate_s * NS_PER_S)
        self._grid_ns = clock.monotonic_ns() - clock.time_ns() % rows_ns
        self._workers: dict[str, DeviceWorker] = {}
        self.workers: Mapping[str, DeviceWorker] = MappingProxyType(self._workers)
        # Names of the slices of each board.
        self._slices: dict[str, set[str]] = {}

    def start(self, sensors: Sequence[Sensor]) -> None:
        """Start a worker for each device that has none, and end those that these replace."""
        if not all(sensor.is_fallback for sensor in sensors):
            for name, worker in [*self._workers.items()]:
                if worker.sensor.is_fallback:
                    del self._workers[name]
                    worker.offer({"cmd": "end"})
        for sensor in sensors:
            if sensor.name not in self._workers:
                worker = DeviceWorker(
                    sensor,
                    self._settings,
                    self._clock,
                    self._emit,
                    self._grid_ns,
                    self._retry_after_s.pop(sensor.name, None),
                )
                self._workers[sensor.name] = worker
                worker.start()

    def keep_slices(self, board: str, sensors: Sequence[Sensor]) -> Message:
        """Have workers for exactly these slices of a board; return the message that names them."""
        names = {sensor.name for sensor in sensors}
        for name in self._slices.get(board, set()) - names:
            if (worker := self._workers.pop(name, None)) is not None:
                worker.offer({"cmd": "end"})
        self._slices[board] = names
        self.start(sensors)
        return {"type": "slices", "device": board, "names": sorted(names)}

    def drop_slice(self, sensor: Sensor) -> None:
        """Drop the worker of a destroyed slice; its board reports whether another took its place."""
        worker = self._workers.get(sensor.name)
        if worker is not None and worker.sensor is sensor:
            del self._workers[sensor.name]
            self.relist(sensor.parent)

    def relist(self, board: str) -> None:
        """Have a board report its slices now."""
        if (worker := self._workers.get(board)) is not None:
            worker.offer({"cmd": "slices"})
