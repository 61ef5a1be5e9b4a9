"""Energy and busy time of each device between two recent instants, and the times of its probes.

The energy of a probe's window is computed from the readings of a watched device, by the most
accurate method for them; that of a service's window from the rows of the device.
Energies of several devices or intervals are summed as one. The times in which probes of models
used each device give the cost of probing.

Some boards' power sensor sees a quarter of the time, which adds to the error of an energy.
Source: Yang, Adamek and Armour, "Part-time Power Measurements: nvidia-smi's Lack of Attention"
(arXiv 2312.02741): A100 and H100 publish every 100 ms the mean of 25 ms. A load whose passes last
a multiple or a simple fraction of 100 ms shows the sensor the same part of each pass, however
long the window is.

GPUs on one module each report the energy of the whole module. NVML does not report which GPUs
share a module, but their counters are the same: over an hour the sums of two modules differ by
more than one counter may lag behind the other.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, pairwise, takewhile
from math import fsum
from threading import Condition, Lock
from typing import Final, Generic, Literal, Protocol, TypeVar

from costprobe.adapters.probe_child.results import ProbeFault, ProbeResult
from costprobe.adapters.sensors.energy import (
    BASE_REL_ERR,
    BOARD_REL_ERR,
    COUNTER_STEP_S,
    POWER_LAG_S,
    IdlePower,
    mean_power_w,
    mean_rel_err,
)
from costprobe.adapters.sensors.messages import (
    UNKNOWN,
    Absent,
    Activity,
    EnergyReading,
    Message,
    Shares,
    WatchedReadings,
    activity_between,
)
from costprobe.adapters.sensors.supervisor import SensorSupervisor
from costprobe.core.clock import Clock
from costprobe.core.records import (
    NS_PER_S,
    Device,
    Energy,
    EnergyMethod,
    EnergyScope,
    Point,
    Reading,
)

# From the least to the most accurate: a sum has the method of its least accurate part.
TRUST: Final[tuple[EnergyMethod, ...]] = ("modelled", "rapl", "poll", "samples", "counter")
# What energies cover beyond their devices, the widest first: a sum covers what its parts do.
WIDER: Final[tuple[EnergyScope, ...]] = ("parent", "module")


def energy_sum(energies: Sequence[Energy]) -> Energy:
    """Return the sum of energies, with the least accurate of their methods.

    Their errors are assumed to be correlated, as those of boards of one model may be.

    Args:
        energies: At least one.
    """
    if len(energies) == 1:
        return energies[0]
    total_j = sum(energy.energy_j for energy in energies)
    idle_w = [energy.idle_power_w for energy in energies if energy.idle_power_w is not None]
    scopes = {energy.scope for energy in energies}
    known_suspect = [energy.suspect for energy in energies if energy.suspect is not None]
    error_j = sum(energy.rel_err * energy.energy_j for energy in energies)
    return Energy(
        energy_j=total_j,
        method=min((energy.method for energy in energies), key=TRUST.index),
        rel_err=error_j / total_j if total_j else max(energy.rel_err for energy in energies),
        idle_power_w=sum(idle_w) if len(idle_w) == len(energies) else None,
        scope=next((scope for scope in WIDER if scope in scopes), "device"),
        suspect=any(known_suspect) if known_suspect else None,
    )


ANSWER_TIMEOUT_S: Final = 5.0
LOOK_EVERY_S: Final = 0.25
# Longer than the time between two samples, which end what is asked for.
SPARE_WATCH_NS: Final = 3 * NS_PER_S
MIN_WINDOW_S: Final = 5.0

# Readings this long before the window still count: power rises within some tens of ms (Yang et al.
# 2023), and the counter lags by its step.
RISE_S: Final = 0.25
# Readings must span this share of the window, and miss at most this share of it.
MIN_SPAN_SHARE: Final = 0.5
MAX_GAP_SHARE: Final = 0.5
MIN_POWERS: Final = 3


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


def from_counter(readings: Iterable[EnergyReading], window: SteadyWindow) -> Energy | Absent:
    """Energy by a running total: mean power between two readings, times the window's length.

    The readings are the outermost of the steady time after its rise, so that the power between
    them is the window's and the counter's step has the least weight. Uncertainty: the step over the
    time between the readings, plus the sensor's own.

    Args:
        readings: In order of time.
        window: The window.
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
    return Energy(used_j / span_s * window.length_s, method, rel_err)


