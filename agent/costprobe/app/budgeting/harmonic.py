"""A forecast by harmonic regression, with statsmodels, in the command's own process."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from costprobe.core.weekly_hours import HOURS_A_DAY, HOURS_A_WEEK
from costprobe.domain.costing.budgets.budget_forecast import (
    INTERVAL,
    Forecast,
    HourRate,
    RemainingHour,
    hour_of_week,
)
from costprobe.domain.costing.budgets.periods import HOUR_NS

MIN_WEEKS = 2
MAX_MISSING_SHARE = 0.2
DAILY_HARMONICS = 5
WEEKEND_HARMONICS = 3
MAX_CORRELATION = 0.99
SATURDAY = 5
ITERATIONS = 6
# Difference of the last week in standard deviations above which its level counts as changed.
LEVEL_DEVIATIONS = 2.0
# A smaller change of level, as a share of the mean cost, is ignored.
LEAST_LEVEL_SHARE = 0.02
METHOD = "harmonic regression with AR(1) errors (statsmodels)"


class MissingLibraryError(Exception):
    """statsmodels is not installed."""


class UnfitError(Exception):
    """The history is too short, has too many gaps, or has recently changed its level."""


def harmonic_forecast(
    history: Sequence[HourRate], remaining: Sequence[RemainingHour], timezone: str
) -> Forecast:
    """Return the forecast of a regression on the hour of the day and the day of the week.

    Dynamic harmonic regression after Hyndman and Athanasopoulos, Forecasting: Principles and
    Practice (3rd ed., 10.5 and 12.1): sines and cosines of the day, others on weekends, a level for
    each weekday, and errors of a first-order autoregression (statsmodels' GLSAR, Cochrane and
    Orcutt's iteration). There is no trend: extrapolated over weeks it is unreliable. The interval is that of the sum of the future hours: the autocorrelated errors'
    variance and that of the coefficients. Missing hours are filled with the median of the same
    hour of the week for the fit only.

    Args:
        history: Hours that rows cover, oldest first.
        remaining: The future hours.
        timezone: IANA name, for the hours of the week.

    Raises:
        MissingLibraryError: statsmodels is not installed.
        UnfitError: There is too little data, or the level changed in the last week.
    """
    zone = ZoneInfo(timezone)
    values = _regular(history, zone)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings for the library's developers
            from statsmodels.regression.linear_model import GLSAR  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingLibraryError(
            'statsmodels is not installed; get it with: pip install "costprobe[forecast]"'
        ) from error
    first_ns = history[0].start_ns
    regressors = [_regressors(first_ns + index * HOUR_NS, zone) for index in range(len(values))]
    to_come = [_regressors(hour.start_ns, zone) for hour in remaining]
    with warnings.catch_warnings():
        # A constant cost has no errors to correlate, which causes a harmless division by zero.
        warnings.simplefilter("ignore")
        model = GLSAR(values, regressors, rho=1)
        fitted = model.iterative_fit(maxiter=ITERATIONS)
        weights: list[float] = fitted.params.tolist()
        covariance: list[list[float]] = fitted.cov_params().tolist()
        rho, noise = float(model.rho[0]), float(fitted.scale)
    rho = min(MAX_CORRELATION, max(0.0, rho)) if math.isfinite(rho) else 0.0
    errors = [value - _dot(weights, row) for value, row in zip(values, regressors, strict=True)]
    _check_level(errors[-HOURS_A_WEEK:], rho, noise, LEAST_LEVEL_SHARE * statistics.fmean(values))
    skipped = round((remaining[0].start_ns - history[-1].start_ns) / HOUR_NS) if remaining else 0
    expected = sum(
        max(0.0, _dot(weights, row) + errors[-1] * rho ** (skipped + ahead)) * hour.share
        for ahead, (row, hour) in enumerate(zip(to_come, remaining, strict=True))
    )
    shares = [hour.share for hour in remaining]
    variance = noise * _carried(shares, rho, skipped) + _of_weights(covariance, to_come, shares)
    quantile = statistics.NormalDist().inv_cdf((1 + INTERVAL) / 2)
    spread = quantile * math.sqrt(variance) if math.isfinite(variance) and variance > 0 else 0.0
    return Forecast(expected, max(0.0, expected - spread), expected + spread, METHOD, len(history))


def _check_level(last_week: Sequence[float], rho: float, noise: float, least: float) -> None:
    """Check that the last week has the level of the previous weeks.

    Raises:
        UnfitError: The difference exceeds the errors of the week, and `least`.
    """
    offset = statistics.fmean(last_week)
    usual = math.sqrt(noise * _carried([1 / len(last_week)] * len(last_week), rho, 0))
    if abs(offset) > LEVEL_DEVIATIONS * usual and abs(offset) > least:
        raise UnfitError("the level of the costs changed in the last week")


def _regressors(time_ns: int, zone: ZoneInfo) -> list[float]:
    """Return the regressors of an hour: its place in the day and the week."""
    hour = hour_of_week(time_ns, zone)
    weekday = hour // HOURS_A_DAY
    angle = 2 * math.pi * (hour % HOURS_A_DAY) / HOURS_A_DAY
    waves = [f(k * angle) for k in range(1, DAILY_HARMONICS + 1) for f in (math.sin, math.cos)]
    is_weekend = float(weekday >= SATURDAY)
    weekend = [is_weekend * wave for wave in waves[: 2 * WEEKEND_HARMONICS]]
    return [*(float(weekday == day) for day in range(7)), *waves, *weekend]


def _carried(shares: Sequence[float], rho: float, skipped: int) -> float:
    """Return the variance of the sum of future autocorrelated errors of variance 1."""
    carried, total = 0.0, 0.0
    for share in [*reversed(shares), *[0.0] * max(0, skipped - 1)]:
        carried = share + rho * carried
        total += carried**2
    return total


def _of_weights(
    covariance: Sequence[Sequence[float]], rows: Sequence[Sequence[float]], shares: Sequence[float]
) -> float:
    """Return the variance of the sum of future hours due to the coefficients."""
    columns = zip(*rows, strict=True)
    sums = [_dot(column, shares) for column in columns]
    return _dot(sums, [_dot(row, sums) for row in covariance]) if sums else 0.0


def _dot(first: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(first, other, strict=True))


def _regular(history: Sequence[HourRate], zone: ZoneInfo) -> list[float]:
    """Return every hour from the first to the last, with gaps filled by the usual value.

    Raises:
        UnfitError: There are less than two weeks, or more than a fifth is missing.
    """
    by_hour = {hour.start_ns: hour.per_hour for hour in history}
    hours_ns = (
        range(history[0].start_ns, history[-1].start_ns + 1, HOUR_NS) if history else range(0)
    )
    if len(hours_ns) < MIN_WEEKS * HOURS_A_WEEK:
        raise UnfitError(
            f"it needs {MIN_WEEKS * HOURS_A_WEEK} h of cost data; there are {len(hours_ns)}"
        )
    if len(by_hour) < (1 - MAX_MISSING_SHARE) * len(hours_ns):
        raise UnfitError(f"{len(hours_ns) - len(by_hour)} of {len(hours_ns)} h are missing")
    usual: dict[int, list[float]] = {}
    for start_ns, value in by_hour.items():
        usual.setdefault(hour_of_week(start_ns, zone), []).append(value)
    middle = [statistics.median(by_hour.values())]
    return [
        by_hour[start_ns]
        if start_ns in by_hour
        else statistics.median(usual.get(hour_of_week(start_ns, zone), middle))
        for start_ns in hours_ns
    ]
