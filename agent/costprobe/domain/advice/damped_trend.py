"""Forecast of daily values: a damped trend with a weekly pattern, and a prediction interval.

Each value is divided by the factor of its day of the week, the median ratio to the mean of the seven
days around it. The logarithms of the rest follow a damped trend (Gardner and McKenzie, "Forecasting
Trends in Time Series", Management Science 31, 1985), in the error-correction form of Hyndman and
Athanasopoulos, Forecasting: Principles and Practice (3rd ed., 8.5), with level l, trend b and error e:

    e = y - (l + phi b),  l' = l + phi b + alpha e,  b' = phi b + beta e
    y ahead by h days = l + (phi + phi^2 + ... + phi^h) b

alpha, beta and phi are those of a grid with the smallest squared errors of forecasts a day, a week and
four weeks ahead from every day of the history. An error counts at most CLIPPED_AT times the robust
deviation (1.4826 times the median absolute deviation), so that a single day does not bend the trend.

The variance h days ahead is that of the method A, Ad, N in table 8.8 of the same book, plus gamma h:
levels drift more than the model expects, and gamma is what the errors a week or four weeks ahead show
of that. The quantile is that of Student's distribution, with a degree of freedom for four weeks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from costprobe.domain.costing.quantiles import student_quantile

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
_MAD_TO_SIGMA = 1.4826
_AHEAD_DAYS = (1, WEEK_DAYS, MONTH_DAYS)
_ALPHAS = (0.05, 0.1, 0.2, 0.4)
# beta / alpha.
_TREND_SHARES = (0.0, 0.02, 0.05, 0.1)
_PHIS = (0.9, 0.95, 0.98, 0.99, 0.995)
# A mean of the days around a day needs this many of seven.
_LEAST_OF_WEEK = 5


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


def load_forecast(
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


def _line(logs: Sequence[float | None]) -> _State:
    """Return level and trend before the first day, by least squares."""
    points = [(day, log) for day, log in enumerate(logs) if log is not None]
    mean_day = statistics.fmean(day for day, _ in points)
    mean = statistics.fmean(log for _, log in points)
    spread = math.fsum((day - mean_day) ** 2 for day, _ in points)
    trend = math.fsum((day - mean_day) * (log - mean) for day, log in points) / spread
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
    return _MAD_TO_SIGMA * statistics.median(abs(value - middle) for value in values)
