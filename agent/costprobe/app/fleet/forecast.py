"""The spend of a fleet in a calendar period, and its forecast, from the cost of each hour."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from costprobe.adapters.fleet.question import Question
from costprobe.app.fleet.answers import FleetAnswers
from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.budgets.budget_forecast import (
    HourRate,
    PeriodSpend,
    remaining_hours,
    robust_forecast,
)
from costprobe.domain.costing.budgets.periods import TimeSpan
from costprobe.domain.costing.budgets.spend import HISTORY_HOURS

HOUR_S: Final = 3600
_HOUR_NS: Final = HOUR_S * NS_PER_S
# An hour in which so small a share of the devices around it has rows is no estimate of an hour.
_LEAST_SHARE: Final = 0.5
_AROUND_HOURS: Final = 12


@dataclass(frozen=True, slots=True)
class FleetForecast(PeriodSpend):
    """The spend of a period, in one currency.

    Attributes:
        currency: ISO 4217 code.
        coverage: Share of the hours since the period began in which devices have rows, over the most devices of an
            hour; None before the first hour.
        left_out: Number of hours of the history in which too few devices had rows.
    """

    currency: str
    coverage: float | None
    left_out: int


def fleet_forecast(answers: FleetAnswers, period: TimeSpan, timezone: str) -> list[FleetForecast]:
    """Return spend and forecast of a period by currency, the largest first.

    Args:
        answers: The database, and the history: whole hours that end now, and begin before the period.
        period: The calendar period that contains the end of the history.
        timezone: IANA name, for the hours of the week.

    Raises:
        DeliveryError: The database did not answer.
    """
    asked = answers.period
    paid, present = answers.rows_of_each(
        Question("device", "cost", "sum", by=("currency",), every_s=HOUR_S),
        Question("device", "cost", "count", "count", by=("currency",), every_s=HOUR_S),
    )
    devices = {(row.tags, row.time_ns): row.value for row in present}
    costs: dict[str, dict[int, float]] = defaultdict(dict)
    for (currency,), amount, end_ns in paid:
        costs[currency][end_ns] = amount
    since_ns = asked.end_ns - HISTORY_HOURS * _HOUR_NS
    found = []
    for currency, by_hour in costs.items():
        counted = {end_ns: devices.get(((currency,), end_ns), 0.0) for end_ns in by_hour}
        recent = sorted(end_ns for end_ns in by_hour if end_ns > since_ns)
        history = [
            HourRate(end_ns - _HOUR_NS, by_hour[end_ns])
            for end_ns in recent
            if counted[end_ns] >= _LEAST_SHARE * _usual(counted, end_ns)
        ]
        elapsed = [end_ns for end_ns in by_hour if end_ns > period.start_ns]
        hours = (asked.end_ns - period.start_ns) // _HOUR_NS
        most = max((counted[end_ns] for end_ns in elapsed), default=0.0) * hours
        rows = math.fsum(counted[end_ns] for end_ns in elapsed)
        found.append(
            FleetForecast(
                currency,
                spent=math.fsum(by_hour[end_ns] for end_ns in elapsed),
                coverage=min(1.0, rows / most) if most > 0 else None,
                remaining=robust_forecast(
                    history, remaining_hours(asked.end_ns, period.end_ns), timezone
                ),
                left_out=len(recent) - len(history),
            )
        )
    return sorted(found, key=lambda one: -one.spent)


def _usual(counted: dict[int, float], end_ns: int) -> float:
    """Return the most devices of the hours around one."""
    around = range(-_AROUND_HOURS, _AROUND_HOURS + 1)
    return max(counted.get(end_ns + hours * _HOUR_NS, 0.0) for hours in around)
