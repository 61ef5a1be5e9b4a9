"""Forecast of a period's cost: a robust rate for each hour of the week, with an interval.

The point forecast is a seasonal median: a future hour is expected to cost the median of the same
hour of the week over up to eight weeks (or of the same hour of the day, or of all hours, if there
is no such hour). It is the seasonal naive method of Hyndman and Athanasopoulos, Forecasting:
Principles and Practice (3rd ed., 5.2), with the median of the seasons instead of the last season,
so that one unusual week is not repeated. Two corrections use the differences between hours and
their medians. The first is the mean difference of whole blocks, because a sum depends on the
mean, not the median; blocks beyond four robust deviations are clipped. The second is a share of
the deviation of the last week and the last day; the share of the day decreases with the forecast
distance.

The interval is that of a sum; section 5.5 of the book has it for single values. The residuals are
the differences between each hour and its estimate from the other hours (leave-one-out), summed in
blocks of at most a day. Let s be the robust spread of the blocks (1.4826 times the median
absolute deviation, after Rousseeuw and Croux 1993, or the distance from the 10th to the 90th
percentile divided by 2.563 if that is larger) and r the correlation of successive blocks. Then a
sum of n blocks has the variance s² (n + 2 Σ (n - k) r^k), that of a first-order autoregression.
The uncertainty of the level, which is estimated from N blocks, adds s² n² (1 + r) / ((1 - r) N).
The quantile is that of Student's distribution with N - 1 degrees of freedom (Abramowitz and
Stegun, expansion 26.7.5).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from costprobe.core.periods import HOUR_NS, HOURS_A_DAY, HOURS_A_WEEK, local_time
from costprobe.core.statistics import MAD_TO_SIGMA, student_quantile

INTERVAL = 0.8
MIN_HOURS = 6
# Smallest number of values with which a season is named in the description of the method.
MIN_OF_A_SEASON = 2
BLOCK_HOURS = 24
MIN_BLOCKS = 4
# Share of the last week's and day's deviation from the median that is expected to persist.
LEVEL_WEIGHT = 0.5
DRAWN_IN_AT = 4.0
MAX_CORRELATION = 0.9
_DECILES_TO_SIGMA = 2.563
_MIN_FOR_DECILES = 20


class HourRate(NamedTuple):
    """The cost of a past hour.

    Attributes:
        start_ns: UTC in ns of its start.
        per_hour: Currency for the whole hour.
    """

    start_ns: int
    per_hour: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected cost of the rest of a period.

    Attributes:
        expected: Currency.
        low: Lower end of the 80 % interval.
        high: Its upper end.
        method: Method, as text.
        hours: Number of past hours that it is based on.
    """

    expected: float
    low: float
    high: float
    method: str
    hours: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodSpend:
    """The spend of a period up to now, and its forecast.

    Attributes:
        spent: Currency in stored rows since the period started.
        remaining: Forecast of the rest of the period; None if there is too little data.
    """

    spent: float
    remaining: Forecast | None = None

    @property
    def expected(self) -> float | None:
        """Expected spend at the end of the period in currency; None if there is too little data."""
        return None if self.remaining is None else self.spent + self.remaining.expected

    @property
    def low(self) -> float | None:
        """Lower end of the forecast's 80 % interval."""
        return None if self.remaining is None else self.spent + self.remaining.low

    @property
    def high(self) -> float | None:
        """Upper end of the forecast's 80 % interval."""
        return None if self.remaining is None else self.spent + self.remaining.high

    def verdict(self, amount: float) -> str:
        """Return `exceeded`, `will be exceeded`, or "" if neither is known of a planned amount."""
        if self.spent > amount:
            return "exceeded"
        is_heading_there = self.expected is not None and self.expected > amount
        return "will be exceeded" if is_heading_there else ""


class RemainingHour(NamedTuple):
    """A future hour, or the rest of the current one.

    Attributes:
        start_ns: UTC in ns.
        share: Share of the hour, above 0 up to 1.
    """

    start_ns: int
    share: float


