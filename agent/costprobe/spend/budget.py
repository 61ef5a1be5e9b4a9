"""Budget status: spend so far, its coverage and forecast; whether it is or will be exceeded.

Each condition, exceeded or forecast to be exceeded, starts once per period.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from costprobe.core.money import cents, money
from costprobe.core.periods import TimeSpan, local_time, period_at
from costprobe.core.records import NS_PER_S, Event, FieldValue, Point, Severity, natural
from costprobe.core.schema import SCHEMA, make_point
from costprobe.core.units import HOUR_S, counted, percent
from costprobe.spend.forecast import (
    MIN_HOURS,
    HourRate,
    PeriodSpend,
    remaining_hours,
    robust_forecast,
)
from costprobe.spend.query import Payer, SpendBook, coverage_of
from costprobe.spend.settings import HISTORY_HOURS, BudgetConfig, PlannedSpend

# An hour with a lower coverage is not used to estimate a whole hour.
MIN_HOUR_COVERED_S = HOUR_S / 2
# Shorter gaps are not reported: they are restarts, or a service's window that has not ended.
REPORTED_GAP_S = 1800.0
MAX_REPORTED = 8

Condition = Literal["budget_exceeded", "budget_forecast"]
# The forecast condition ends at this share of the budget.
CLEAR_SHARE = 0.95
# The forecast condition starts once the forecast has been above the budget for this time.
ABOVE_NS = 600 * NS_PER_S


@dataclass(frozen=True, slots=True)
class BudgetStatus(PeriodSpend):
    """The status of a budget at an instant.

    Attributes:
        budget: The budget.
        period: The period that it is in.
        time_ns: UTC in ns.
        coverage: Share of the period so far that stored rows cover, over all of its devices.
        missing: Costs that `spent` does not include, one sentence each.
        note: Reason why there is no forecast.
        foreign: Spend in other currencies, included in neither figure.
    """

    budget: BudgetConfig
    period: TimeSpan
    time_ns: int
    coverage: float
    missing: tuple[str, ...] = ()
    note: str = ""
    foreign: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def amount(self) -> float:
        """The planned amount in the budget's currency."""
        return float(self.budget.amount)

    @property
    def elapsed_share(self) -> float:
        """Share of the period that is over."""
        return self.period.elapsed_share(self.time_ns)

    def document(self) -> dict[str, Any]:
        """Return the status as JSON."""
        budget, remaining = self.budget, self.remaining
        return {
            "budget": budget.name,
            "scope": budget.scope,
            "period": budget.period,
            "timezone": budget.timezone,
            "period_start_ns": self.period.start_ns,
            "period_end_ns": self.period.end_ns,
            "time_ns": self.time_ns,
            "currency": budget.currency,
            "amount": self.amount,
            "spent": self.spent,
            "forecast": self.expected,
            "forecast_low": self.low,
            "forecast_high": self.high,
            "method": None if remaining is None else remaining.method,
            "history_h": 0 if remaining is None else remaining.hours,
            "note": self.note,
            "elapsed_share": self.elapsed_share,
            "coverage": self.coverage,
            "missing": list(self.missing),
            "foreign": dict(self.foreign),
        }


def budget_status(budget: BudgetConfig, book: SpendBook, time_ns: int) -> BudgetStatus:
    """Return the status of a budget.

    Args:
        budget: The budget.
        book: Spend by the hour, aligned to the budget's time zone.
        time_ns: UTC in ns.
    """
    period = period_at(budget.period, budget.timezone, time_ns)
    elapsed_s = (time_ns - period.start_ns) / NS_PER_S
    payers = payers_of(budget, book.payers)
    covered_s: dict[str, list[float]] = defaultdict(list)
    foreign: dict[str, float] = defaultdict(float)
    costs = []
    for payer in payers:
        cost, known_s = book.between(payer, TimeSpan(period.start_ns, time_ns))
        is_own = payer.currency == budget.currency
        if known_s > 0:
            covered_s[payer.device].append(known_s if is_own else 0.0)
        if is_own:
            costs.append(cost)
        elif cost > 0:
            foreign[payer.currency] += cost
    of_devices = {name: min(elapsed_s, math.fsum(found)) for name, found in covered_s.items()}
    in_currency = [payer for payer in payers if payer.currency == budget.currency]
    history = hours_before(in_currency, book, time_ns)
    remaining = remaining_hours(time_ns, period.end_ns, book.phase_ns)
    forecast = robust_forecast(history, remaining, budget.timezone)
    note = f"a forecast needs {MIN_HOURS} h of cost data; there are {len(history)}"
    return BudgetStatus(
        budget=budget,
        period=period,
        time_ns=time_ns,
        spent=math.fsum(costs),
        coverage=coverage_of(of_devices.values(), elapsed_s),
        missing=tuple(_missing(budget, of_devices, elapsed_s, foreign)),
        remaining=forecast,
        note="" if forecast else note,
        foreign=foreign,
    )


