"""The host's clocks: CLOCK_MONOTONIC for durations, the wall clock for timestamps."""

from __future__ import annotations

import time
from typing import Final, Protocol

NS_PER_MS: Final = 1_000_000


class Clock(Protocol):
    """The two clocks; an argument of every part that needs the time."""

    def monotonic_ns(self) -> int:
        """Return CLOCK_MONOTONIC in ns, the clock that the daemon and its children share."""
        ...

    def time_ns(self) -> int:
        """Return UTC in ns since 1970: the wall clock, which an operator or NTP may step."""
        ...


class SystemClock:
    """The host's own clocks."""

    # Without a wrapper: each sample of a device reads the clock nine times.
    monotonic_ns = staticmethod(time.monotonic_ns)
    time_ns = staticmethod(time.time_ns)


def utc_ns(clock: Clock, monotonic_ns: int) -> int:
    """Return the UTC ns of a CLOCK_MONOTONIC ns, by the present wall clock."""
    return clock.time_ns() - (clock.monotonic_ns() - monotonic_ns)


def row_ns(clock: Clock, monotonic_ns: int) -> int:
    """Return the UTC ns, in whole milliseconds, of a row measured at a CLOCK_MONOTONIC ns.

    The intervals are not measured more precisely, VictoriaMetrics stores milliseconds, and InfluxDB
    compresses the times of each field: whole milliseconds halve the disk space of a row of
    `device` (bench/fleet.py).
    """
    return whole_ms(utc_ns(clock, monotonic_ns))


def whole_ms(time_ns: int) -> int:
    """Return an instant in ns, rounded down to whole milliseconds."""
    return time_ns // NS_PER_MS * NS_PER_MS
