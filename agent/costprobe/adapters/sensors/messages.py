"""The protocol between the daemon and the sensor child: one JSON object per line.

All times are CLOCK_MONOTONIC ns. The daemon's first line is the settings; then come commands
(`watch`, `mark`, `stop`). The child writes `device`, `slices`, `drivers`, `fault`, `heartbeat`,
`reading`, `samples`, `selftest` and `exit` lines, and one `handshake` once its devices are known. A
closed pipe means stop.

A sample has the metrics of one device; its energy counter has readings of its own. The child sends
both while the daemon watches the device, around a window of a probe. Activity is a
device's conditions in a window: other processes, throttling, clock, temperature, memory. Faults
of sensors are classified by the reaction to them, with the back-off after failures.
"""

from __future__ import annotations

import enum
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from costprobe.core.outside import bounded_object
from costprobe.core.records import (
    NS_PER_S,
    EnergyScope,
    FieldValue,
    Reading,
)

CounterMethod = Literal["counter", "rapl", "modelled"]


class EnergyReading(NamedTuple):
    """A device's running total of energy at an instant.

    Attributes:
        t_ns: CLOCK_MONOTONIC ns, the middle of the call that read it.
        energy_j: Joules since some instant; falls only when the counter was reset.
        method: What counts: the device, RAPL, or a model.
    """

    t_ns: int
    energy_j: float
    method: CounterMethod = "counter"


class Sample(NamedTuple):
    """One sample of a device's metrics; a metric that the device lacks is None.

    Attributes:
        t_ns: CLOCK_MONOTONIC ns at which it was taken.
        power_w: Power in W, averaged over about the last second where the driver does that.
        power_instant_w: Instantaneous power in W, for the maximum.
        util_pct: Share of time in which the device computed, in percent.
        mem_util_pct: Share of time in which its memory was read or written, in percent.
        mem_used_bytes: Memory in use in bytes.
        mem_total_bytes: Memory of the device in bytes.
        temp_c: Temperature in degrees Celsius.
        sm_clock_mhz: Clock of the compute units in MHz.
        mem_clock_mhz: Clock of the memory in MHz.
        power_limit_w: Power limit in force in W, the lowest of all.
        throttle_power_s: Seconds throttled by a power limit, counted since some instant.
        throttle_thermal_s: Seconds throttled by temperature, counted since some instant.
        ecc_uncorrected: Uncorrected memory errors since the driver was loaded.
        pids: Processes that compute on the device.
        counter: The energy counter, if the sample read it.
        dram_j: Joules of the host's memory since some instant; part of no other figure.
        is_quick: Only what changes within a second was read; the rest is None.
    """

    t_ns: int
    power_w: float | None = None
    power_instant_w: float | None = None
    util_pct: float | None = None
    mem_util_pct: float | None = None
    mem_used_bytes: int | None = None
    mem_total_bytes: int | None = None
    temp_c: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    power_limit_w: float | None = None
    throttle_power_s: float | None = None
    throttle_thermal_s: float | None = None
    ecc_uncorrected: int | None = None
    pids: tuple[int, ...] | None = None
    counter: EnergyReading | None = None
    dram_j: float | None = None
    is_quick: bool = False


class Power(NamedTuple):
    """A reading of power: CLOCK_MONOTONIC ns, and W."""

    t_ns: int
    power_w: float


class Shares(NamedTuple):
    """How busy each process kept a device between two CLOCK_MONOTONIC ns.

    Attributes:
        start_ns: The first instant.
        end_ns: The other.
        util_pct: Each process with its share of the time in percent; None if unknown.
    """

    start_ns: int
    end_ns: int
    util_pct: Sequence[tuple[int, float]] | None


# Ten minutes at one sample a second.
SAMPLES_MAX: Final = 600