def payers_of(budget: BudgetConfig, payers: Sequence[Payer]) -> list[Payer]:
    """Return the payers that a budget covers, in any currency."""
    if budget.service is not None:
        return [payer for payer in payers if payer.service == budget.service]
    return [
        payer for payer in payers if not payer.service and budget.device in (None, payer.device)
    ]


def hours_before(payers: Sequence[Payer], book: SpendBook, time_ns: int) -> list[HourRate]:
    """Return the total cost of each complete past hour, oldest first.

    An hour is excluded if the rows of a payer cover less than half of it and there are rows before
    and after it. The uncovered part of any other hour is assumed to cost as much as the covered.
    """
    last = book.hour_of(time_ns)
    rates: dict[int, float] = {}
    gaps: set[int] = set()
    for payer in payers:
        hours = [(hour, book.at(payer, hour)) for hour in range(last - HISTORY_HOURS, last)]
        covered = {hour: spend for hour, spend in hours if spend.covered_s >= MIN_HOUR_COVERED_S}
        if not covered:
            continue
        gaps |= set(range(min(covered), max(covered))) - covered.keys()
        for hour, spend in covered.items():
            rates[hour] = rates.get(hour, 0.0) + spend.cost * HOUR_S / spend.covered_s
    return [
        HourRate(book.start_ns(hour), rates[hour]) for hour in sorted(rates) if hour not in gaps
    ]


