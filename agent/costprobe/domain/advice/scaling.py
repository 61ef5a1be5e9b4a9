"""Devices that start when requests arrive and are released when they are idle: a replay by minute."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.domain.advice.cold_starts import ColdStart
from costprobe.domain.advice.device_history import MINUTES
from costprobe.domain.advice.workload import HourLoad, Minutes

# Share of the requests that may wait for a start where the least number of devices is searched.
WAITING_SHARE_MAX = 0.01
_MINUTE_S = 60.0


@dataclass(slots=True)
class ScaledHour:
    """An hour with devices that are started and released.

    Attributes:
        device_h: Device-hours, starts included.
        requests: Answered requests.
        starts: Starts of a device.
        waiting: Requests that wait for a start.
        wait_s: Sum of their waits.
    """

    device_h: float = 0.0
    requests: float = 0.0
    starts: int = 0
    waiting: float = 0.0
    wait_s: float = 0.0

    @property
    def waiting_share(self) -> float:
        """Share of the requests that wait for a start; 1 if there are starts and no known request."""
        if not self.requests:
            return float(self.starts > 0)
        return min(1.0, self.waiting / self.requests)

    @property
    def wait_mean_s(self) -> float | None:
        """Mean wait of all requests; None without a known request."""
        return self.wait_s / self.requests if self.requests else None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The replay of a workload on devices that are started and released.

    Attributes:
        least: Devices that are never released.
        timeout_s: Time without a request after which a device is released.
        cold_start: Start of a device.
        hours: By hour number since 1970.
    """

    least: int
    timeout_s: float
    cold_start: ColdStart
    hours: Mapping[int, ScaledHour]

    @property
    def per_month(self) -> ScaledHour:
        """Its sums for a month of 730 h."""
        total, months = self.over(self.hours), len(self.hours) / MONTH_H
        return ScaledHour(
            total.device_h / months,
            total.requests / months,
            round(total.starts / months),
            total.waiting / months,
            total.wait_s / months,
        )

    def over(self, numbers: Iterable[int]) -> ScaledHour:
        """Return the sums over hours."""
        total = ScaledHour()
        for number in numbers:
            hour = self.hours[number]
            total.device_h += hour.device_h
            total.requests += hour.requests
            total.starts += hour.starts
            total.waiting += hour.waiting
            total.wait_s += hour.wait_s
        return total


def replayed(
    hours: Mapping[int, HourLoad], needed: Callable[[float], int], least: int, start: ColdStart
) -> Scaling:
    """Replay a workload by minute.

    Device k is used in the minutes that need k devices or more. It is released after an idle time
    as long as its start: an idle device costs as much by then as the start that it avoids. Whatever
    the gaps, this costs at most twice as much as knowing them in advance (ski rental: Karlin,
    Manasse, Rudolph and Sleator, "Competitive snoopy caching", Algorithmica 3, 1988).

    The first request of a start waits for all of it; those that arrive meanwhile, evenly over their
    minute, wait for the rest. There is no other queue: what is needed has free capacity. No device
    is up before the first hour; a gap in the telemetry is not a gap between requests.

    Args:
        hours: By hour number, each known by minute.
        needed: Returns the devices for a load.
        least: Devices that are never released.
        start: Start of a device.
    """
    timeout_s = start.seconds
    scaled: dict[int, ScaledHour] = {}
    idle_s: list[float] = []
    before = None
    for number, minutes in _by_hour(hours):
        hour = scaled[number] = ScaledHour(requests=math.fsum(minutes.requests))
        if before is not None and number != before + 1:
            idle_s = [0.0] * len(idle_s)
        before = number
        up_s = 0.0
        for minute, load in enumerate(minutes.load):
            need = max(1, needed(load)) if minutes.held >> minute & 1 else 0
            idle_s += [math.inf] * (need - len(idle_s))
            up_s += _MINUTE_S * least
            for level in range(least, len(idle_s)):
                if level >= need:
                    up_s += min(_MINUTE_S, max(0.0, timeout_s - idle_s[level]))
                    idle_s[level] += _MINUTE_S
                    continue
                if idle_s[level] > timeout_s:
                    up_s += start.seconds
                    _add_start(hour, minutes.requests[minute], need, start.seconds)
                up_s += _MINUTE_S
                idle_s[level] = 0.0
        hour.device_h = up_s / HOUR_S
    return Scaling(least, timeout_s, start, scaled)


def least_devices(
    hours: Mapping[int, HourLoad], needed: Callable[[float], int], most: int, start: ColdStart
) -> int:
    """Return the fewest devices that must never be released so that few requests wait for a start.

    Args:
        hours: By hour number, each known by minute.
        needed: Returns the devices for a load.
        most: Devices that carry every load; with so many none waits.
        start: Start of a device.
    """

    def is_enough(least: int) -> bool:
        scaling = replayed(hours, needed, least, start)
        return scaling.over(hours).waiting_share <= WAITING_SHARE_MAX

    # The more devices stay, the fewer starts there are.
    return bisect_left(range(most), x=True, key=is_enough)


def is_known_by_minute(hours: Mapping[int, HourLoad]) -> bool:
    """Return whether the requests of all hours are known by minute."""
    return all(hour.minutes is not None for hour in hours.values())


def _by_hour(hours: Mapping[int, HourLoad]) -> Iterator[tuple[int, Minutes]]:
    for number in sorted(hours):
        minutes = hours[number].minutes
        if minutes is not None:
            yield number, minutes


def _add_start(hour: ScaledHour, per_minute: float, need: int, start_s: float) -> None:
    """Add a start of one of the devices that a minute needs, and the requests that wait for it.

    Args:
        hour: The hour.
        per_minute: Requests of the minute, and of those after it.
        need: Devices that the minute needs; each answers the same share.
        start_s: Duration of the start.
    """
    meanwhile = max(0.0, per_minute - 1) * start_s / _MINUTE_S / need
    hour.starts += 1
    hour.waiting += 1 + meanwhile
    hour.wait_s += start_s + meanwhile * start_s / 2


def idle_share(hours: Mapping[int, HourLoad]) -> float:
    """Return the share of the minutes of hours known by minute that are known to be without work."""
    minutes = sum(len(one.load) - one.held.bit_count() for _, one in _by_hour(hours))
    return minutes / (MINUTES * len(hours))
