"""Growth of load: the load of the days to come, what it costs, and when capacity ends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from costprobe.core.records import NS_PER_S
from costprobe.domain.advice.daily_load import (
    DEVICE_HOURS,
    LoadSubject,
    by_day,
    day_of,
    load_subjects,
)
from costprobe.domain.advice.damped_trend import LEAST_DAYS, LoadForecast, load_forecast
from costprobe.domain.advice.growth_cost import (
    MarginalCost,
    Money,
    marginal_cost,
    monthly_money,
    prices_in_force,
    slope_j,
)
from costprobe.domain.advice.history import History
from costprobe.domain.advice.supply import HEADROOM


@dataclass(frozen=True, slots=True)
class CapacityEnd:
    """When the busiest hour of a day exceeds the usable capacity.

    Attributes:
        usable_devices: Number of devices, less the headroom.
        expected: The first such day; None if there is none in the forecast.
        earliest: That of the upper end of the interval.
        latest: That of the lower end.
    """

    usable_devices: float
    expected: date | None
    earliest: date | None
    latest: date | None


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of a service, or of a device without one.

    Attributes:
        name: Display name.
        service: Name of the service; empty without one.
        devices: Names of its devices.
        unit: What the load counts, as of LoadSubject.
        history_days: Days with known load.
        load: None with fewer than 21 known days.
        peak: Busy devices in the busiest hour of each day, and of a week; None likewise.
        capacity: None if it was not measured.
        money: None without a price, or without `peak`.
        marginal: None without a price, if the load counts device-hours, or if devices are shared.
        needs: What is missing.
        notes: What the figures rest on.
    """

    name: str
    service: str
    devices: tuple[str, ...]
    unit: str
    history_days: int
    load: LoadForecast | None
    peak: LoadForecast | None
    capacity: CapacityEnd | None
    money: Money | None
    marginal: MarginalCost | None
    needs: Sequence[str]
    notes: Sequence[str]


def growth(history: History, now_ns: int, horizon_days: int) -> list[Growth]:
    """Return the growth of every service, and of every device without one.

    Args:
        history: The history of the host.
        now_ns: UTC in ns.
        horizon_days: Number of days to forecast.
    """
    first = day_of(now_ns // NS_PER_S, history.zone)
    return [_growth(history, subject, first, horizon_days) for subject in load_subjects(history)]


def _growth(history: History, subject: LoadSubject, first: date, horizon_days: int) -> Growth:
    workload = subject.workload
    zone, on = history.zone, " and ".join(workload.devices) or "a device of the service"
    per_day = by_day(subject.amounts, subject.shares, zone, first, math.fsum)
    busy = {number: hour.mean for number, hour in workload.hours.items()}
    peaks = by_day(busy, dict.fromkeys(busy, 1.0), zone, first, max)
    load = load_forecast(per_day, horizon_days, statistics.fmean)
    peak = load_forecast(peaks, horizon_days, max)
    known = sum(value is not None for value in per_day)
    needs, notes = [], []
    if load is None:
        needs.append(f"{LEAST_DAYS} days of load; there are {known}")
    if not busy:
        needs.append(f"capacity not measured: utilization of {on}")
    elif peak is None:
        needs.append(f"capacity not measured: {LEAST_DAYS} days of utilization of {on}")
    others = [name for name in workload.services if name != subject.service]
    if others:
        notes.append(f"capacity and cost are those of {on}, shared with {' and '.join(others)}")
    # Which of several services keeps a device busy is unknown.
    per_unit_j = None if others or not busy else slope_j(history, subject)
    prices, missing = prices_in_force(history, workload.devices)
    needs += missing
    marginal = money = None
    if prices and not others and subject.unit != DEVICE_HOURS:
        marginal = marginal_cost(subject, prices[0], per_unit_j)
        if per_unit_j is None:
            needs.append(f"energy of 1,000 more: a week of hours with load and power of {on}")
    if prices and peak is not None:
        money = monthly_money(history, subject, prices, (load, peak), per_unit_j)
        if money is None:
            needs.append(f"the power of {on}, because electricity is billed separately")
        elif per_unit_j is None and prices[0].electricity_per_j:
            notes.append("electricity is that of now, because its growth with load is unknown")
    return Growth(
        name=workload.name if len(workload.services) <= 1 else f"{subject.service} on {on}",
        service=subject.service,
        devices=workload.devices,
        unit=subject.unit,
        history_days=known,
        load=load,
        peak=peak,
        capacity=None if peak is None else _capacity_end(peak, len(workload.devices), first),
        money=money,
        marginal=marginal,
        needs=needs,
        notes=notes,
    )


def _capacity_end(peak: LoadForecast, count: int, first: date) -> CapacityEnd:
    usable = count * (1 - HEADROOM)

    def crossing(values: Sequence[float]) -> date | None:
        ahead = next((number for number, value in enumerate(values) if value > usable), None)
        return None if ahead is None else date.fromordinal(first.toordinal() + ahead)

    expected, low, high = zip(*peak.days, strict=True)
    return CapacityEnd(usable, crossing(expected), earliest=crossing(high), latest=crossing(low))
