"""What a forecast load costs at the prices of today, and what 1,000 more requests cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.core.weekly_hours import HOURS_A_DAY, HOURS_A_WEEK
from costprobe.domain.advice.daily_load import LoadSubject
from costprobe.domain.advice.damped_trend import DayForecast, LoadForecast
from costprobe.domain.advice.history import History
from costprobe.domain.advice.supply import HEADROOM, DevicePrice, Placement

# The slope of energy over load needs a week of hours.
LEAST_HOURS = HOURS_A_WEEK
PER_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class Money:
    """What the devices cost a month (730 h) now and at the end of the forecast, at today's prices.

    Attributes:
        currency: ISO 4217 code.
        now: Currency for the devices and for electricity that is billed separately.
        then: With the devices that the busiest hour then needs.
        devices_then: Number of these devices.
        next_device: Currency for a further device.
    """

    currency: str
    now: float
    then: DayForecast
    devices_then: DayForecast
    next_device: float


@dataclass(frozen=True, slots=True)
class MarginalCost:
    """What 1,000 more requests, tokens or inferences cost.

    Attributes:
        energy_j: Joules: the slope of hourly energy over hourly load; None if unknown.
        electricity: Currency for them; 0 if the price of the devices includes electricity.
        device: Currency for devices once capacity has ended: the price of a device-hour divided by
            what it answers at its usable capacity. Until then 0.
    """

    energy_j: float | None
    electricity: float | None
    device: float | None


def prices_in_force(
    history: History, devices: Sequence[str]
) -> tuple[list[DevicePrice], list[str]]:
    """Return the prices in force of devices; none, and what is missing, unless all have one."""
    found = [history.prices.get(name) for name in devices]
    on = " and ".join(name for name, prices in zip(devices, found, strict=True) if not prices)
    if on:
        return [], [f"a price of {on} in [[price]]"]
    prices = [prices[0] for prices in found if prices]
    if len({price.rate.currency for price in prices}) > 1:
        return [], [f"one currency for {' and '.join(devices)}"]
    return prices, []


def monthly_money(
    history: History,
    subject: LoadSubject,
    prices: Sequence[DevicePrice],
    forecasts: tuple[LoadForecast | None, LoadForecast],
    slope_j: float | None,
) -> Money | None:
    """Return what the devices of a subject cost a month, now and at the end of a forecast.

    Args:
        history: The history of the host.
        subject: The subject.
        prices: The prices of its devices.
        forecasts: Of its load, and of the busy devices in the busiest hour.
        slope_j: Joules per unit of load; None if unknown: then electricity stays as it is.

    Returns:
        None if electricity is billed separately and the power is unknown.
    """
    load, peak = forecasts
    devices = subject.workload.devices
    hardware = float(sum(price.rate.per_hour for price in prices)) * MONTH_H
    electricity = 0.0
    for name, price in zip(devices, prices, strict=True):
        if price.electricity_per_j:
            power_w = history.devices[name].mean_power_w
            if power_w is None:
                return None
            electricity += power_w * MONTH_H * HOUR_S * price.electricity_per_j
    next_device = float(prices[0].rate.per_hour) * MONTH_H
    # Devices that are rented as one host are added as one.
    step = next((len(n) for n in history.rented_together if set(n) & set(devices)), 1)

    def needed(busy: float) -> int:
        more = max(0, Placement(devices[0], devices[0]).needed(busy) - len(devices))
        return len(devices) + math.ceil(more / step) * step

    counts = [needed(busy) for busy in peak.then]
    more_paid = [0.0] * len(counts)
    if load is not None:
        days_a_month = MONTH_H / HOURS_A_DAY
        paid_each = (slope_j or 0.0) * prices[0].electricity_per_j
        more_paid = [(then - load.now) * days_a_month * paid_each for then in load.then]
    totals = [
        hardware + (count - len(devices)) * next_device + max(0.0, electricity + more)
        for count, more in zip(counts, more_paid, strict=True)
    ]
    return Money(
        currency=prices[0].rate.currency,
        now=hardware + electricity,
        then=DayForecast(*totals),
        devices_then=DayForecast(*counts),
        next_device=next_device * step,
    )


def marginal_cost(subject: LoadSubject, price: DevicePrice, slope_j: float | None) -> MarginalCost:
    """Return the marginal cost of a service that uses its devices alone.

    Args:
        subject: The service; it counts requests, tokens or inferences.
        price: The price of its first device.
        slope_j: Joules per unit of load; None if unknown.
    """
    both = [
        (subject.amounts[number], hour.mean)
        for number, hour in subject.workload.hours.items()
        if number in subject.amounts
    ]
    busy_h = math.fsum(busy for _, busy in both)
    per_busy_h = math.fsum(amount for amount, _ in both) / busy_h if busy_h else 0.0
    device = None
    if per_busy_h:
        device = float(price.rate.per_hour) / (per_busy_h * (1 - HEADROOM)) * PER_THOUSAND
    energy_j = None if slope_j is None else slope_j * PER_THOUSAND
    electricity = None if energy_j is None else energy_j * price.electricity_per_j
    return MarginalCost(energy_j, electricity if price.electricity_per_j else 0.0, device)


def slope_j(history: History, subject: LoadSubject) -> float | None:
    """Return joules per unit of load: the slope of hourly energy by least squares, at least 0.

    Idle power is drawn in any case, and is not in the slope.

    Returns:
        None with less than a week of hours, or if the load is the same in all of them.
    """
    devices = [history.devices[name] for name in subject.workload.devices]
    points = []
    for number, amount in subject.amounts.items():
        hours = [device.hours.get(number) for device in devices]
        powers = [h.energy_j / h.power_s for h in hours if h is not None and h.power_s]
        if len(powers) == len(devices):
            points.append((amount / subject.shares[number], math.fsum(powers) * HOUR_S))
    if len(points) < LEAST_HOURS:
        return None
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*points, strict=True))
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        return None
    return max(0.0, math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread)
