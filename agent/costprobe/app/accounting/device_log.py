"""Energy and busy time of each device between any two recent instants, from its readings."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from costprobe.adapters.sensors.child.energy import (
    BASE_REL_ERR,
    BOARD_REL_ERR,
    COUNTER_STEP_S,
)
from costprobe.core.records import NS_PER_S, Energy, EnergyMethod, Reading
from costprobe.domain.costing.energy_sum import TRUST
from costprobe.domain.costing.idle_power import IdlePower

# A gap of at most this length between readings, in s, is bridged at the rate of adjacent readings.
GAP_S = 3.0
MAX_READINGS = 50_000
# A window that is closed late is as long as two windows, and is billed later.
SPARE_NS = 600 * NS_PER_S
PCT = 100
GAP_PERIODS = 1.5


def longest_gap_s(every_s: float) -> float:
    """Return the longest gap that counts as covered, in s, by the time between samples.

    A device is unknown before its first sample, at most a period after the start.
    """
    return max(GAP_S, GAP_PERIODS * every_s)


@dataclass(frozen=True, slots=True)
class _Interval:
    """The summed fields of a reading; None if unknown."""

    start_ns: int
    end_ns: int
    energy_j: float | None
    busy_s: float | None
    by_pid_s: dict[int, float] | None
    method: EnergyMethod | None = None
    suspect: bool | None = None


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
        self._keep_ns = int(2 * longest_window_s * NS_PER_S) + SPARE_NS
        self._gap_ns = int(gap_s * NS_PER_S)
        self._readings: dict[str, deque[_Interval]] = {}
        self._idle: dict[str, IdlePower] = {}
        self._lock = Lock()

    def record(self, reading: Reading) -> None:
        """Add a reading; readings of a device come in order."""
        fields = reading.fields
        util_pct, energy_j, power_w = (
            fields.get(name) for name in ("util_pct", "energy_j", "power_w")
        )
        length_s = (reading.end_ns - reading.start_ns) / NS_PER_S
        interval = _Interval(
            reading.start_ns,
            reading.end_ns,
            _number(energy_j),
            None if (pct := _number(util_pct)) is None else pct / PCT * length_s,
            None if reading.busy_by_pid_s is None else dict(reading.busy_by_pid_s),
            next((trust for trust in TRUST if trust == fields.get("energy_method")), None),
            fields.get("energy_suspect") is True if "energy_suspect" in fields else None,
        )
        with self._lock:
            readings = self._readings.setdefault(reading.device, deque(maxlen=MAX_READINGS))
            if interval.end_ns <= interval.start_ns or (
                readings and interval.start_ns < readings[-1].end_ns
            ):
                return
            readings.append(interval)
            while readings[0].end_ns < interval.end_ns - self._keep_ns:
                readings.popleft()
            if util_pct == 0 and (watts := _number(power_w)) is not None:
                self._idle.setdefault(reading.device, IdlePower()).add(watts)

    def seen_ns(self, device: str) -> int:
        """Return the CLOCK_MONOTONIC ns of the end of a device's last reading; 0 before the first."""
        with self._lock:
            readings = self._readings.get(device)
            return readings[-1].end_ns if readings else 0

    def idle_power_w(self, device: str) -> float | None:
        """Return the idle power of a device in W; None if unknown."""
        with self._lock:
            idle = self._idle.get(device)
            return None if idle is None else idle.value_w()

    def energy_j(self, device: str, start_ns: int, end_ns: int) -> float | None:
        """Return the joules of a device between two CLOCK_MONOTONIC ns; None if a part is unknown."""
        return self._sum(device, start_ns, end_ns, lambda interval: interval.energy_j)

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
        methods = [interval.method for interval, _ in parts]
        known_methods = [method for method in methods if method is not None]
        if len(known_methods) < len(methods):
            return None
        method = min(known_methods, key=TRUST.index)
        length_s = (end_ns - start_ns) / NS_PER_S
        base, step_s = BOARD_REL_ERR, self._poll_s
        if method in ("counter", "rapl", "modelled"):
            base, step_s = BASE_REL_ERR[method], COUNTER_STEP_S[method]
        suspects = [interval.suspect for interval, _ in parts if interval.suspect is not None]
        suspect = any(suspects) if suspects else None
        return Energy(energy_j, method, base + step_s / length_s, suspect=suspect)

    def busy_s(self, device: str, start_ns: int, end_ns: int) -> float | None:
        """Return the busy seconds between two instants; None if a part is unknown."""
        return self._sum(device, start_ns, end_ns, lambda interval: interval.busy_s)

    def busy_by_pid_s(self, device: str, start_ns: int, end_ns: int) -> dict[int, float] | None:
        """Seconds in which each process kept it busy; None if a part is unknown."""
        by_pid: dict[int, float] = {}
        parts = self._parts(device, start_ns, end_ns)
        if parts is None:
            return None
        for interval, share in parts:
            if interval.by_pid_s is None:
                return None
            for pid, busy_s in interval.by_pid_s.items():
                by_pid[pid] = by_pid.get(pid, 0.0) + busy_s * share
        return by_pid

    def _sum(
        self, device: str, start_ns: int, end_ns: int, value: Callable[[_Interval], float | None]
    ) -> float | None:
        parts = self._parts(device, start_ns, end_ns)
        if parts is None:
            return None
        total = 0.0
        for interval, share in parts:
            amount = value(interval)
            if amount is None:
                return None
            total += amount * share
        return total

    def _parts(
        self, device: str, start_ns: int, end_ns: int
    ) -> list[tuple[_Interval, float]] | None:
        """Return the readings of a window, each with its weight; None if one is missing."""
        if end_ns <= start_ns:
            return []
        with self._lock:
            readings = self._readings.get(device, deque())
            first = bisect_right(
                readings, start_ns - self._gap_ns, key=lambda interval: interval.end_ns
            )
            near = [
                interval
                for interval in islice(readings, first, None)
                if interval.start_ns < end_ns + self._gap_ns
            ]
        parts: list[tuple[_Interval, float]] = []
        covered_ns = 0
        for interval, (since_ns, until_ns) in zip(near, _extents(near, self._gap_ns), strict=True):
            inside_ns = min(until_ns, end_ns) - max(since_ns, start_ns)
            if inside_ns > 0:
                parts.append((interval, inside_ns / (interval.end_ns - interval.start_ns)))
                covered_ns += inside_ns
        return parts if covered_ns == end_ns - start_ns else None


def _extents(near: list[_Interval], gap_ns: int) -> Iterable[tuple[int, int]]:
    """Yield the extent of each reading, including half of each adjacent short gap."""
    for i, interval in enumerate(near):
        since_ns, until_ns = interval.start_ns - gap_ns, interval.end_ns + gap_ns
        if i > 0:
            since_ns = _ends_at_gap_ns(near[i - 1].end_ns, interval.start_ns, gap_ns)[1]
        if i + 1 < len(near):
            until_ns = _ends_at_gap_ns(interval.end_ns, near[i + 1].start_ns, gap_ns)[0]
        yield since_ns, until_ns


def _ends_at_gap_ns(before_ns: int, after_ns: int, gap_ns: int) -> tuple[int, int]:
    """Return where the readings around a gap end and begin: a short gap is divided between them."""
    if after_ns - before_ns > gap_ns:
        return before_ns, after_ns
    middle_ns = (before_ns + after_ns) // 2
    return middle_ns, middle_ns


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