class WatchedReadings:
    """What was read of a device while it is watched, oldest first, and what is known of its energy.

    Args:
        size: How many samples are kept: as many counter readings, four times as many powers and
            twenty times as many buffered ones.

    Attributes:
        samples: Its samples, without the counter.
        counter: Readings of the energy counter.
        powers: Sampled and polled power.
        buffered: The power that the driver buffered.
        shares: How busy processes kept it.
        edge_ns: When an edge of a window was read last.
        idle_power_w: Idle power; None until it is learned.
        disagreement: Relative difference of counter and power in the last self-test.
        suspect: Whether that is too large; None before the first comparison.
        suspect_ns: When impossible readings of power or energy were discarded.
        scope: What power and energy cover.
    """

    def __init__(self, size: int = SAMPLES_MAX) -> None:
        self.samples: deque[Sample] = deque(maxlen=size)
        self.counter: deque[EnergyReading] = deque(maxlen=size)
        self.powers: deque[Power] = deque(maxlen=4 * size)
        self.buffered: deque[Power] = deque(maxlen=20 * size)
        self.shares: deque[Shares] = deque(maxlen=size)
        self.edge_ns = 0
        self.idle_power_w: float | None = None
        self.disagreement = 0.0
        self.suspect: bool | None = None
        self.suspect_ns: Sequence[int] = ()
        self.scope: EnergyScope = "device"

    def clear(self) -> None:
        """Forget what was read, but not what is known of the energy."""
        for name in _SERIES:
            getattr(self, name).clear()

    def message(self, device: str, *, is_first: bool) -> Message:
        """The message with these readings of a device.

        Args:
            device: Its name.
            is_first: Nothing that was sent before may be joined with these readings.
        """
        series = {name: list(getattr(self, name)) for name in _SERIES}
        state = {name: getattr(self, name) for name in _STATE}
        return {"type": "samples", "device": device, "is_first": is_first, **series, **state}

    def add(self, message: Message) -> None:
        """Add the readings of a message.

        Raises:
            KeyError, TypeError: It is no such message.
        """
        for name, kind in _SERIES.items():
            getattr(self, name).extend([kind(*row) for row in message[name]])
        for name in _STATE:
            setattr(self, name, message[name])


_SERIES: Final[Mapping[str, Callable[..., Any]]] = {
    "samples": Sample,
    "counter": EnergyReading,
    "powers": Power,
    "buffered": Power,
    "shares": Shares,
}
_STATE: Final = ("edge_ns", "idle_power_w", "disagreement", "suspect", "suspect_ns", "scope")


@dataclass(frozen=True, slots=True)
class Absent:
    """The reason why an energy is unknown."""

    reason: str


# A sample within this distance of a short window, in sample intervals, is included.
BRACKET_INTERVALS: Final = 1.5
# Share of a device's time, in percent, from which other processes contend with a probe: the share
# that they take lengthens its passes by about as much, as stolen time on a CPU, which counts from the
# same share on. An idle desktop takes about 1 %.
NEIGHBOUR_PCT: Final = 5.0
# A share of time needs two readings of its counter, and a window two samples of its own.
ENOUGH: Final = 2

# (CLOCK_MONOTONIC ns, value), oldest first.
Series = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Activity:
    """The conditions of a device in a window; each is None if unknown.

    Attributes:
        contended: Whether another process used the device.
        throttled_pct: Share of the time throttled by power or temperature, in percent.
        throttled_power_pct: Share of the time throttled by a power limit, in percent.
        throttled_thermal_pct: Share of the time throttled by temperature, in percent.
        sm_clock_mhz: Mean clock of the compute units over the window's time, in MHz.
        mem_clock_mhz: The same of the memory.
        power_limit_w: Mean power limit in force in W.
        temp_max_c: Highest temperature in degrees Celsius.
        mem_used_pct: Mean share of the device's memory in use, in percent.
        ecc_uncorrected: Uncorrected memory errors at the window's end, since the driver was loaded.
        util_pct: Mean utilization over the window's time, in percent; not a field, because in
            a probe's own window it has no meaning.
        is_open: Whether another process had the device open at the end, busy or not; not a field either.
    """

    contended: bool | None = None
    throttled_pct: float | None = None
    throttled_power_pct: float | None = None
    throttled_thermal_pct: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    power_limit_w: float | None = None
    temp_max_c: float | None = None
    mem_used_pct: float | None = None
    ecc_uncorrected: int | None = None
    util_pct: float | None = None
    is_open: bool | None = None

    def fields(self) -> dict[str, FieldValue | None]:
        """These conditions as fields of the `probe` series."""
        unsaid = {"util_pct", "is_open"}
        return {name: value for name, value in asdict(self).items() if name not in unsaid}

    def without_neighbour(self) -> Activity:
        """The same conditions without the contention, for devices whose other processes belong to the measurement."""
        return replace(self, contended=None)


UNKNOWN: Final = Activity()
# Which of the conditions of several devices is the worst; of the others it is the highest.
_WORST: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "contended": any,
    "sm_clock_mhz": min,
    "mem_clock_mhz": min,
    "power_limit_w": min,
    "ecc_uncorrected": sum,
}


