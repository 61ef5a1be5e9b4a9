"""What the sensors said of each device lately: energy and busy time between any two instants."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from agent.model import NS_PER_S, Reading
from agent.telemetry.energy import IdlePower

# A hole between readings that is no longer, in s, is bridged at the rate of the reading beside it.
HOLE_S = 3.0
MAX_READINGS = 50_000
# A window that was closed late is as long as two, and billed a while later.
SPARE_NS = 600 * NS_PER_S
PCT = 100


@dataclass(frozen=True, slots=True)
class _Kept:
    """What of a reading is of use here; None where it does not tell."""

    start_ns: int
    end_ns: int
    energy_j: float | None
    busy_s: float | None
    by_pid_s: dict[int, float] | None


class DeviceLog:
    """The readings of the last windows, and what they add up to between two instants.

    Within a reading energy and busy time are taken to flow evenly, so that windows that follow
    each other add up to the readings: what an edge gives one too little it gives the other too
    much. Between readings nothing is guessed but across a hole of some seconds, as at the start of
    the sensors: a longer one makes the answer unknown.

    Args:
        longest_window_s: For twice as long are readings kept, in s, and some minutes more.
        hole_s: The longest hole that is bridged, in s.
    """

    def __init__(self, longest_window_s: float, hole_s: float = HOLE_S) -> None:
        self._keep_ns = int(2 * longest_window_s * NS_PER_S) + SPARE_NS
        self._hole_ns = int(hole_s * NS_PER_S)
        self._readings: dict[str, deque[_Kept]] = {}
        self._idle: dict[str, IdlePower] = {}
        self._lock = Lock()

    def take(self, reading: Reading) -> None:
        """Keeps a reading; readings of a device come in order."""
        fields = reading.fields
        util_pct, energy_j, power_w = (
            fields.get(name) for name in ("util_pct", "energy_j", "power_w")
        )
        length_s = (reading.end_ns - reading.start_ns) / NS_PER_S
        kept = _Kept(
            reading.start_ns,
            reading.end_ns,
            _number(energy_j),
            None if (pct := _number(util_pct)) is None else pct / PCT * length_s,
            None if reading.busy_by_pid_s is None else dict(reading.busy_by_pid_s),
        )
        with self._lock:
            readings = self._readings.setdefault(reading.device, deque(maxlen=MAX_READINGS))
            if kept.end_ns <= kept.start_ns or (readings and kept.start_ns < readings[-1].end_ns):
                return
            readings.append(kept)
            while readings[0].end_ns < kept.end_ns - self._keep_ns:
                readings.popleft()
            if util_pct == 0 and (watts := _number(power_w)) is not None:
                self._idle.setdefault(reading.device, IdlePower()).add(watts)

    def seen_ns(self, device: str) -> int:
        """CLOCK_MONOTONIC ns until which a device is known; 0 before its first reading."""
        with self._lock:
            readings = self._readings.get(device)
            return readings[-1].end_ns if readings else 0

    def idle_power_w(self, device: str) -> float | None:
        """What a device draws while nothing runs on it, in W; None until it is learnt."""
        with self._lock:
            idle = self._idle.get(device)
            return None if idle is None else idle.value_w()

    def energy_j(self, device: str, start_ns: int, end_ns: int) -> float | None:
        """Joules that a device drew between two CLOCK_MONOTONIC ns; None where not all is known."""
        return self._sum(device, start_ns, end_ns, lambda kept: kept.energy_j)

    def busy_s(self, device: str, start_ns: int, end_ns: int) -> float | None:
        """Seconds in which it computed between two instants; None where not all is known."""
        return self._sum(device, start_ns, end_ns, lambda kept: kept.busy_s)

    def busy_by_pid_s(self, device: str, start_ns: int, end_ns: int) -> dict[int, float] | None:
        """Seconds in which each process kept it busy; None where not all is known."""
        found: dict[int, float] = {}
        parts = self._parts(device, start_ns, end_ns)
        if parts is None:
            return None
        for kept, share in parts:
            if kept.by_pid_s is None:
                return None
            for pid, busy_s in kept.by_pid_s.items():
                found[pid] = found.get(pid, 0.0) + busy_s * share
        return found

    def _sum(
        self, device: str, start_ns: int, end_ns: int, value: Callable[[_Kept], float | None]
    ) -> float | None:
        parts = self._parts(device, start_ns, end_ns)
        if parts is None:
            return None
        total = 0.0
        for kept, share in parts:
            amount = value(kept)
            if amount is None:
                return None
            total += amount * share
        return total

    def _parts(self, device: str, start_ns: int, end_ns: int) -> list[tuple[_Kept, float]] | None:
        """The readings of a window, each with how often it counts; None where one is missing."""
        if end_ns <= start_ns:
            return []
        with self._lock:
            readings = self._readings.get(device, deque())
            first = bisect_right(readings, start_ns - self._hole_ns, key=lambda kept: kept.end_ns)
            near = [
                kept
                for kept in islice(readings, first, None)
                if kept.start_ns < end_ns + self._hole_ns
            ]
        parts: list[tuple[_Kept, float]] = []
        covered_ns = 0
        for kept, (since_ns, until_ns) in zip(near, _extents(near, self._hole_ns), strict=True):
            inside_ns = min(until_ns, end_ns) - max(since_ns, start_ns)
            if inside_ns > 0:
                parts.append((kept, inside_ns / (kept.end_ns - kept.start_ns)))
                covered_ns += inside_ns
        return parts if covered_ns == end_ns - start_ns else None


def _extents(near: list[_Kept], hole_ns: int) -> Iterable[tuple[int, int]]:
    """From when until when each reading speaks: into short holes beside it, half of each."""
    for i, kept in enumerate(near):
        since_ns, until_ns = kept.start_ns - hole_ns, kept.end_ns + hole_ns
        if i > 0:
            since_ns = _meeting_ns(near[i - 1].end_ns, kept.start_ns, hole_ns)[1]
        if i + 1 < len(near):
            until_ns = _meeting_ns(kept.end_ns, near[i + 1].start_ns, hole_ns)[0]
        yield since_ns, until_ns


def _meeting_ns(before_ns: int, after_ns: int, hole_ns: int) -> tuple[int, int]:
    """How far the reading before a hole reaches, and the one after it."""
    if after_ns - before_ns > hole_ns:
        return before_ns, after_ns
    middle_ns = (before_ns + after_ns) // 2
    return middle_ns, middle_ns


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
