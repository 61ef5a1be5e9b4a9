"""The load of a workload by hour, in devices of the kind that it runs on now.

A load of 0.3 keeps one such device busy for 30 % of the time. Utilization as NVML defines it, the
share of time with a running kernel, is an upper bound of the load: a device at 100 % may serve
more. A workload has a unit, and a device does a number of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache

from costprobe.core.hours import MINUTES, DeviceHistory, Hour
from costprobe.core.periods import HOURS_A_DAY, HOURS_A_WEEK
from costprobe.core.records import natural
from costprobe.core.units import HOUR_S
from costprobe.savings.history import ALL_MINUTES, ProbeHistory, ServedHour, ServiceHistory

_MINUTE_S, _PCT = 60.0, 100
# Of two to five weeks the last one is held out; fewer have none.
WEEKS_WITH_HOLDOUT, _HELD_OUT_ONE_IN = 2, 3


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a workload, and what a device does of it.

    Attributes:
        name: "requests", "inferences" or "tokens_out".
        per_device_s: Units per second that a device of now can do, at least.
        measured_by: By what this was measured, as text.
    """

    name: str
    per_device_s: float
    measured_by: str

    @property
    def words(self) -> str:
        """The unit as text."""
        return "output tokens" if self.name == "tokens_out" else self.name


@dataclass(frozen=True, slots=True)
class Minutes:
    """The minutes of an hour.

    Attributes:
        load: Number of busy devices in each.
        requests: Answered requests in each.
        held: One bit for each minute in which there was work, or nothing is known.
    """

    load: Sequence[float]
    requests: Sequence[float]
    held: int


@dataclass(frozen=True, slots=True)
class HourLoad:
    """The load of an hour.

    Attributes:
        mean: Mean number of busy devices.
        peak: That of the minute with the highest load.
        requests: Requests that services answered.
        is_idle: Whether no device was busy and no request was answered.
        units: Work in the unit of the workload.
        units_max_per_s: That of the minute with the most, per second.
        minutes: None where requests are not known by minute.
    """

    mean: float
    peak: float
    requests: float = 0.0
    is_idle: bool = False
    units: float = 0.0
    units_max_per_s: float = 0.0
    minutes: Minutes | None = None


