"""Growth of load: the load of the days to come, what it costs, and when capacity ends.

Forecast of daily values: a damped trend with a weekly pattern, and a prediction interval. Each
value is divided by the factor of its day of the week, the median ratio to the mean of the seven
days around it. The logarithms of the rest follow a damped trend (Gardner and McKenzie,
"Forecasting Trends in Time Series", Management Science 31, 1985), in the error-correction form of
Hyndman and Athanasopoulos, Forecasting: Principles and Practice (3rd ed., 8.5), with level l,
trend b and error e:

    e = y - (l + phi b),  l' = l + phi b + alpha e,  b' = phi b + beta e
    y ahead by h days = l + (phi + phi^2 + ... + phi^h) b

alpha, beta and phi are those of a grid with the smallest squared errors of forecasts a day, a
week and four weeks ahead from every day of the history. An error counts at most CLIPPED_AT times
the robust deviation (1.4826 times the median absolute deviation), so that a single day does not
bend the trend.

The variance h days ahead is that of the method A, Ad, N in table 8.8 of the same book, plus gamma
h: levels drift more than the model expects, and gamma is what the errors a week or four weeks
ahead show of that. The quantile is that of Student's distribution, with a degree of freedom for
four weeks.

The forecast load is priced at the prices of today, as are 1,000 more requests.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import NamedTuple

from costprobe.core.periods import HOURS_A_DAY, HOURS_A_WEEK
from costprobe.core.records import NS_PER_S
from costprobe.core.statistics import MAD_TO_SIGMA, student_quantile
from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.savings.evidence import History
from costprobe.savings.placements import DEVICE_HOURS, LoadSubject, by_day, day_of, load_subjects
from costprobe.savings.supply import HEADROOM, DevicePrice, Placement

INTERVAL = 0.8
# A trend and a weekly pattern need three weeks.
LEAST_DAYS = 21
WEEK_DAYS, MONTH_DAYS = 7, 28
CLIPPED_AT = 4.0
# A day of the week below this share of the mean is idle: its values show no trend.
IDLE_FACTOR = 0.02
# A single value below this share of the mean counts as this share.
LEAST_SHARE = 0.01
# Smallest deviation of a logarithm: without noise every change would count as unusual.
LEAST_DEVIATION = 0.01
_AHEAD_DAYS = (1, WEEK_DAYS, MONTH_DAYS)
_ALPHAS = (0.05, 0.1, 0.2, 0.4)
# beta / alpha.
_TREND_SHARES = (0.0, 0.02, 0.05, 0.1)
_PHIS = (0.9, 0.95, 0.98, 0.99, 0.995)
# A mean of the days around a day needs this many of seven.
_LEAST_OF_WEEK = 5

# The slope of energy over load needs a week of hours.
LEAST_HOURS = HOURS_A_WEEK
PER_THOUSAND = 1000


class DayForecast(NamedTuple):
    """The forecast of a day.

    Attributes:
        expected: Median.
        low: Lower end of the 80 % interval.
        high: Upper end.
    """

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """A daily load and its forecast.

    Attributes:
        now: The last seven known days, as one value.
        then: The last seven days of the forecast, as one value.
        days: The days to come, the first one today.
    """

    now: float
    then: DayForecast
    days: Sequence[DayForecast]


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
    load = _load_forecast(per_day, horizon_days, statistics.fmean)
    peak = _load_forecast(peaks, horizon_days, max)
    known = sum(value is not None for value in per_day)
    needs, part = [], history.part_of(subject.service)
    notes = [f"{subject.service} is {part}"] if part else []
    if load is None:
        needs.append(f"{LEAST_DAYS} days of load; there are {known}")
    if not busy:
        needs.append("for the end of capacity: utilization of its devices")
    elif peak is None:
        needs.append(f"for the end of capacity: {LEAST_DAYS} days of utilization of its devices")
    others = [name for name in workload.services if name != subject.service]
    if others:
        notes.append(f"capacity and cost are those of {on}, shared with {' and '.join(others)}")
    # Which of several services keeps a device busy is unknown.
    per_unit_j = None if others or not busy else _energy_slope_j(history, subject)
    prices, missing = _prices_in_force(history, workload.devices)
    needs += missing
    marginal = money = None
    if prices and not (others or part) and subject.unit != DEVICE_HOURS:
        marginal = _marginal_cost(subject, prices[0], per_unit_j)
        if per_unit_j is None:
            needs.append("energy of 1,000 more: a week of hours with load and power of its devices")
    if prices and peak is not None:
        money = _monthly_money(history, subject, prices, (load, peak), per_unit_j)
        if money is None:
            needs.append("the power of its devices, because electricity is billed separately")
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


def _prices_in_force(
    history: History, devices: Sequence[str]
) -> tuple[list[DevicePrice], list[str]]:
    """Return the prices in force of devices; none, and what is missing, unless all have one."""
    found = [history.prices.get(name) for name in devices]
    if not all(found):
        return [], ["a price of its devices in [[price]]"]
    prices = [prices[0] for prices in found if prices]
    if len({price.rate.currency for price in prices}) > 1:
        return [], ["one currency for its devices"]
    return prices, []


def _monthly_money(
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


def _marginal_cost(subject: LoadSubject, price: DevicePrice, slope_j: float | None) -> MarginalCost:
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


def _energy_slope_j(history: History, subject: LoadSubject) -> float | None:
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
    slope = _least_squares(points)[2]
    return None if slope is None else max(0.0, slope)


def _least_squares(points: Sequence[tuple[float, float]]) -> tuple[float, float, float | None]:
    """Return the means of x and y, and the slope of y over x; None if x is the same everywhere."""
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*points, strict=True))
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    products = math.fsum((x - mean_x) * (y - mean_y) for x, y in points)
    return mean_x, mean_y, products / spread if spread else None


def _load_forecast(
    values: Sequence[float | None], horizon_days: int, week: Callable[[Iterable[float]], float]
) -> LoadForecast | None:
    """Return `damped_forecast` with its first and last week; None if there is none.

    Args:
        values: As for `damped_forecast`.
        horizon_days: Number of days to forecast.
        week: Combines the values of a week.
    """
    days = damped_forecast(values, horizon_days)
    if not days:
        return None
    known = [value for value in values if value is not None]
    then = DayForecast(*(week(column) for column in zip(*days[-WEEK_DAYS:], strict=True)))
    return LoadForecast(week(known[-WEEK_DAYS:]), then, days)


def damped_forecast(values: Sequence[float | None], horizon_days: int) -> list[DayForecast]:
    """Return the forecast of the days after a history.

    Args:
        values: Non-negative values, one a day, oldest first; None where unknown.
        horizon_days: Number of days to forecast.

    Returns:
        None of them if fewer than LEAST_DAYS values are known.
    """
    known = [value for value in values if value is not None]
    if len(known) < LEAST_DAYS:
        return []
    if not any(known):
        return [DayForecast(0.0, 0.0, 0.0)] * horizon_days
    factors = _weekly_factors(values)
    least = LEAST_SHARE * statistics.fmean(known)
    logs = [
        None if value is None or factor < IDLE_FACTOR else math.log(max(value / factor, least))
        for value, factor in ((value, factors[day % WEEK_DAYS]) for day, value in enumerate(values))
    ]
    fit = min(_fits(logs), key=lambda fit: math.fsum(fit.squares.values()))
    quantile = student_quantile((1 + INTERVAL) / 2, len(known) / MONTH_DAYS)
    forecasts = []
    for ahead in range(1, horizon_days + 1):
        middle = fit.last.level + fit.smoothing.damped(ahead) * fit.last.trend
        half = quantile * math.sqrt(_variance(fit, ahead))
        factor = factors[(len(values) - 1 + ahead) % WEEK_DAYS]
        forecasts.append(
            DayForecast(*(factor * math.exp(y) for y in (middle, middle - half, middle + half)))
        )
    return forecasts


def _weekly_factors(values: Sequence[float | None]) -> list[float]:
    """Return the factor of each day of the week, the first that of the first value; 1 on average."""
    ratios: list[list[float]] = [[] for _ in range(WEEK_DAYS)]
    half = WEEK_DAYS // 2
    for day in range(half, len(values) - half):
        around = [v for v in values[day - half : day + half + 1] if v is not None]
        value, mean = values[day], statistics.fmean(around) if around else 0.0
        if value is not None and len(around) >= _LEAST_OF_WEEK and mean > 0:
            ratios[day % WEEK_DAYS].append(value / mean)
    factors = [statistics.median(found) if found else 1.0 for found in ratios]
    total = math.fsum(factors)
    return [factor * WEEK_DAYS / total for factor in factors] if total else [1.0] * WEEK_DAYS


def _fits(logs: Sequence[float | None]) -> Iterator[_Fit]:
    """Yield the damped trend of each point of the grid."""
    steps = [
        after - before
        for before, after in pairwise(logs)
        if before is not None and after is not None
    ]
    # The difference of two days has twice the variance of one.
    scale = max(_robust_deviation(steps) / math.sqrt(2), LEAST_DEVIATION)
    first = _line(logs[: max(2 * WEEK_DAYS, min(MONTH_DAYS, len(logs) // 2))])
    for alpha in _ALPHAS:
        for share in _TREND_SHARES:
            for phi in _PHIS:
                smoothing = _Smoothing(alpha, alpha * share, phi)
                states = _states(logs, smoothing, first, CLIPPED_AT * scale)
                squares = _squares(logs, smoothing, states, scale)
                yield _Fit(smoothing, states[-1], squares)


@dataclass(frozen=True, slots=True)
class _Smoothing:
    """Parameters of the damped trend."""

    alpha: float
    beta: float
    phi: float

    def damped(self, ahead: int) -> float:
        """Return phi + phi^2 + ... + phi^ahead."""
        return self.phi * (1 - self.phi**ahead) / (1 - self.phi)

    def variance(self, ahead: int) -> float:
        """Return the variance of a forecast for errors of variance 1 (table 8.8: A, Ad, N)."""
        alpha, beta, phi = self.alpha, self.beta, self.phi
        inner = 2 * alpha * (1 - phi) + beta * phi
        outer = 2 * alpha * (1 - phi**2) + beta * phi * (1 + 2 * phi - phi**ahead)
        return (
            1
            + alpha**2 * (ahead - 1)
            + beta * phi * ahead / (1 - phi) ** 2 * inner
            - beta * phi * (1 - phi**ahead) / ((1 - phi) ** 2 * (1 - phi**2)) * outer
        )


class _State(NamedTuple):
    level: float
    trend: float


@dataclass(frozen=True, slots=True)
class _Fit:
    """A damped trend of a history.

    Attributes:
        smoothing: Its parameters.
        last: State after the last day.
        squares: Mean squared error by days ahead.
    """

    smoothing: _Smoothing
    last: _State
    squares: Mapping[int, float]


def _line(logs: Sequence[float | None]) -> _State:
    """Return level and trend before the first day, by least squares."""
    points = [(day, log) for day, log in enumerate(logs) if log is not None]
    mean_day, mean, slope = _least_squares(points)
    trend = slope or 0.0
    return _State(mean - trend * (mean_day + 1), trend)


def _states(
    logs: Sequence[float | None], smoothing: _Smoothing, first: _State, most: float
) -> list[_State]:
    """Return the state after each day; an unknown day changes no level beside the trend."""
    level, trend = first
    states = []
    for log in logs:
        trend *= smoothing.phi
        level += trend
        if log is not None:
            error = min(most, max(-most, log - level))
            level += smoothing.alpha * error
            trend += smoothing.beta * error
        states.append(_State(level, trend))
    return states


def _squares(
    logs: Sequence[float | None], smoothing: _Smoothing, states: Sequence[_State], scale: float
) -> dict[int, float]:
    """Return the mean squared error by days ahead, from two weeks after the first day."""
    squares = {}
    for ahead in _AHEAD_DAYS:
        damped = smoothing.damped(ahead)
        errors = [
            log - (state.level + damped * state.trend)
            for state, log in zip(
                states[2 * WEEK_DAYS :], logs[2 * WEEK_DAYS + ahead :], strict=False
            )
            if log is not None
        ]
        if errors and (ahead == 1 or len(errors) >= ahead):
            most = CLIPPED_AT * max(_robust_deviation(errors), scale)
            squares[ahead] = math.fsum(min(abs(e), most) ** 2 for e in errors) / len(errors)
    return squares


def _variance(fit: _Fit, ahead: int) -> float:
    one_day = fit.squares[1]
    drift = max(
        0.0,
        *(
            (square - one_day * fit.smoothing.variance(days)) / days
            for days, square in fit.squares.items()
        ),
    )
    return one_day * fit.smoothing.variance(ahead) + drift * ahead


def _robust_deviation(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    middle = statistics.median(values)
    return MAD_TO_SIGMA * statistics.median(abs(value - middle) for value in values)