def worst_of(activities: Sequence[Activity]) -> Activity:
    """Return the conditions of a group of devices: the worst of each, as each waits for the slowest.

    Args:
        activities: One for each device, at least one.
    """
    if len(activities) == 1:
        return activities[0]
    worst: dict[str, Any] = {}
    for name in asdict(UNKNOWN).keys() - {"is_open"}:
        values = (getattr(activity, name) for activity in activities)
        if known := [value for value in values if value is not None]:
            worst[name] = _WORST.get(name, max)(known)
    return Activity(**worst)


def activity_between(
    samples: Sequence[Sample],
    start_ns: int,
    end_ns: int,
    own_pids: Collection[int],
    util_pct: Mapping[int, float] | None = None,
    every_ns: int = NS_PER_S,
) -> Activity:
    """The conditions of a device in a window, from its samples.

    Quick samples count for utilization alone. If a window has fewer than two full samples, those
    that bracket it count as well: the last before it and the first after it, each at most one
    and a half sample intervals away.
    A share of throttled time is then that of the time between the bracketing samples, because
    the counters were not read closer to the window; clock and memory are interpolated.

    Other processes count if they kept the device busy for NEIGHBOUR_PCT of the time; if the
    driver does not report that, if one has a context on the device, though it may have been
    idle. Power and temperature limit the
    same clock separately, so that their times are added, up to the whole time.

    Args:
        samples: The last samples of the device, oldest first.
        start_ns: CLOCK_MONOTONIC ns at which the window began.
        end_ns: CLOCK_MONOTONIC ns at which it ended.
        own_pids: Processes that may use the device: the probe's own.
        util_pct: Share of the window in which each process used it, in percent; None if unknown.
        every_ns: Time between the samples in ns.
    """
    beyond_ns = int(BRACKET_INTERVALS * every_ns)
    full_samples = [sample for sample in samples if not sample.is_quick]
    inside, near = _within(full_samples, start_ns, end_ns, beyond_ns)
    _, all_near = _within(samples, start_ns, end_ns, beyond_ns)
    loaded = _while_held(near, own_pids)
    power = _series(near, "throttle_power_s")
    thermal = _series(near, "throttle_thermal_s")
    both = [
        (sample.t_ns, sample.throttle_power_s + sample.throttle_thermal_s)
        for sample in near
        if sample.throttle_power_s is not None and sample.throttle_thermal_s is not None
    ]
    memory = [
        (sample.t_ns, 100 * sample.mem_used_bytes / sample.mem_total_bytes)
        for sample in loaded
        if sample.mem_used_bytes is not None and sample.mem_total_bytes
    ]
    temps_c = [sample.temp_c for sample in loaded if sample.temp_c is not None]
    errors = [s.ecc_uncorrected for s in near if s.ecc_uncorrected is not None]
    return Activity(
        contended=_contended(inside or near, own_pids, util_pct),
        throttled_pct=_advance_pct(both),
        throttled_power_pct=_advance_pct(power),
        throttled_thermal_pct=_advance_pct(thermal),
        sm_clock_mhz=_mean_over(_series(loaded, "sm_clock_mhz"), start_ns, end_ns),
        mem_clock_mhz=_mean_over(_series(loaded, "mem_clock_mhz"), start_ns, end_ns),
        power_limit_w=_mean_over(_series(near, "power_limit_w"), start_ns, end_ns),
        temp_max_c=max(temps_c, default=None),
        mem_used_pct=_mean_over(memory, start_ns, end_ns),
        ecc_uncorrected=errors[-1] if errors else None,
        util_pct=_mean_over(_series(all_near, "util_pct"), start_ns, end_ns),
        is_open=_is_open(inside or near, own_pids),
    )


def _within(
    samples: Iterable[Sample], start_ns: int, end_ns: int, beyond_ns: int
) -> tuple[list[Sample], list[Sample]]:
    """The samples in a window; and for a short one the same with those that bracket it."""
    since_ns, until_ns = start_ns - beyond_ns, end_ns + beyond_ns
    near = [sample for sample in samples if since_ns <= sample.t_ns <= until_ns]
    inside = [sample for sample in near if start_ns <= sample.t_ns <= end_ns]
    if len(inside) >= ENOUGH:
        return inside, inside
    before = [sample for sample in near if sample.t_ns < start_ns][-1:]
    after = [sample for sample in near if sample.t_ns > end_ns][:1]
    return inside, [*before, *inside, *after]