def remaining_hours(now_ns: int, end_ns: int, phase_ns: int = 0) -> list[RemainingHour]:
    """Return the hours from now to the end of a period, the first one shortened.

    Args:
        now_ns: UTC in ns.
        end_ns: UTC in ns.
        phase_ns: Offset of the hours from UTC's full hours, in ns.
    """
    hours = []
    start_ns = now_ns
    while start_ns < end_ns:
        next_ns = ((start_ns - phase_ns) // HOUR_NS + 1) * HOUR_NS + phase_ns
        until_ns = min(next_ns, end_ns)
        hours.append(RemainingHour(start_ns, (until_ns - start_ns) / HOUR_NS))
        start_ns = until_ns
    return hours


def robust_forecast(
    history: Sequence[HourRate], remaining: Sequence[RemainingHour], timezone: str
) -> Forecast | None:
    """Return the robust rate's forecast of future hours.

    Args:
        history: Hours that rows cover, oldest first; gaps are allowed.
        remaining: The future hours.
        timezone: IANA name, for the hours of the week.

    Returns:
        None if there are fewer than MIN_HOURS hours.
    """
    if len(history) < MIN_HOURS:
        return None
    zone = ZoneInfo(timezone)
    seasons = _Seasons(history, zone)
    differences = seasons.differences()
    mean = _drawn_in_mean(differences)
    week = LEVEL_WEIGHT * (
        statistics.median(differences[-HOURS_A_WEEK:]) - statistics.median(differences)
    )
    day = LEVEL_WEIGHT * (
        statistics.median(differences[-HOURS_A_DAY:]) - statistics.median(differences)
    )
    expected = 0.0
    for ahead, hour in enumerate(remaining):
        level = mean + week + (day - week) * math.exp(-ahead / HOURS_A_DAY)
        usual = seasons.usual(_hour_of_week(hour.start_ns, zone))
        expected += max(0.0, usual + level) * hour.share
    spread = _spread(differences, sum(hour.share for hour in remaining))
    return Forecast(
        expected=expected,
        low=max(0.0, expected - spread),
        high=expected + spread,
        method=seasons.words,
        hours=len(history),
    )


def _hour_of_week(time_ns: int, zone: ZoneInfo) -> int:
    """Return the hour of the week in a time zone, 0 (Monday's midnight) to 167."""
    local = local_time(time_ns, zone)
    return local.weekday() * HOURS_A_DAY + local.hour


class _Seasons:
    """Costs of the past by the hour of the week and of the day."""

    def __init__(self, history: Sequence[HourRate], zone: ZoneInfo) -> None:
        self._history = [(_hour_of_week(hour.start_ns, zone), hour.per_hour) for hour in history]
        self._weekly: dict[int, list[float]] = {}
        self._daily: dict[int, list[float]] = {}
        self._all = [value for _, value in self._history]
        for hour, value in self._history:
            self._weekly.setdefault(hour, []).append(value)
            self._daily.setdefault(hour % HOURS_A_DAY, []).append(value)

    @property
    def words(self) -> str:
        """Return which season most hours are based on."""
        for hours, name in ((self._weekly, "week"), (self._daily, "day")):
            full = sum(len(values) >= MIN_OF_A_SEASON for values in hours.values())
            if full * 2 >= len(hours):
                return f"medians by the hour of the {name}"
        return "median of all hours"

    def usual(self, hour: int) -> float:
        """Return the usual cost of an hour of the week."""
        return statistics.median(self._peers(hour))

    def differences(self) -> list[float]:
        """Return the difference of each hour from its estimate from the others."""
        differences = []
        for hour, value in self._history:
            others = list(self._peers(hour, at_least=2))
            others.remove(value)
            differences.append(value - statistics.median(others))
        return differences

    def _peers(self, hour: int, at_least: int = 1) -> Sequence[float]:
        for values in (self._weekly.get(hour, ()), self._daily.get(hour % HOURS_A_DAY, ())):
            if len(values) >= at_least:
                return values
        return self._all


def _drawn_in_mean(differences: Sequence[float]) -> float:
    """Return the mean difference of an hour, with the influence of each block bounded."""
    blocks = _blocks(differences, min(BLOCK_HOURS, max(1, len(differences) // MIN_BLOCKS)))
    sums = [math.fsum(block) for block in blocks]
    middle, reach = statistics.median(sums), DRAWN_IN_AT * _robust_scale(sums)
    drawn = [min(middle + reach, max(middle - reach, value)) for value in sums]
    return math.fsum(drawn) / (len(blocks) * len(blocks[0]))


def _blocks(differences: Sequence[float], length: int) -> list[Sequence[float]]:
    """Return whole blocks, counted from the end, so that they include the newest hours."""
    starts = range(len(differences) - length, -1, -length)
    return [differences[start : start + length] for start in starts]


def _spread(differences: Sequence[float], hours: float) -> float:
    """Return half the width of the interval of a sum of future hours."""
    if hours <= 0:
        return 0.0
    length = max(1, min(BLOCK_HOURS, math.ceil(hours), len(differences) // MIN_BLOCKS))
    blocks = [math.fsum(block) for block in _blocks(differences, length)]
    scale = _robust_scale(blocks)
    correlation = _correlation(blocks)
    count = hours / length
    variance = _sum_variance(count, correlation)
    variance += count**2 * (1 + correlation) / ((1 - correlation) * len(blocks))
    return student_quantile((1 + INTERVAL) / 2, len(blocks) - 1) * scale * math.sqrt(variance)


def _sum_variance(count: float, correlation: float) -> float:
    """Return the variance of the sum of `count` values of variance 1 of a first-order autoregression."""
    if count <= 1:
        return count * count + (1 - correlation) * count * (1 - count)
    steps = range(1, math.ceil(count))
    return count + 2 * math.fsum((count - k) * correlation**k for k in steps)


def _robust_scale(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    scale = MAD_TO_SIGMA * statistics.median(abs(value - middle) for value in values)
    if len(values) >= _MIN_FOR_DECILES:
        deciles = statistics.quantiles(values, n=10, method="inclusive")
        scale = max(scale, (deciles[-1] - deciles[0]) / _DECILES_TO_SIGMA)
    return scale


def _correlation(values: Sequence[float]) -> float:
    """Return the bounded correlation of each value with the next; 0 for few values."""
    mean = statistics.fmean(values)
    total = math.fsum((value - mean) ** 2 for value in values)
    if total == 0 or len(values) < MIN_BLOCKS:
        return 0.0
    correlation = (
        math.fsum((value - mean) * (other - mean) for value, other in pairwise(values)) / total
    )
    # The estimate is too low by about (1 + 3 r) / N (Kendall 1954).
    correlation += (1 + 3 * correlation) / len(values)
    return min(MAX_CORRELATION, max(0.0, correlation))