def from_powers(
    powers: Iterable[tuple[int, float]], window: SteadyWindow, method: Literal["samples", "poll"]
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
    return Energy(mean_w * window.length_s, method, gap_share + BOARD_REL_ERR + noise)


def window_energy(readings: WatchedReadings, window: SteadyWindow) -> Energy | Absent:
    """Energy in a window: by the counter, by buffered samples, by polls, else absent.

    A counter that disagrees with the power is not corrected, because either may be wrong: its
    energy is marked as suspect, and its uncertainty grows by the disagreement.

    Args:
        readings: Of the device, while it was watched.
        window: At least 5 s long.
    """
    if window.length_s < MIN_WINDOW_S:
        return Absent(f"the window lasted {window.length_s:.2f} s, and needs {MIN_WINDOW_S:g}")
    by_counter = found = from_counter(readings.counter, window)
    if isinstance(by_counter, Energy):
        rel_err = by_counter.rel_err + (readings.disagreement if readings.suspect else 0.0)
        found = replace(by_counter, rel_err=rel_err, suspect=readings.suspect)
    if isinstance(found, Absent):
        found = from_powers(readings.buffered, window, "samples")
    if isinstance(found, Absent):
        found = from_powers(readings.powers, window, "poll")
    if isinstance(found, Absent):
        reasons = [by_counter.reason] if readings.counter and isinstance(by_counter, Absent) else []
        return Absent("; ".join([*reasons, found.reason]))
    is_suspect = any(
        window.steady_start_ns <= t_ns <= window.steady_end_ns for t_ns in readings.suspect_ns
    )
    return replace(
        found,
        idle_power_w=readings.idle_power_w,
        scope=readings.scope,
        suspect=True if is_suspect else found.suspect,
    )


class DeviceWindows:
    """Energy and conditions of the devices in windows that are watched.

    Args:
        sensor: The sensor child's supervisor.
        clock: CLOCK_MONOTONIC.
    """

    def __init__(self, sensor: SensorSupervisor, clock: Clock) -> None:
        self._sensor = sensor
        self._clock = clock
        self._readings: dict[str, WatchedReadings] = {}
        self._marked_ns: dict[str, int] = {}
        self._watched_until_ns: dict[str, int] = {}
        self._arrived = Condition()
        sensor.stream_to(self.take)

    def take(self, message: Message) -> None:
        """Take the readings of a message of the child.

        Raises:
            KeyError, TypeError: It is no such message.
        """
        device = str(message["device"])
        with self._arrived:
            if message["is_first"] or device not in self._readings:
                self._readings[device] = WatchedReadings()
            self._readings[device].add(message)
            self._arrived.notify_all()

    def watch(self, device: str, until_ns: int) -> bool:
        """Read every metric of a device at every sample, until a CLOCK_MONOTONIC ns.

        Returns:
            False if the sensor child cannot be reached.
        """
        self._watched_until_ns[device] = until_ns
        return self._sensor.watch(device, until_ns)

    def is_read(self, device: str) -> bool:
        """Return whether readings of a device come: it is not quarantined, and the sensors run."""
        return self._sensor.is_available(device)

    def mark(self, device: str) -> bool:
        """Read the energy of a device now, at an edge of a window; return False if that fails."""
        self._marked_ns[device] = self._clock.monotonic_ns()
        return self._sensor.mark(device)

    def energy(
        self,
        device: str,
        start_ns: int,
        end_ns: int,
        steady_start_ns: int,
        steady_end_ns: int,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Energy | Absent:
        """Return the energy of a device in a window that was watched, or why it is unknown.

        Args:
            device: Its name.
            start_ns: CLOCK_MONOTONIC ns of the window's start.
            end_ns: CLOCK_MONOTONIC ns of its end.
            steady_start_ns: Start of the time in which the load was the window's.
            steady_end_ns: End of that time.
            timeout_s: How long to wait for the readings after the window.
        """
        if not self._is_reached(device, end_ns):
            return Absent("the sensor process is not running")
        window = SteadyWindow(start_ns, end_ns, steady_start_ns, steady_end_ns)
        with self._arrived:
            return window_energy(self._read_to(device, end_ns, timeout_s), window)

    def activity(
        self,
        device: str,
        start_ns: int,
        end_ns: int,
        own_pids: Collection[int],
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Activity:
        """Return a device's conditions in a window: other processes, throttling, clock, memory.

        Args:
            device: Its name.
            start_ns: CLOCK_MONOTONIC ns of the window's start.
            end_ns: CLOCK_MONOTONIC ns of its end.
            own_pids: Processes that belong to the measurement.
            timeout_s: How long to wait for the readings after the window.
        """
        if not self._is_reached(device, end_ns):
            return UNKNOWN
        with self._arrived:
            readings = self._read_to(device, end_ns, timeout_s)
            shares = util_by_pid_pct(readings.shares, start_ns, end_ns)
            every_ns = int(self._sensor.every_s * NS_PER_S)
            return activity_between(readings.samples, start_ns, end_ns, own_pids, shares, every_ns)

    def _is_reached(self, device: str, end_ns: int) -> bool:
        """Have the child send what it read up to an instant; return False if it cannot be reached."""
        until_ns = max(end_ns, self._clock.monotonic_ns()) + SPARE_WATCH_NS
        until_ns = max(until_ns, self._watched_until_ns.get(device, 0))
        return self._sensor.watch(device, until_ns)

    def _read_to(self, device: str, end_ns: int, timeout_s: float) -> WatchedReadings:
        """Wait for the readings up to an instant, and of the last edge; return those there are."""

        def is_complete() -> bool:
            readings = self._readings.get(device, WatchedReadings())
            seen_ns = readings.samples[-1].t_ns if readings.samples else 0
            is_read = seen_ns >= end_ns and readings.edge_ns >= self._marked_ns.get(device, 0)
            return is_read or not self.is_read(device)

        # A child that ends, or is stopped, sends nothing that would end a wait.
        for _ in range(max(1, round(timeout_s / LOOK_EVERY_S))):
            if self._arrived.wait_for(is_complete, min(LOOK_EVERY_S, timeout_s)):
                break
        return self._readings.get(device, WatchedReadings())


def util_by_pid_pct(
    shares: Iterable[Shares], start_ns: int, end_ns: int
) -> dict[int, float] | None:
    """Return the share of a window in which each process kept the device busy, in percent.

    None where a part of it is unknown.
    """
    parts = [
        (min(share.end_ns, end_ns) - max(share.start_ns, start_ns), share.util_pct)
        for share in shares
        if share.start_ns < end_ns and share.end_ns > start_ns
    ]
    by_pid: dict[int, float] = {}
    total_ns = sum(length_ns for length_ns, _ in parts)
    for length_ns, util_pct in parts:
        if util_pct is None:
            return None
        for pid, pct in util_pct:
            by_pid[pid] = by_pid.get(pid, 0.0) + pct * length_ns / total_ns
    return by_pid if parts else None


# A gap of at most this length between readings, in s, is bridged at the rate of adjacent readings.
GAP_S: Final = 3.0
MAX_READINGS: Final = 50_000
# A window that is closed late is as long as two windows, and is billed later.
SPARE_NS: Final = 600 * NS_PER_S
PCT: Final = 100
GAP_PERIODS: Final = 1.5


def longest_gap_s(every_s: float) -> float:
    """Return the longest gap that counts as covered, in s, by the time between samples.

    A device is unknown before its first sample, at most a period after the start.
    """
    return max(GAP_S, GAP_PERIODS * every_s)


class Spanning(Protocol):
    """Anything with a start and an end, in CLOCK_MONOTONIC ns."""

    @property
    def start_ns(self) -> int:
        """Its start."""
        ...

    @property
    def end_ns(self) -> int:
        """Its end."""
        ...


T = TypeVar("T", bound=Spanning)


class Recent(Generic[T]):
    """What was last on each device, in order of time; thread-safe.

    Args:
        keep_ns: How long it is kept, in ns.
    """

    def __init__(self, keep_ns: int) -> None:
        self._keep_ns = keep_ns
        self._kept: dict[str, deque[T]] = {}
        self._lock = Lock()

    def add(self, device: str, *items: T) -> None:
        """Add what came next on a device."""
        with self._lock:
            kept = self._kept.setdefault(device, deque(maxlen=MAX_READINGS))
            kept.extend(items)
            while kept[0].end_ns < kept[-1].end_ns - self._keep_ns:
                kept.popleft()

    def between(self, device: str, start_ns: int, end_ns: int) -> list[T]:
        """Return what ended after an instant and started before another."""
        with self._lock:
            kept = self._kept.get(device, deque())
            first = bisect_right(kept, start_ns, key=lambda item: item.end_ns)
            after = islice(kept, first, None)
            return list(takewhile(lambda item: item.start_ns < end_ns, after))

    def first_ns(self, device: str) -> int | None:
        """Return the start of the oldest that is kept; None without any."""
        with self._lock:
            kept = self._kept.get(device)
            return kept[0].start_ns if kept else None

    def seen_ns(self, device: str) -> int:
        """Return the end of the newest; 0 without any."""
        with self._lock:
            kept = self._kept.get(device)
            return kept[-1].end_ns if kept else 0


class DeviceLog:
    """The readings of the last windows, and their sums between two instants.

    Energy and busy time are spread evenly within a reading, so that windows that follow each other
    add up to the readings. A gap of some seconds between readings, as at the start of the sensors,
    is bridged; a longer one makes the sum unknown.

    Args:
        longest_window_s: Readings are kept for twice as long, in s, and ten minutes more.
        gap_s: The longest gap that is bridged, in s.
        poll_s: Time between two polls of the power, in s.
    """

    def __init__(self, longest_window_s: float, gap_s: float = GAP_S, poll_s: float = 1.0) -> None:
        self._poll_s = poll_s
        self._gap_ns = int(gap_s * NS_PER_S)
        self._readings: Recent[Reading] = Recent(int(2 * longest_window_s * NS_PER_S) + SPARE_NS)
        self._idle: dict[str, IdlePower] = {}

    def record(self, reading: Reading) -> None:
        """Add a reading; readings of a device come in order."""
        if not self.seen_ns(reading.device) <= reading.start_ns < reading.end_ns:
            return
        self._readings.add(reading.device, reading)
        watts = _number(reading, "power_w")
        if reading.fields.get("util_pct") == 0 and watts is not None:
            self._idle.setdefault(reading.device, IdlePower()).add(watts)

    def seen_ns(self, device: str) -> int:
        """Return the CLOCK_MONOTONIC ns of the end of a device's last reading; 0 before the first."""
        return self._readings.seen_ns(device)

    def idle_power_w(self, device: str) -> float | None:
        """Return the idle power of a device in W; None if unknown."""
        idle = self._idle.get(device)
        return None if idle is None else idle.value_w()

    def energy_j(self, device: str, start_ns: int, end_ns: int) -> float | None:
        """Return the joules of a device between two CLOCK_MONOTONIC ns; None if a part is unknown."""
        return self._sum(device, start_ns, end_ns, lambda reading: _number(reading, "energy_j"))

    def energy(self, device: str, start_ns: int, end_ns: int) -> Energy | None:
        """Energy of a device between two instants, with its method and uncertainty.

        Uncertainty: the sensor's own, and the share of the window that its last step may miss: of a
        counter its lag, of polled power a reading.

        Returns:
            None if a part or its method is unknown.
        """
        energy_j = self.energy_j(device, start_ns, end_ns)
        parts = self._parts(device, start_ns, end_ns)
        if energy_j is None or not parts:
            return None
        methods = {reading.fields.get("energy_method") for reading, _ in parts}
        if not methods <= set(TRUST):
            return None
        method = next(trust for trust in TRUST if trust in methods)
        length_s = (end_ns - start_ns) / NS_PER_S
        base, step_s = BOARD_REL_ERR, self._poll_s
        if method in ("counter", "rapl", "modelled"):
            base, step_s = BASE_REL_ERR[method], COUNTER_STEP_S[method]
        suspects = [
            part.fields["energy_suspect"] for part, _ in parts if "energy_suspect" in part.fields
        ]
        suspect = any(each is True for each in suspects) if suspects else None
        return Energy(energy_j, method, base + step_s / length_s, suspect=suspect)

    def busy_s(self, device: str, start_ns: int, end_ns: int) -> float | None:
        """Return the busy seconds between two instants; None if a part is unknown."""
        return self._sum(device, start_ns, end_ns, _busy_s)

    def busy_by_pid_s(self, device: str, start_ns: int, end_ns: int) -> dict[int, float] | None:
        """Seconds in which each process kept it busy; None if a part is unknown."""
        by_pid: dict[int, float] = {}
        parts = self._parts(device, start_ns, end_ns)
        if parts is None:
            return None
        for reading, share in parts:
            if reading.busy_by_pid_s is None:
                return None
            for pid, busy_s in reading.busy_by_pid_s.items():
                by_pid[pid] = by_pid.get(pid, 0.0) + busy_s * share
        return by_pid

    def _sum(
        self, device: str, start_ns: int, end_ns: int, value: Callable[[Reading], float | None]
    ) -> float | None:
        parts = self._parts(device, start_ns, end_ns)
        if parts is None:
            return None
        total = 0.0
        for reading, share in parts:
            amount = value(reading)
            if amount is None:
                return None
            total += amount * share
        return total

    def _parts(self, device: str, start_ns: int, end_ns: int) -> list[tuple[Reading, float]] | None:
        """Return the readings of a window, each with its weight; None if one is missing.

        A reading stands for its own time, with half of each adjacent short gap.
        """
        if end_ns <= start_ns:
            return []
        gap_ns = self._gap_ns
        near = self._readings.between(device, start_ns - gap_ns, end_ns + gap_ns)
        parts: list[tuple[Reading, float]] = []
        covered_ns = 0
        for before, reading, after in zip([None, *near], near, [*near[1:], None], strict=False):
            since_ns, until_ns = reading.start_ns - gap_ns, reading.end_ns + gap_ns
            if before is not None and before.end_ns >= since_ns:
                since_ns = (before.end_ns + reading.start_ns) // 2
            if after is not None and after.start_ns <= until_ns:
                until_ns = (reading.end_ns + after.start_ns) // 2
            inside_ns = min(until_ns, end_ns) - max(since_ns, start_ns)
            if inside_ns > 0:
                parts.append((reading, inside_ns / (reading.end_ns - reading.start_ns)))
                covered_ns += inside_ns
        return parts if covered_ns == end_ns - start_ns else None


def _number(reading: Reading, name: str) -> float | None:
    value = reading.fields.get(name)
    return float(value) if isinstance(value, int | float) else None


def _busy_s(reading: Reading) -> float | None:
    pct = _number(reading, "util_pct")
    return None if pct is None else pct / PCT * ((reading.end_ns - reading.start_ns) / NS_PER_S)


# Runs are kept for longer than any window.
KEEP_RUNS_NS: Final = 7 * 86_400 * NS_PER_S


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """A probe run on a device.

    Attributes:
        start_ns: CLOCK_MONOTONIC ns at which it started to use the device.
        end_ns: CLOCK_MONOTONIC ns at which it stopped.
        pids: Its processes.
    """

    start_ns: int
    end_ns: int
    pids: tuple[int, ...] = ()


class ProbeRuns:
    """The last runs on each device; thread-safe."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._runs: Recent[ProbeRun] = Recent(KEEP_RUNS_NS)

    def begin(self, device: str, now_ns: int) -> None:
        """Record the start of a run; a device has one at a time."""
        self._open[device] = now_ns

    def end(self, device: str, now_ns: int, outcome: ProbeResult | ProbeFault | None) -> None:
        """Record the end of a run.

        A run starts an interpreter and loads a model before it uses the device: the device was
        busy for the `busy_s` of its result, up to the end of its steady load. For a failed run
        that is unknown, and its whole duration counts.

        Args:
            device: Name of the device.
            now_ns: CLOCK_MONOTONIC ns.
            outcome: Its outcome; None if that is unknown.
        """
        start_ns = self._open.pop(device, now_ns)
        run = ProbeRun(start_ns, now_ns)
        if isinstance(outcome, ProbeResult):
            end_ns = min(now_ns, max(outcome.steady_end_ns, start_ns))
            busy_ns = int(outcome.busy_s * NS_PER_S)
            run = ProbeRun(max(start_ns, end_ns - busy_ns), end_ns, outcome.pids)
        self._runs.add(device, run)

    def is_open_before(self, device: str, end_ns: int) -> bool:
        """Return whether a run that started before an instant is still in progress."""
        return self._open.get(device, end_ns) < end_ns

    def between(self, device: str, start_ns: int, end_ns: int) -> Sequence[ProbeRun]:
        """Return the parts of runs that lie between two CLOCK_MONOTONIC ns."""
        return [
            ProbeRun(max(run.start_ns, start_ns), min(run.end_ns, end_ns), run.pids)
            for run in self._runs.between(device, start_ns, end_ns)
        ]


PERIOD_S: Final = 0.1
SEEN_S: Final = 0.025
# The sensor's period is nominal: passes this close to a ratio count as having it.
TOLERANCE: Final = 0.01
# With four or more passes to a common period their phases overlap.
MOST_PASSES: Final = round(PERIOD_S / SEEN_S)
# Mean range of a random walk of n steps with standard deviation 1, over the root of n (Feller 1951).
WALK_RANGE: Final = math.sqrt(8 / math.pi)
# The chips of the A100 and the H100, GA100 and GH100, under the names of their products.
_BOARDS: Final = re.compile(r"\b(?:A100|A800|A30|H100|H800|H200|H20|GH200)(?!\d)")


def with_sampling_error(energy: Energy, device: Device, result: ProbeResult) -> Energy:
    """Return an energy, its uncertainty enlarged by what the device's sensor may not have seen.

    Args:
        energy: Energy of the device in the window.
        device: The device.
        result: Result of the probe that loaded it.
    """
    concurrency = int(result.tags.get("concurrency", "1"))
    if device.is_host or concurrency > 1 or not _BOARDS.search(device.model):
        # Several clients of a server are not in step.
        return energy
    pass_s = result.window_s * result.batch / result.inferences
    unseen = sampling_error(pass_s, result.window_s, result.latency_ms["cv"])
    return replace(energy, rel_err=energy.rel_err + unseen)


def sampling_error(pass_s: float, window_s: float, cv: float) -> float:
    """Return the error that a part-time sensor may add to the mean power of periodic passes.

    If p passes last as long as q periods of the sensor, it sees p x 25 of each 100 ms of a pass, in q
    places. The places move if the ratio is not exact, or if the passes differ in length. The unseen
    rest is taken to draw between nothing and twice the mean, independently around each place.

    Args:
        pass_s: Mean duration of a pass.
        window_s: Duration of the window.
        cv: Coefficient of variation of the duration of a pass.

    Returns:
        A relative error, from 0 to 0.75.
    """
    wandered_s = WALK_RANGE * cv * math.sqrt(window_s * pass_s)
    worst = 0.0
    for passes in range(1, MOST_PASSES):
        periods = max(1, round(passes * pass_s / PERIOD_S))
        mismatch = abs(passes * pass_s / (periods * PERIOD_S) - 1)
        moved_s = max(0.0, mismatch - TOLERANCE) * window_s + wandered_s
        seen_share = passes * (SEEN_S + moved_s) / PERIOD_S
        worst = max(worst, (1 - seen_share) / math.sqrt(periods))
    return worst


# Twice what a module of 1.5 kW draws in the 0.1 s by which a counter lags.
SAME_J: Final = 300.0
# Of less energy two modules at equal power could agree.
LEAST_J: Final = 600_000.0


def shared_modules(rows: Iterable[Point]) -> list[tuple[str, str]]:
    """Return the pairs of devices that report one module's energy.

    Args:
        rows: Rows of `device` as measured, of the same time.
    """
    energies_j: dict[str, dict[int, float]] = {}
    for row in rows:
        energy_j, device = row.fields.get("energy_j"), row.tags.get("device")
        if device and isinstance(energy_j, float) and row.fields.get("energy_scope") == "module":
            energies_j.setdefault(device, {})[row.time_ns] = energy_j
    pairs = []
    for first, other in combinations(sorted(energies_j), 2):
        times_ns = energies_j[first].keys() & energies_j[other].keys()
        totals_j = [fsum(energies_j[device][at] for at in times_ns) for device in (first, other)]
        if min(totals_j) >= LEAST_J and abs(totals_j[0] - totals_j[1]) <= SAME_J:
            pairs.append((first, other))
    return pairs