def _is_open(samples: Sequence[Sample], own_pids: Collection[int]) -> bool | None:
    pid_sets = [set(sample.pids) for sample in samples if sample.pids is not None]
    return bool(pid_sets[-1] - set(own_pids)) if pid_sets else None


def _contended(
    samples: Sequence[Sample], own_pids: Collection[int], util_pct: Mapping[int, float] | None
) -> bool | None:
    pid_sets = [sample.pids for sample in samples if sample.pids is not None]
    if not pid_sets:
        return None
    pids = set().union(*pid_sets)
    # In a container with its own process ids the driver reports other ids for the same processes,
    # so that own processes cannot be recognized.
    ours_are_known = not own_pids or bool(pids & set(own_pids))
    if util_pct is None:
        has_others = not pids <= set(own_pids)
    else:
        others_pct = sum(pct for pid, pct in util_pct.items() if pid not in set(own_pids))
        has_others = others_pct >= NEIGHBOUR_PCT
    return has_others if ours_are_known or not has_others else None


def _while_held(samples: list[Sample], own_pids: Collection[int]) -> list[Sample]:
    """The samples during which the measurement used the device, if that is known.

    A sample after a short window is often taken when the probe has ended: its memory is free and
    the clock has dropped, which is not the window's condition.
    """
    own_set = set(own_pids)
    return [sample for sample in samples if own_set & set(sample.pids or ())] or samples


def _series(samples: Sequence[Sample], name: str) -> Series:
    """A metric of the samples over time, without unknown values."""
    values = ((sample.t_ns, getattr(sample, name)) for sample in samples)
    return [(t_ns, value) for t_ns, value in values if value is not None]


def _advance_pct(counted_s: Series) -> float | None:
    """Share of the time by which a counter of seconds advanced, in percent; None if unknown."""
    if len(counted_s) < ENOUGH:
        return None
    (first_ns, first_s), (last_ns, last_s) = counted_s[0], counted_s[-1]
    if last_ns <= first_ns or last_s < first_s:
        return None
    return 100 * min(1.0, (last_s - first_s) / ((last_ns - first_ns) / NS_PER_S))


def _mean_over(series: Series, start_ns: int, end_ns: int) -> float | None:
    """The time-weighted mean in a window: linear between samples, held beyond the outermost."""
    if not series:
        return None
    inside = [(t_ns, value) for t_ns, value in series if start_ns < t_ns < end_ns]
    first = (start_ns, _value_at(series, start_ns))
    if end_ns <= start_ns:
        return first[1]
    points = [first, *inside, (end_ns, _value_at(series, end_ns))]
    area = sum((t1 - t0) * (v0 + v1) / 2 for (t0, v0), (t1, v1) in pairwise(points))
    return area / (end_ns - start_ns)


def _value_at(series: Series, t_ns: int) -> float:
    before = [point for point in series if point[0] <= t_ns]
    after = [point for point in series if point[0] > t_ns]
    if not before or not after:
        return before[-1][1] if before else after[0][1]
    (t0, v0), (t1, v1) = before[-1], after[0]
    return v0 + (v1 - v0) * (t_ns - t0) / (t1 - t0)


