"""The thread of one device: samples it, aggregates rows, answers requests, quarantines it.

Each device has a thread of its own, because a driver call that hangs must not stop the other
devices (ctypes releases the interpreter's lock during a call). Samples and the ends of rows are
on fixed grids, so that a late one delays no other. Samples of an interval become the fields of
the `device` series; the busy time of each process is summed from the driver's shares.

While the daemon watches the device, its samples are sent as they are taken. After a fault of the
device follows another try, a wait, or a new process. The slices of a board, such as MIG instances, come and
go while the child runs; it lists them with each row.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from costprobe.adapters.sensors.child.energy import Metering
from costprobe.adapters.sensors.child.sensor import Sensor
from costprobe.adapters.sensors.messages import (
    Backoff,
    CounterMethod,
    Emit,
    EnergyReading,
    Message,
    Reaction,
    Sample,
    SensorFault,
    SensorSettings,
    Shares,
    fault_message,
)
from costprobe.core.clock import Clock, stopped_s, suspended_ns
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


def _counted(total: str, base: Sample | None, last: Sample | None) -> float | None:
    """The advance of a running total in an interval, if it was read at both ends and did not decrease."""
    if base is None or last is None or last is base:
        return None
    before, after = getattr(base, total), getattr(last, total)
    return None if before is None or after is None or after < before else after - before


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


def busy_by_pid_s(shares: Iterable[Shares]) -> dict[int, float] | None:
    """Seconds in which each process kept the device busy; None if a part is unknown."""
    busy_s: dict[int, float] = {}
    for share in shares:
        if share.util_pct is None:
            return None
        step_s = (share.end_ns - share.start_ns) / NS_PER_S
        for pid, pct in share.util_pct:
            busy_s[pid] = busy_s.get(pid, 0.0) + step_s * pct / 100
    # The cost of uncounted time would be allocated to other processes.
    return busy_s if len(busy_s) <= MAX_PROCESSES else None


# A slice that is gone is looked for again after this time, until its board lists its slices.
SLICE_RETRY_NS: Final = 2 * NS_PER_S


def next_on_grid(start_ns: int, every_ns: int, now_ns: int) -> int:
    """Return the first instant after now on a grid; a late sample is skipped and delays no other."""
    return start_ns + ((now_ns - start_ns) // every_ns + 1) * every_ns


# A question about a watched device waits this long for a sample; if none is due, one is taken.
SAMPLE_WAIT_NS: Final = NS_PER_S


class DriverVisit(NamedTuple):
    """A sequence of driver calls that is in progress: its start in CLOCK_MONOTONIC ns, and its longest time in ns."""

    began_ns: int
    allowed_ns: int


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
        self._clock = clock
        self._emit = emit
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._deadline_ns = int(settings.deadline_s * NS_PER_S)
        self._startup_ns = int(max(settings.startup_s, settings.deadline_s) * NS_PER_S)
        self._start_ns = start_ns
        self._every_ns = int(settings.every_s * NS_PER_S)
        self._row_ns = int(settings.aggregate_s * NS_PER_S)
        # When the next sample is due, and from when on a sample ends the row.
        self._sample_ns = self._row_end_ns = start_ns
        self._retry_ns = clock.monotonic_ns() + int((retry_after_s or 0) * NS_PER_S)
        first_s, max_s = settings.quarantine_first_s, settings.quarantine_max_s
        self._backoff = Backoff(first_s, max_s, reset_after_s=max_s)
        self._suspended_ns = suspended_ns(clock)
        # The next sample starts an interval, and ends none.
        self._fresh = True
        self._metering = Metering(sensor, clock, emit, settings.selftest_s, self._start_scope)
        self._scope: EnergyScope = sensor.energy_scope
        # CLOCK_MONOTONIC ns after the end of the interval before.
        self._closed_ns = 0
        # The slices of a board that were reported.
        self._slice_names: frozenset[str] | None = None
        self._aggregator = Aggregator(sensor.name)
        # CLOCK_MONOTONIC ns up to which the processes' shares were read.
        self._shares_ns = 0
        self._shares: list[Shares] | None = [] if settings.processes else None

    def start(self) -> None:
        """Start the device's thread."""
        threading.Thread(target=self._run, name=self.sensor.name, daemon=True).start()

    def _run(self) -> None:
        while True:
            wait_s = (self.work() - self._clock.monotonic_ns()) / NS_PER_S
            with suppress(queue.Empty):
                command = self._inbox.get(timeout=max(0.0, wait_s))
                if command["cmd"] == "end":
                    self._retire()
                    return
                self.command(command)

    def offer(self, command: Message) -> None:
        """Queue a command for the device; "end" ends its thread. Thread-safe."""
        self._inbox.put(command)

    def work(self) -> int:
        """Do everything that is due; return when there is more to do, in CLOCK_MONOTONIC ns."""
        while True:
            self.step()
            if (wake_ns := self.next_wake_ns()) > self._clock.monotonic_ns():
                return wake_ns

    def next_wake_ns(self) -> int:
        """When `step` has something to do, in CLOCK_MONOTONIC ns."""
        if self.opened:
            return min(self._sample_ns, self._metering.wake_ns)
        return self._retry_ns

    def step(self) -> None:
        """Do what is due next."""
        if self._was_suspended():
            self._begin_again()
        now_ns = self._clock.monotonic_ns()
        if not self.opened:
            if now_ns >= self._retry_ns:
                self._guard(self._open)
        elif now_ns >= self._sample_ns:
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

    def _watch(self, until_ns: int) -> None:
        """Read every metric at every sample until an instant, and now if that is not soon."""
        metering, now_ns = self._metering, self._clock.monotonic_ns()
        is_new = metering.watched_until_ns <= now_ns
        is_rare = self._sample_ns > now_ns + SAMPLE_WAIT_NS
        metering.watched_until_ns = until_ns
        if self.opened and now_ns < until_ns and (is_new or is_rare):
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
        self.visit = DriverVisit(began_ns, allowed_ns)
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
        self._sample_ns = next_on_grid(
            self._start_ns, self._every_ns, self._clock.monotonic_ns() - 1
        )
        # A row holds two samples at least, between which something can be counted.
        self._row_end_ns = next_on_grid(self._start_ns, self._row_ns, self._sample_ns)
        self.opened = True
        self._metering.opened(device)
        self._slice_names = None
        self._emit({"type": "device", "device": asdict(device)})
        self._find_slices()

    def _find_slices(self) -> None:
        """Find the slices of a board, and report them if they changed; a slice has none.

        The main thread keeps their workers.
        """
        if self.sensor.parent or (slices := self.sensor.slices()) is None:
            return
        names = frozenset(sensor.name for sensor in slices)
        if names != self._slice_names:
            self._slice_names = names
            self._emit({"type": "slices", "device": self.sensor.name, "sensors": slices})

    def _sample(self) -> None:
        """Take a sample, and do everything that is due with it."""
        due_ns = self._sample_ns
        closes = due_ns >= self._row_end_ns
        is_watched = due_ns < self._metering.watched_until_ns
        sample = self._read(quick=not (closes or self._fresh or is_watched))
        if self._fresh:
            self._aggregator.restart(sample.counter or self._series_counter())
            self._fresh = False
            self._scope = self.sensor.energy_scope
            self._shares_ns = sample.t_ns
            if self._shares is not None:
                self._shares.clear()
        self._aggregator.add(sample)
        self._metering.record(sample)
        if is_watched or self._shares is not None:
            self._read_shares(sample.t_ns)
        if closes:
            self._close_interval(sample.counter or self._series_counter())
            self._row_end_ns = next_on_grid(self._start_ns, self._row_ns, due_ns)
        if is_watched:
            self._emit(self._metering.message())
        if closes:
            # A board may be repartitioned at any time.
            self._find_slices()
        self.sampled_ns = now_ns = self._clock.monotonic_ns()
        self._sample_ns = next_on_grid(self._start_ns, self._every_ns, max(due_ns, now_ns))

    def _read(self, *, quick: bool = False) -> Sample:
        """Read a sample, without its impossible values."""
        return self.sensor.bounds.sample(self.sensor.sample(quick=quick))

    def _was_suspended(self) -> bool:
        before_ns, self._suspended_ns = self._suspended_ns, suspended_ns(self._clock)
        return stopped_s((self._suspended_ns - before_ns) / NS_PER_S, 0.0) > 0

    def _begin_again(self) -> None:
        """Discover the device again: what its counters advanced meanwhile is of no interval and no window."""
        self._retire()
        self._metering.resumed()
        self.sensor.bounds.restart()
        self._retry_ns = self._clock.monotonic_ns()

    def _read_shares(self, t_ns: int) -> None:
        """Read how busy each process kept the device since the last call."""
        since_ns, self._shares_ns = self._shares_ns, t_ns
        util_pct = self.sensor.util_by_pid_pct(since_ns)
        share = Shares(since_ns, t_ns, None if util_pct is None else [*util_pct.items()])
        self._metering.readings.shares.append(share)
        if self._shares is not None:
            self._shares.append(share)

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
        if any(t_ns >= self._closed_ns for t_ns in self.sensor.bounds.suspect_ns):
            suspect = True
        self._closed_ns = now_ns + 1
        reading = self._aggregator.close(counter, suspect=suspect, scope=scope)
        if reading is not None and self._shares is not None:
            reading = replace(reading, busy_by_pid_s=busy_by_pid_s(self._shares))
            self._shares.clear()
        if reading is not None:
            self._emit({"type": "reading", **asdict(reading)})

    def _react(self, fault: SensorFault) -> None:
        """Try again after a fault; one that recurs is waited for longer."""
        self._retire()
        name, now_ns = self.sensor.name, self._clock.monotonic_ns()
        if fault.reaction is Reaction.GONE:
            self._retry_ns = now_ns + SLICE_RETRY_NS
            return
        wait_s = self._backoff.next_s(now_ns)
        self._retry_ns = now_ns + int(wait_s * NS_PER_S)
        if fault.reaction is Reaction.RESTART:
            self._emit(fault_message(name, fault))
            self._emit({"type": "restart", "device": name})
        else:
            quarantined = fault.with_reaction(Reaction.QUARANTINE)
            self._emit(fault_message(name, quarantined, retry_after_s=wait_s))

    def _retire(self) -> None:
        """End the interval early: nothing is counted across the time without the device."""
        if self.opened:
            self._close_interval(None)
        self.opened = False
        self._metering.retire()