@dataclass(frozen=True, slots=True)
class WorkloadHistory:
    """What devices did, or are expected to do.

    Attributes:
        name: Display name, such as "chat on gpu0".
        devices: Names of the devices that it runs on now.
        hours: Load by hour number since 1970, UTC; hours without telemetry are absent.
        billed_hours: Hours in which its devices existed and were paid for.
        span_hours: Hours from the first with telemetry until now.
        origin: Where the load comes from, as text.
        services: Names of the services that it consists of.
        probe: Name of the probe of its model; empty if there is none.
        zone: Time zone of its hours of the week; None for the host's own.
        unit: Unit of its work; None where only utilization is known.
        row_s: Length of the longest row of its services, in s.
        is_stated: Whether the load is configured instead of measured.
    """

    name: str
    devices: tuple[str, ...]
    hours: Mapping[int, HourLoad]
    billed_hours: int
    span_hours: int
    origin: str
    services: tuple[str, ...] = ()
    probe: str = ""
    zone: tzinfo | None = None
    unit: Unit | None = None
    row_s: float = 0.0
    is_stated: bool = False

    @property
    def mean(self) -> float:
        """Mean number of busy devices."""
        return math.fsum(hour.mean for hour in self.hours.values()) / len(self.hours)

    @property
    def peak(self) -> float:
        """Number of busy devices in the minute with the highest load."""
        return max(hour.peak for hour in self.hours.values())

    @property
    def units_per_h(self) -> float:
        """Mean work in an hour, in the unit."""
        return math.fsum(hour.units for hour in self.hours.values()) / len(self.hours)

    @property
    def units_max_per_s(self) -> float:
        """Work per second in the minute with the most, in the unit."""
        return max(hour.units_max_per_s for hour in self.hours.values())

    @property
    def days(self) -> float:
        """Days of known load."""
        return len(self.hours) / HOURS_A_DAY

    @property
    def coverage(self) -> float:
        """Share of the span with known load."""
        return min(1.0, len(self.hours) / self.span_hours)

    @property
    def weeks(self) -> int:
        """Whole weeks of its span."""
        return self.span_hours // HOURS_A_WEEK

    def by_week(self) -> list[dict[int, HourLoad]]:
        """Return the hours of each of the last whole weeks that has any."""
        last = max(self.hours)
        weeks: list[dict[int, HourLoad]] = [{} for _ in range(self.weeks)]
        for number, hour in self.hours.items():
            ago = (last - number) // HOURS_A_WEEK
            if ago < len(weeks):
                weeks[ago][number] = hour
        return [week for week in weeks if week]

    def split(self) -> tuple[dict[int, HourLoad], dict[int, HourLoad]]:
        """Return the hours that a decision is made from, and the held-out weeks it is tested on.

        The last third of the whole weeks is held out, at least one; of less than two weeks none.
        """
        if self.weeks < WEEKS_WITH_HOLDOUT:
            return dict(self.hours), {}
        held_out_h = max(1, self.weeks // _HELD_OUT_ONE_IN) * HOURS_A_WEEK
        border = max(self.hours) + 1 - held_out_h
        before = {number: hour for number, hour in self.hours.items() if number < border}
        after = {number: hour for number, hour in self.hours.items() if number >= border}
        return (before, after) if before else (after, {})


def measured_load(
    devices: Sequence[DeviceHistory],
    services: Sequence[ServiceHistory],
    unit: Unit | None,
    idle_pct: float,
) -> dict[int, HourLoad]:
    """Return the load of devices in the hours in which all of them have telemetry.

    It is the lower of two upper bounds: the utilization, and work / what a device can do.

    Args:
        devices: At least one.
        services: Services that use one of them.
        unit: Unit of the work of the only service; None for utilization alone.
        idle_pct: Mean utilization in percent below which an hour is idle.
    """
    has_rows = bool(services) and all(service.hours for service in services)
    known_hours = [device.known_hours for device in devices]
    shared = set.intersection(*map(set, known_hours))
    load = {}
    for number in sorted(shared):
        hours = [found[number] for found in known_hours]
        shares = [hour.util_pct for hour in hours]
        known = [share for share in shares if share is not None]
        if len(known) < len(shares):
            continue
        busy_s = _added([hour.busy_s_by_minute for hour in hours])
        mean = math.fsum(known) / _PCT
        served = [service.hours.get(number, ServedHour()) for service in services]
        # Without a service only the highest minute is wanted.
        busy = [one_s / _MINUTE_S for one_s in (busy_s if services else [max(busy_s)])]
        units = served[0].counts[unit.name] if unit is not None and served else ()
        if unit is not None and units and served[0].is_known:
            most = _MINUTE_S * unit.per_device_s
            busy = list(map(min, busy, [count / most for count in units]))
            mean = min(mean, math.fsum(units) / (most * MINUTES))
        requests = math.fsum(hour.requests for hour in served)
        has_requests = requests > 0 or any(hour.is_doubtful for hour in served)
        load[number] = HourLoad(
            mean=mean,
            peak=max(busy),
            requests=requests,
            is_idle=max(known) < idle_pct and not has_requests,
            units=math.fsum(units),
            units_max_per_s=max(units, default=0.0) / _MINUTE_S,
            minutes=_minutes(hours, served, busy, idle_pct) if has_rows else None,
        )
    return load


def _minutes(
    hours: Sequence[Hour], served: Sequence[ServedHour], busy: Sequence[float], idle_pct: float
) -> Minutes:
    """Return the minutes of an hour; one is without work if no device and no service had any."""
    held = 0
    idle_s = idle_pct / _PCT * _MINUTE_S
    for hour in hours:
        if min(hour.busy_s_by_minute) >= idle_s:
            held = ALL_MINUTES  # as most hours of a device that is in use
            break
        for minute, busy_s in enumerate(hour.busy_s_by_minute):
            held |= (busy_s >= idle_s) << minute
    for one in served:
        held |= ~one.idle & ALL_MINUTES
    return Minutes(busy, _added([one.counts["requests"] for one in served]), held)


def _added(of_minutes: Sequence[Sequence[float]]) -> Sequence[float]:
    """Return the sum of each minute of an hour."""
    if len(of_minutes) == 1:
        return of_minutes[0]
    return list(map(math.fsum, zip(*of_minutes, strict=True)))


def repeated_week(profile: Sequence[float], first: int, zone: tzinfo | None) -> dict[int, HourLoad]:
    """Return a week with a given load by hour of the week, 0 = Monday 00:00.

    Args:
        profile: Mean number of busy devices for each of the 168 hours.
        first: Number of the first hour since 1970, UTC.
        zone: Time zone of the profile.
    """
    loads = (
        (number, profile[hour_of_week(number, zone)])
        for number in range(first, first + HOURS_A_WEEK)
    )
    return {number: HourLoad(load, load, is_idle=load == 0) for number, load in loads}


@cache
def hour_of_week(number: int, zone: tzinfo | None) -> int:
    """Return the hour of the week (0 = Monday 00:00) of an hour number since 1970."""
    local = datetime.fromtimestamp(number * int(HOUR_S), UTC).astimezone(zone)
    return local.weekday() * HOURS_A_DAY + local.hour


def connected(groups: Iterable[Iterable[str]]) -> Iterator[tuple[str, ...]]:
    """Yield the sets of names that are connected by groups, each sorted.

    Services that share a device are one workload, and so are the services that share with these.
    """
    sets: list[set[str]] = []
    for group in groups:
        own = set(group)
        apart = [names for names in sets if not names & own]
        for names in sets:
            if names & own:
                own |= names
        sets = [*apart, own]
    ordered = (tuple(sorted(names, key=natural)) for names in sets if names)
    yield from sorted(ordered, key=lambda names: natural(*names))


def unit_of(
    services: Sequence[ServiceHistory], device_count: int, own: ProbeHistory | None
) -> Unit | None:
    """Return the unit of a service's work; None where only utilization can be compared.

    What a device can do of it is at least what it did in the service's highest minute, and for
    inferences what the probe of the model measured on it. Work of several services does not add up.

    Args:
        services: Services that use the devices.
        device_count: Number of devices.
        own: The probe of the service's model on one of them; None if there is none.
    """
    if len(services) != 1 or services[0].unit is None:
        return None
    name = services[0].unit
    most_per_s = services[0].most_per_s(name) / device_count
    if own is not None and name == "inferences" and own.present.is_enough:
        probed = own.present
        if probed.throughput_per_s > most_per_s:
            return Unit(name, probed.throughput_per_s, f"{own.subject}, batch {probed.batch}")
    return Unit(name, most_per_s, f"the highest minute of {services[0].name}")