class Backoff:
    """Waits that double with each failure and start again after a time without failures.

    Args:
        first_s: Wait after the first failure in s.
        max_s: Longest wait in s.
        reset_after_s: A failure later than this after the end of the last wait, in s, is a
            first one again.
    """

    def __init__(self, first_s: float, max_s: float, reset_after_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._reset_after_s = reset_after_s
        self._over_ns: int | None = None
        self.failures = 0

    def next_s(self, now_ns: int) -> float:
        """Return the wait in s after a failure at this instant (CLOCK_MONOTONIC ns)."""
        good_ns = 0 if self._over_ns is None else now_ns - self._over_ns
        if good_ns > self._reset_after_s * NS_PER_S:
            self.failures = 0
        # 2**62 s exceeds any maximum; the bound prevents an overflow.
        wait_s = min(self._max_s, self._first_s * 2.0 ** min(self.failures, 62))
        self.failures += 1
        self._over_ns = now_ns + int(wait_s * NS_PER_S)
        return wait_s


class Reaction(enum.Enum):
    """Reaction of the sensor child to an error of a driver call."""

    ABSENT = "absent"
    """The device does not support this: do not read it again."""

    TRANSIENT = "transient"
    """Temporary: omit this value and read it again with the next sample."""

    QUARANTINE = "quarantine"
    """The device is gone or unusable: do not access it for some time, then try again."""

    GONE = "gone"
    """The device was removed, as a MIG device that was destroyed: that is no fault."""

    RESTART = "restart"
    """Only a new process can load the library that matches the driver."""

    MODELLED = "modelled"
    """The host has no readable energy sensor: energy is modelled instead."""


class SensorFault(Exception):  # noqa: N818 - a fault of the device, as the protocol calls it
    """A sensor's call failed.

    Attributes:
        call: The driver's function, or the file, that failed.
        code: The vendor's name of the error.
        reaction: Reaction of the sensor child.
        detail: The vendor's message, and a fix for the operator.
    """

    def __init__(self, call: str, code: str, reaction: Reaction, detail: str = "") -> None:
        super().__init__(f"{call}: {code}" + (f": {detail}" if detail else ""))
        self.call = call
        self.code = code
        self.reaction = reaction
        self.detail = detail

    def with_reaction(self, reaction: Reaction) -> SensorFault:
        """The same fault with another reaction."""
        return SensorFault(self.call, self.code, reaction, self.detail)


# The longest line: a handshake with 16 devices takes 4 kB, a reading 1 kB.
LINE_BYTES_MAX: Final = 65536
# Writes of up to this many bytes (PIPE_BUF) to a pipe are atomic.
COMMAND_BYTES_MAX: Final = 4096

Message = Mapping[str, Any]
# Takes a message for another thread, without blocking.
Emit = Callable[[Message], None]

# `json.dumps` constructs an encoder for each message.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSettings:
    """How the sensor child reads this host's devices: the section [telemetry], and what is fixed.

    Attributes:
        every_s: Time between the samples of a device in s.
        aggregate_s: Length of an aggregate in s.
        deadline_s: A driver call that takes longer, in s, counts as hung.
        gpus: Whether to read GPUs.
        cpu: Whether to read the processors; "auto": if no GPU is found.
        cpu_idle_w: Modelled power of all idle processors in W; None for an average processor.
        cpu_max_w: Modelled power of all busy processors in W; None likewise.
        processes: Whether to read how busy each process keeps a device.
        startup_s: Longest discovery of a device in s: without the driver's persistence mode each
            GPU is initialized first.
        report_s: A driver or a device whose discovery takes longer, in s, is reported, and the
            others are read meanwhile.
        known_models: Models of the boards that the store has of this host: a driver that finds none of
            its vendor's fails.
        sysfs_root: Root of the file system that holds /proc and /sys.
        quarantine_first_s: How long a device that failed is not accessed at first, in s.
        quarantine_max_s: How long at most, after doubling each time, in s.
        selftest_s: Time in s for which a GPU's energy counter is compared with its power; 0: never.
    """

    every_s: float
    aggregate_s: float
    gpus: bool
    cpu: bool | Literal["auto"]
    cpu_idle_w: float | None
    cpu_max_w: float | None
    processes: bool
    deadline_s: float = 5.0
    startup_s: float = 60.0
    report_s: float = 5.0
    known_models: Sequence[str] = ()
    sysfs_root: str = "/"
    quarantine_first_s: float = 60.0
    quarantine_max_s: float = 3600.0
    selftest_s: float = 10.0


def encode(message: Message) -> bytes:
    """Encode one line."""
    return _ENCODER.encode(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Decode the object of a line.

    Raises:
        ValueError: It is not a JSON object.
    """
    return bounded_object(line)


def fault_message(device: str | None, fault: SensorFault, **more: float) -> Message:
    """The message of a fault."""
    message: dict[str, Any] = {
        "type": "fault",
        "device": device,
        "call": fault.call,
        "code": fault.code,
        "reaction": fault.reaction.value,
        "detail": fault.detail,
    }
    return {**message, **more}


def parse_reading(message: Message) -> Reading:
    """Parse a reading.

    Raises:
        KeyError, TypeError, ValueError: The message is not a reading.
    """
    start_ns, end_ns = int(message["start_ns"]), int(message["end_ns"])
    busy = message.get("busy_by_pid_s")
    # The keys of a JSON object are text.
    busy = None if busy is None else {int(pid): float(busy_s) for pid, busy_s in busy.items()}
    return Reading(str(message["device"]), start_ns, end_ns, dict(message["fields"]), busy)
