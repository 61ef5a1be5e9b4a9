"""The load of each service, and of each device without one, by hour and by day."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from typing import Literal

from costprobe.core.units import HOUR_S
from costprobe.domain.advice.history import History
from costprobe.domain.advice.placements import measured_workloads
from costprobe.domain.advice.workload import HOURS_A_DAY, WorkloadHistory

Unit = Literal["requests", "tokens", "device-hours"]
# An hour or a day of which less is known is unknown; one of which more is known is scaled.
LEAST_SHARE = 0.9


@dataclass(slots=True)
class HourCount:
    """What a service answered in an hour.

    Attributes:
        requests: Answered requests; None if the server does not count them.
        tokens: Input and output tokens; None if it does not count them.
        covered_s: Seconds of complete windows.
    """

    requests: float | None = None
    tokens: float | None = None
    covered_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadSubject:
    """A service, or a device without one, with its hours.

    Attributes:
        workload: Load of its devices.
        service: Name of the service; empty without one.
        unit: What the load counts.
        amounts: Load by hour number since 1970.
        shares: Known share of each of these hours.
    """

    workload: WorkloadHistory
    service: str
    unit: Unit
    amounts: Mapping[int, float]
    shares: Mapping[int, float]


def load_subjects(
    history: History, counts: Mapping[str, Mapping[int, HourCount]]
) -> Iterator[LoadSubject]:
    """Yield each service with its load, and each device without one.

    Args:
        history: The history of the host.
        counts: What each service answered, by hour number since 1970.
    """
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
            yield _load_of(workload, service, counts.get(service, {}))
    for service in sorted(counts.keys() - of_workloads):
        # Its devices are unknown, or of another host.
        nowhere = WorkloadHistory(service, (), {}, 0, 1, "", (service,))
        yield _load_of(nowhere, service, counts[service])


def _load_of(
    workload: WorkloadHistory, service: str, counts: Mapping[int, HourCount]
) -> LoadSubject:
    shares = {number: hour.covered_s / HOUR_S for number, hour in counts.items()}
    requests = {n: hour.requests for n, hour in counts.items() if hour.requests is not None}
    tokens = {n: hour.tokens for n, hour in counts.items() if hour.tokens is not None}
    if requests:
        return LoadSubject(workload, service, "requests", requests, shares)
    if tokens:
        return LoadSubject(workload, service, "tokens", tokens, shares)
    busy = {number: hour.mean for number, hour in workload.hours.items()}
    return LoadSubject(workload, service, "device-hours", busy, dict.fromkeys(busy, 1.0))


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