def period_words(status: BudgetStatus) -> str:
    """Return the period's name: "2026-03-01", "March 2026", "Q1 2026", "2026"."""
    zone = ZoneInfo(status.budget.timezone)
    # The middle of the period is correct even for a day that does not start at midnight.
    first = local_time((status.period.start_ns + status.period.end_ns) // 2, zone)
    match status.budget.period:
        case "day":
            return f"{first:%Y-%m-%d}"
        case "month":
            return f"{first:%B %Y}"
        case "quarter":
            return f"Q{(first.month + 2) // 3} {first.year}"
        case "year":
            return str(first.year)


def _missing(
    budget: BudgetConfig,
    covered_s: Mapping[str, float],
    elapsed_s: float,
    foreign: Mapping[str, float],
) -> list[str]:
    if not covered_s:
        return [f"no cost data for {budget.scope} in this period"]
    gaps: dict[str, list[str]] = {}
    for device, known_s in sorted(covered_s.items(), key=lambda item: natural(item[0])):
        if elapsed_s - known_s >= REPORTED_GAP_S:
            gaps.setdefault(f"{(elapsed_s - known_s) / HOUR_S:.1f} h", []).append(device)
    problems = [
        f"{' and '.join(devices)}: no cost data for {hours} of the period"
        for hours, devices in gaps.items()
    ]
    unreported = sum(map(len, [*gaps.values()][MAX_REPORTED:]))
    more = [f"and {counted(unreported, 'more device')}"] if unreported else []
    problems = [*problems[:MAX_REPORTED], *more]
    return problems + [
        f"{money(amount, currency) if currency else f'{amount:,.4g} in an unknown currency'} is not added to {budget.currency}"
        for currency, amount in sorted(foreign.items())
    ]


class BudgetWatch(BaseModel):
    """The conditions of one budget over its periods, and its stored state.

    The condition "exceeded" lasts until the period ends. A forecast must be above the budget for
    ABOVE_NS; its condition ends when it falls to 95 % of the budget, and does not start again in
    the same period.

    Attributes:
        start_ns: Start of the period, UTC in ns.
        exceeded: Whether spend is above the planned amount.
        above_ns: UTC ns since which the forecast is above it; None while it is not.
        forecast: Whether the condition of the forecast is not there yet, there, or over.
    """

    start_ns: int = 0
    exceeded: bool = False
    above_ns: int | None = None
    forecast: Literal["no", "yes", "over"] = "no"

    @property
    def is_forecast(self) -> bool:
        """Whether the budget is forecast to be exceeded."""
        return self.forecast == "yes"

    def take(self, status: BudgetStatus) -> list[Event]:
        """Evaluate a status; return events of the conditions that start."""
        if status.period.start_ns != self.start_ns:
            self.start_ns = status.period.start_ns
            self.exceeded, self.above_ns, self.forecast = False, None, "no"
        events = []
        if not self.exceeded and status.spent > status.amount:
            self.exceeded = True
            events.append(_event("budget_exceeded", status, _exceeded_words(status)))
        if self._begins(status) and not self.exceeded:
            events.append(_event("budget_forecast", status, forecast_words(status)))
        return events

    def _begins(self, status: BudgetStatus) -> bool:
        """Return whether the forecast condition starts with this evaluation."""
        expected = status.expected
        if expected is None:
            return False
        is_above = expected > status.amount
        # A wall clock that was set back starts the time again.
        since_ns = min(self.above_ns or status.time_ns, status.time_ns)
        self.above_ns = since_ns if is_above else None
        if self.forecast == "yes" and expected <= CLEAR_SHARE * status.amount:
            self.forecast = "over"
        elif self.forecast == "no" and is_above and status.time_ns - since_ns >= ABOVE_NS:
            self.forecast = "yes"
            return True
        return False


def watches_document(
    budgets: Iterable[PlannedSpend], watches: Mapping[str, BudgetWatch]
) -> dict[str, Any]:
    """Return the watches of budgets, by their names, as JSON."""
    return {
        budget.name: {
            "budget": budget.model_dump(mode="json"),
            "watch": watches[budget.name].model_dump(),
        }
        for budget in budgets
    }


def restored_watches(budgets: Iterable[PlannedSpend], stored: Any) -> dict[str, BudgetWatch]:  # noqa: ANN401 - any JSON value
    """Return the watch of each budget by its name; a changed budget, or a damaged state, has a new one."""
    watches = {}
    for budget in budgets:
        watches[budget.name] = BudgetWatch()
        with suppress(KeyError, TypeError, ValueError):
            if stored[budget.name]["budget"] == budget.model_dump(mode="json"):
                watch = BudgetWatch.model_validate(stored[budget.name]["watch"])
                watches[budget.name] = watch
    return watches


def budget_point(status: BudgetStatus, watch: BudgetWatch, tags: Mapping[str, str]) -> Point:
    """Return a row of `budget`.

    Args:
        status: Status of the budget.
        watch: Its conditions.
        tags: Host and static labels.
    """
    budget = status.budget
    own_tags = {
        "budget": budget.name,
        "period": budget.period,
        "currency": budget.currency,
        "device": budget.device or "",
        "service": budget.service or "",
    }
    document = status.document()
    fields: dict[str, FieldValue | None] = {
        **{name: document[name] for name in SCHEMA["budget"].fields if name in document},
        "exceeded": watch.exceeded,
        "forecast_exceeded": watch.is_forecast,
        "text": forecast_words(status) if watch.is_forecast else _exceeded_words(status),
    }
    return make_point("budget", {**tags, **own_tags}, fields, status.time_ns)


def _exceeded_words(status: BudgetStatus) -> str:
    """Return the spend as a sentence."""
    budget = status.budget
    spent, planned = (cents(amount, budget.currency) for amount in (status.spent, status.amount))
    covered = (
        "" if status.coverage >= 1 - 0.01 else f"; rows cover {percent(status.coverage)} of it"
    )
    return f"budget {budget.name}: {spent} of {planned} for {period_words(status)} are spent with {percent(status.elapsed_share)} of it over{covered}"


def forecast_words(status: BudgetStatus) -> str:
    """Return spend and forecast as a sentence."""
    if status.expected is None or status.low is None or status.high is None:
        return _exceeded_words(status)
    expected, low, high = (
        money(amount, status.budget.currency)
        for amount in (status.expected, status.low, status.high)
    )
    return f"{_exceeded_words(status)}; at its end it will be {expected} (80 %: {low} to {high})"


def _event(condition: Condition, status: BudgetStatus, words: str) -> Event:
    budget = status.budget
    severity: Severity = "critical" if condition == "budget_exceeded" else "warning"
    title = "is exceeded" if condition == "budget_exceeded" else "will be exceeded"
    subject = {"budget": budget.name}
    if budget.service is not None:
        subject["service"] = budget.service
    if condition == "budget_exceeded":
        after = cents(status.spent, budget.currency)
    else:
        after = money(status.expected or 0.0, budget.currency)
    return Event(
        kind="budget",
        severity=severity,
        title=f"budget {budget.name} {title}",
        time_ns=status.time_ns,
        detail=words,
        device=budget.device or "",
        subject=subject,
        before=cents(status.amount, budget.currency),
        after=after,
        metric=condition,
        since_ns=status.period.start_ns // NS_PER_S * NS_PER_S,
    )
