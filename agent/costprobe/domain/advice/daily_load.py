"""The load of each service, and of each device without one, by hour and by day."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo

from costprobe.core.units import HOUR_S
from costprobe.core.weekly_hours import HOURS_A_DAY
from costprobe.domain.advice.history import History
from costprobe.domain.advice.placements import measured_workloads
from costprobe.domain.advice.service_history import ServiceHistory
from costprobe.domain.advice.workload import WorkloadHistory

# Units of a load, the one that users count first.
UNITS = ("requests", "tokens_out", "inferences")
# The unit where a service counts none of these, and of a device without a service.
DEVICE_HOURS = "device_hours"
# An hour or a day of which less is known is unknown; a day of which more is known is scaled.
LEAST_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class LoadSubject:
    """A service, or a device without one, with its hours.

    Attributes:
        workload: Load of its devices.
        service: Name of the service; empty without one.
        unit: One of UNITS, or DEVICE_HOURS: busy hours of its devices.
        amounts: Load by hour number since 1970.
        shares: Known share of each of these hours.
    """

    workload: WorkloadHistory
    service: str
    unit: str
    amounts: Mapping[int, float]
    shares: Mapping[int, float]


def load_subjects(history: History) -> Iterator[LoadSubject]:
    """Yield each service with its load, and each device without one."""
    seen: set[tuple[str, ...]] = set()
    of_workloads: set[str] = set()
    for measured in measured_workloads(history):
        workload = measured.workload
        # Devices of one model are also compared together, and an expected load has no history.
        if workload.devices in seen or (len(workload.devices) > 1 and not workload.services):
            continue
        seen.add(workload.devices)
        of_workloads.update(workload.services)
        for service in workload.services or ("",):
            yield _load_of(workload, service, history.services.get(service))
    for service in sorted(history.services.keys() - of_workloads):
        # Its devices are unknown, or have no rows.
        nowhere = WorkloadHistory(service, (), {}, 0, 1, "", (service,))
        yield _load_of(nowhere, service, history.services[service])


def _load_of(workload: WorkloadHistory, name: str, service: ServiceHistory | None) -> LoadSubject:
    for unit in UNITS:
        if service is not None and unit not in service.missing and service.most_per_s(unit):
            covered = {
                number: math.fsum(hour.covered_s) / HOUR_S for number, hour in service.hours.items()
            }
            shares = {number: share for number, share in covered.items() if share >= LEAST_SHARE}
            amounts = {number: sum(service.hours[number].counts[unit]) for number in shares}
            return LoadSubject(workload, name, unit, amounts, shares)
    busy = {number: hour.mean for number, hour in workload.hours.items()}
    return LoadSubject(workload, name, DEVICE_HOURS, busy, dict.fromkeys(busy, 1.0))


def day_of(time_s: int, zone: tzinfo | None) -> date:
    """Return the day of a UTC time in s; in the host's own zone for None."""
    return datetime.fromtimestamp(time_s, UTC).astimezone(zone).date()


def by_day(
    amounts: Mapping[int, float],
    shares: Mapping[int, float],
    zone: tzinfo | None,
    first: date,
    combined: Callable[[list[float]], float],
) -> list[float | None]:
    """Return a value for each day before a date; None where too little of a day is known.

    A sum is scaled to the whole day.
    """
    days: dict[int, list[float]] = {}
    known_h: dict[int, float] = {}
    for number, amount in amounts.items():
        day = day_of(number * int(HOUR_S), zone).toordinal()
        days.setdefault(day, []).append(amount)
        known_h[day] = known_h.get(day, 0.0) + min(1.0, shares[number])
    values: list[float | None] = []
    for day in range(min(days, default=first.toordinal()), first.toordinal()):
        share = min(1.0, known_h.get(day, 0.0) / HOURS_A_DAY)
        if share < LEAST_SHARE:
            values.append(None)
        else:
            value = combined(days[day])
            values.append(value / share if combined is math.fsum else value)
    return values
