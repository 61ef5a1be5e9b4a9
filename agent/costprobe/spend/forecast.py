"""Forecast of a period's cost: a median for each hour of the week, a level that wanders, an interval.

A future hour is expected to cost the median of the same hour of the week over up to eight weeks; if
there is only one, of the same hour of workdays or of weekends, then of the day, then of all hours. It
is the seasonal naive method of Hyndman and Athanasopoulos, Forecasting: Principles and Practice (3rd
ed., 5.2), with the median of the seasons instead of the last season, so that one unusual week is not
repeated.

The differences between hours and their medians, summed in blocks of at most a day, are a constant, plus a level that wanders, plus noise. The level is a first-order
autoregression whose deviation fades with a time constant. Which one, and what share of the variance is
the level's, is not known: the forecast is the mean over MEMORIES_H and WANDERING_SHARES, weighted by the
likelihood of the history's blocks (Kalman filter; Durbin and Koopman, Time Series Analysis by State Space Methods,
2nd ed., ch. 4 and 7). So the level wanders as it did in the history. An isolated block beyond
DRAWN_IN_AT robust deviations does not move the level; its excess counts as noise.

The interval is that of the sum of the hours to come: noise, the level's wandering, the uncertainty of
level, constant and share. The quantile is that of Student's distribution with a degree of freedom for
each past period as long as the forecast, at most one fewer than the blocks: a week has shown nothing
of how weeks differ. Real demand: docs/budgets.md.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
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
# Hour of the week at which the weekend begins: Saturday, 00:00.
WEEKEND_H = 5 * HOURS_A_DAY
# A deviation of the level fades to 37 % in one of these times; in the second after as long a history.
MEMORIES_H = (HOURS_A_WEEK, 4 * HOURS_A_WEEK)
# Share of the variance of a block that is the level's.
WANDERING_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
DRAWN_IN_AT = 4.0
# Smallest sum of squares of blocks, of which the largest is 1: differences below it are rounding.
_ROUNDING = 1e-24


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
    past = [(_hour_of_week(hour.start_ns, zone), hour.per_hour) for hour in history]
    peers, words = _peers(past)
    usual = {hour: statistics.median(values) for hour, values in peers.items()}
    hours = math.fsum(hour.share for hour in remaining)
    outlook = _outlook([value - usual[hour] for hour, value in past], hours)
    # An hour is further from the usual cost of the others than from its own: n / (n - 1) for the mean of n values.
    counts = [len(peers[hour]) for hour, _ in past]
    half_width = outlook.half_width * statistics.fmean(count / (count - 1) for count in counts)
    expected = ahead_h = 0.0
    for hour in remaining:
        ahead_h += hour.share
        level = outlook.constant + math.fsum(
            deviation * math.exp(-ahead_h / memory_h)
            for deviation, memory_h in zip(outlook.deviations, MEMORIES_H, strict=True)
        )
        expected += max(0.0, usual[_hour_of_week(hour.start_ns, zone)] + level) * hour.share
    return Forecast(
        expected=expected,
        low=max(0.0, expected - half_width),
        high=expected + half_width,
        method=words,
        hours=len(history),
    )


def _hour_of_week(time_ns: int, zone: ZoneInfo) -> int:
    """Return the hour of the week in a time zone, 0 (Monday's midnight) to 167."""
    local = local_time(time_ns, zone)
    return local.weekday() * HOURS_A_DAY + local.hour


# Seasons, the finest first, each with the slot of an hour of the week.
_SEASONS: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("the week", lambda hour: hour),
    ("workdays and weekends", lambda hour: hour % HOURS_A_DAY - (hour >= WEEKEND_H) * HOURS_A_DAY),
    ("the day", lambda hour: hour % HOURS_A_DAY),
)


def _peers(past: Sequence[tuple[int, float]]) -> tuple[dict[int, Sequence[float]], str]:
    """Return the past costs whose median each hour of the week has, and the season of most of them.

    Args:
        past: Hour of the week, and cost, of each past hour.
    """
    everything = tuple(value for _, value in past)
    peers: dict[int, Sequence[float]] = dict.fromkeys(range(HOURS_A_WEEK), everything)
    words = "median of all hours"
    for name, slot in reversed(_SEASONS):
        values = defaultdict(list)
        for hour, value in past:
            values[slot(hour)].append(value)
        full = {key: found for key, found in values.items() if len(found) >= MIN_OF_A_SEASON}
        peers |= {hour: full[slot(hour)] for hour in peers if slot(hour) in full}
        if len(full) * 2 >= len(values):
            words = f"medians by the hour of {name}"
    return peers, words


class _Outlook(NamedTuple):
    """What hours to come differ from their medians.

    Attributes:
        constant: Currency an hour.
        deviations: Currency an hour at the end of the history, which fade with MEMORIES_H.
        half_width: Half the width of the interval of their sum.
    """

    constant: float
    deviations: tuple[float, ...]
    half_width: float


