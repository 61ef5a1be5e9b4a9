"""Time as the parts see it: one clock for measuring, one for the calendar."""

from __future__ import annotations

import time
from typing import Final, Protocol

NS_PER_MS: Final = 1_000_000


class Clock(Protocol):
    """What every part that needs the time is given."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC in ns: the clock that the daemon and its children share."""
        ...

    def time_ns(self) -> int:
        """UTC in ns since 1970: the calendar, which an operator or NTP may step."""
        ...


class SystemClock:
    """The host's own clocks."""

    # Each visit to a device asks nine times: without a call of ours in between.
    monotonic_ns = staticmethod(time.monotonic_ns)
    time_ns = staticmethod(time.time_ns)


def utc_ns(clock: Clock, monotonic_ns: int) -> int:
    """The UTC ns at which a reading of CLOCK_MONOTONIC was taken, by the calendar of now."""
    return clock.time_ns() - (clock.monotonic_ns() - monotonic_ns)


def row_ns(clock: Clock, monotonic_ns: int) -> int:
    """The UTC ns of a row about a reading of CLOCK_MONOTONIC: a whole millisecond.

    No interval of ours is known more finely, VictoriaMetrics keeps milliseconds, and InfluxDB packs
    the times of each field: whole milliseconds halve what a row of `device` takes of its disk
    (bench/fleet.py).
    """
    return utc_ns(clock, monotonic_ns) // NS_PER_MS * NS_PER_MS
