"""The host's clocks: CLOCK_MONOTONIC for durations, the wall clock for timestamps."""

from __future__ import annotations

import time
from functools import partial
from typing import Final, Protocol

NS_PER_MS: Final = 1_000_000
# A wait that ends later than it should by this, in s, followed a stop of the process (SIGSTOP, a frozen
# control group).
LATE_S: Final = 2.0


class Clock(Protocol):
    """The clocks; an argument of every part that needs the time."""

    def monotonic_ns(self) -> int:
        """Return CLOCK_MONOTONIC in ns, the clock that the daemon and its children share."""
        ...

    def time_ns(self) -> int:
        """Return UTC in ns since 1970: the wall clock, which an operator or NTP may step."""
        ...

    def boottime_ns(self) -> int:
        """Return CLOCK_BOOTTIME in ns: as CLOCK_MONOTONIC, but it advances while the host is suspended."""
        ...


class SystemClock:
    """The host's own clocks."""

    # Without a wrapper: each sample of a device reads the clock nine times.
    monotonic_ns = staticmethod(time.monotonic_ns)
    time_ns = staticmethod(time.time_ns)
    boottime_ns = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME))


def suspended_ns(clock: Clock) -> int:
    """Return how long the host has been suspended since it was booted, in ns."""
    return clock.boottime_ns() - clock.monotonic_ns()


def stopped_s(lasted_s: float, longest_s: float) -> float:
    """Return for how much of a wait this process was stopped, in s; 0.0 if it was not.

    Args:
        lasted_s: How long the wait lasted.
        longest_s: How long it should have lasted at most.
    """
    return lasted_s - longest_s if lasted_s > longest_s + LATE_S else 0.0


def utc_ns(clock: Clock, monotonic_ns: int) -> int:
    """Return the UTC ns of a CLOCK_MONOTONIC ns, by the present wall clock."""
    return clock.time_ns() - (clock.monotonic_ns() - monotonic_ns)


def row_ns(clock: Clock, monotonic_ns: int) -> int:
    """Return the UTC ns, in whole milliseconds, of a row measured at a CLOCK_MONOTONIC ns.

    The intervals are not measured more precisely, VictoriaMetrics stores milliseconds, and InfluxDB
    compresses the times of each field: whole milliseconds halve the disk space of a row of
    `device` (measured for docs/sizing.md).
    """
    return whole_ms(utc_ns(clock, monotonic_ns))


def whole_ms(time_ns: int) -> int:
    """Return an instant in ns, rounded down to whole milliseconds."""
    return time_ns // NS_PER_MS * NS_PER_MS


class JobError(Exception):
    """A job could not do its work; the text states why, and is shown by `costprobe status`."""