class _Level(NamedTuple):
    """The level at the end of the history for one memory and share, per block.

    Attributes:
        memory_h: One of MEMORIES_H.
        constant: The constant.
        deviation: The deviation from it.
        likelihood: Logarithm of the likelihood of the blocks, with their variance integrated out.
        variance: Variance of the sum of the hours to come.
    """

    memory_h: float
    constant: float
    deviation: float
    likelihood: float
    variance: float


def _outlook(differences: Sequence[float], hours: float) -> _Outlook:
    """Return the outlook of the sum of a number of hours."""
    length = max(1, min(BLOCK_HOURS, math.ceil(hours), len(differences) // MIN_BLOCKS))
    starts = range(len(differences) % length, len(differences), length)
    sums = [math.fsum(differences[start : start + length]) for start in starts]
    unit = max(map(abs, sums)) or 1.0
    blocks, excess = _drawn_in([value / unit for value in sums])
    count = hours / length
    levels = [
        _level(blocks, count, length, memory_h, share)
        for memory_h in MEMORIES_H
        if memory_h <= max(HOURS_A_WEEK, len(differences))
        for share in WANDERING_SHARES
    ]
    best = max(level.likelihood for level in levels)
    likelihoods = [math.exp(level.likelihood - best) for level in levels]
    total = math.fsum(likelihoods)
    weighted = [(part / total, level) for part, level in zip(likelihoods, levels, strict=True)]

    def mean(of: Callable[[_Level], float]) -> float:
        return math.fsum(weight * of(level) for weight, level in weighted)

    def expected(level: _Level) -> float:
        return count * level.constant + level.deviation * _faded(count, length / level.memory_h)

    middle = mean(expected)
    variance = excess * count + mean(lambda level: level.variance + (expected(level) - middle) ** 2)
    periods = len(blocks) / count if count else math.inf
    quantile = student_quantile((1 + INTERVAL) / 2, min(len(blocks) - 1, periods))
    deviations = (
        math.fsum(part * level.deviation for part, level in weighted if level.memory_h == memory_h)
        for memory_h in MEMORIES_H
    )
    return _Outlook(
        mean(lambda level: level.constant) * unit / length,
        tuple(deviation * unit / length for deviation in deviations),
        quantile * math.sqrt(variance) * unit,
    )


def _faded(count: float, rate: float) -> float:
    """Return the sum over blocks of a deviation of 1 that fades by a rate per block."""
    return (1 - math.exp(-rate * count)) / rate


def _drawn_in(blocks: Sequence[float]) -> tuple[list[float], float]:
    """Return blocks without the excess of isolated ones, and the mean square of it.

    A block is bounded by the median of itself and its neighbours, so that a lasting step stays.
    """
    steps = [abs(after - before) for before, after in pairwise(blocks)]
    reach = DRAWN_IN_AT * MAD_TO_SIGMA * statistics.median(steps) / math.sqrt(2)
    drawn = []
    for number, value in enumerate(blocks):
        first = min(max(0, number - 1), len(blocks) - 3)
        middle = statistics.median(blocks[first : first + 3])
        drawn.append(min(middle + reach, max(middle - reach, value)))
    return drawn, statistics.fmean((a - b) ** 2 for a, b in zip(blocks, drawn, strict=True))


def _level(
    blocks: Sequence[float], count: float, length: int, memory_h: float, share: float
) -> _Level:
    """Return the level after blocks, by a Kalman filter.

    Args:
        blocks: At least two, oldest first.
        count: Blocks to come.
        length: Hours of a block.
        memory_h: Time in which a deviation fades to 37 %.
        share: Share of the variance of a block that is the deviation's.
    """
    rate = length / memory_h
    phi = math.exp(-rate)
    constant, deviation = blocks[0], 0.0
    # Variances in units of that of a block.
    of_constant, of_both, of_deviation = 1.0, -share, share
    squares = logs = 0.0
    for value in blocks[1:]:
        deviation *= phi
        of_both *= phi
        of_deviation = phi**2 * of_deviation + (1 - phi**2) * share
        with_constant, with_deviation = of_constant + of_both, of_both + of_deviation
        variance = with_constant + with_deviation + 1 - share
        error = value - constant - deviation
        constant += with_constant / variance * error
        deviation += with_deviation / variance * error
        of_constant -= with_constant**2 / variance
        of_both -= with_constant * with_deviation / variance
        of_deviation -= with_deviation**2 / variance
        squares += error**2 / variance
        logs += math.log(variance)
    # From the middle of the last block to the end of the history.
    deviation *= math.sqrt(phi)
    of_both *= math.sqrt(phi)
    of_deviation = phi * of_deviation + (1 - phi) * share
    faded, degrees = _faded(count, rate), len(blocks) - 1
    known = count**2 * of_constant + 2 * count * faded * of_both + faded**2 * of_deviation
    # Integral of a first-order autoregression of variance 1 that starts at a known value.
    wandering = 2 / rate * max(0.0, count - 2 * faded + _faded(2 * count, rate) / 2)
    return _Level(
        memory_h,
        constant,
        deviation,
        -(logs + degrees * math.log(max(squares, _ROUNDING))) / 2,
        squares / degrees * (max(0.0, known) + (1 - share) * count + share * wandering),
    )
