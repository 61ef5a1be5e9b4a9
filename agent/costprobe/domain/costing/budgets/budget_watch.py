"""Conditions of a budget, exceeded or forecast to be exceeded; each starts once per period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from costprobe.core.money_text import money
from costprobe.core.records import NS_PER_S, Event, FieldValue, Point, Severity
from costprobe.core.schema import make_point
from costprobe.core.units import percent
from costprobe.domain.costing.budgets.budget import BudgetStatus, period_words

Condition = Literal["budget_exceeded", "budget_forecast"]
# The forecast condition ends at this share of the budget.
CLEAR_SHARE = 0.95
# The forecast condition starts after this number of successive evaluations above the budget.
LOOKS = 2


@dataclass(frozen=True, slots=True)
class BudgetFlags:
    """The conditions of a budget.

    Attributes:
        is_exceeded: Spend is above the planned amount.
        is_forecast: The forecast is above the planned amount.
    """

    is_exceeded: bool
    is_forecast: bool


class BudgetWatch:
    """The conditions of one budget over its periods.

    The condition "exceeded" lasts until the period ends. A forecast must be above the budget in
    two successive evaluations; its condition ends when it falls to 95 % of the budget, and does not
    start again in the same period.
    """

    def __init__(self) -> None:
        self._start_ns = 0
        self._exceeded = False
        self._above = 0
        self._forecast: Literal["no", "yes", "over"] = "no"

    def take(self, status: BudgetStatus) -> tuple[BudgetFlags, list[Event]]:
        """Evaluate a status; return the conditions, and events of those that start."""
        if status.period.start_ns != self._start_ns:
            self._start_ns = status.period.start_ns
            self._exceeded, self._above, self._forecast = False, 0, "no"
        events = []
        if not self._exceeded and status.spent > status.amount:
            self._exceeded = True
            events.append(_event("budget_exceeded", status, exceeded_words(status)))
        if self._begins(status) and not self._exceeded:
            events.append(_event("budget_forecast", status, forecast_words(status)))
        return BudgetFlags(self._exceeded, self._forecast == "yes"), events

    def document(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "start_ns": self._start_ns,
            "exceeded": self._exceeded,
            "above": self._above,
            "forecast": self._forecast,
        }

    @classmethod
    def restore(cls, document: Mapping[str, Any]) -> BudgetWatch:
        """Return the state of a document.

        Raises:
            KeyError, TypeError, ValueError: The document is damaged.
        """
        watch = cls()
        watch._start_ns = int(document["start_ns"])
        watch._exceeded = bool(document["exceeded"])
        watch._above = int(document["above"])
        if document["forecast"] not in ("no", "yes", "over"):
            raise ValueError(f"unknown forecast state {document['forecast']!r}")
        watch._forecast = document["forecast"]
        return watch

    def _begins(self, status: BudgetStatus) -> bool:
        """Return whether the forecast condition starts with this evaluation."""
        expected = status.expected
        if expected is None:
            return False
        self._above = self._above + 1 if expected > status.amount else 0
        if self._forecast == "yes" and expected <= CLEAR_SHARE * status.amount:
            self._forecast = "over"
        elif self._forecast == "no" and self._above >= LOOKS:
            self._forecast = "yes"
            return True
        return False


def budget_point(status: BudgetStatus, flags: BudgetFlags, tags: Mapping[str, str]) -> Point:
    """Return a row of `budget`.

    Args:
        status: Status of the budget.
        flags: Its conditions.
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
    fields: dict[str, FieldValue | None] = {
        "amount": status.amount,
        "spent": status.spent,
        "forecast": status.expected,
        "forecast_low": status.low,
        "forecast_high": status.high,
        "coverage": status.coverage,
        "elapsed_share": status.elapsed_share,
        "exceeded": flags.is_exceeded,
        "forecast_exceeded": flags.is_forecast,
        "period_start_ns": status.period.start_ns,
        "period_end_ns": status.period.end_ns,
        "text": forecast_words(status) if flags.is_forecast else exceeded_words(status),
    }
    return make_point("budget", {**tags, **own_tags}, fields, status.time_ns)


def exceeded_words(status: BudgetStatus) -> str:
    """Return the spend as a sentence."""
    budget = status.budget
    spent, planned = (money(amount, budget.currency) for amount in (status.spent, status.amount))
    covered = (
        "" if status.coverage >= 1 - 0.01 else f"; rows cover {percent(status.coverage)} of it"
    )
    return f"budget {budget.name}: {spent} of {planned} for {period_words(status)} are spent with {percent(status.elapsed_share)} of it over{covered}"


def forecast_words(status: BudgetStatus) -> str:
    """Return spend and forecast as a sentence."""
    if status.expected is None or status.low is None or status.high is None:
        return exceeded_words(status)
    expected, low, high = (
        money(amount, status.budget.currency)
        for amount in (status.expected, status.low, status.high)
    )
    return f"{exceeded_words(status)}; at its end it will be {expected} (80 %: {low} to {high})"


def _event(condition: Condition, status: BudgetStatus, words: str) -> Event:
    budget = status.budget
    severity: Severity = "critical" if condition == "budget_exceeded" else "warning"
    title = "is exceeded" if condition == "budget_exceeded" else "will be exceeded"
    subject = {"budget": budget.name}
    if budget.service is not None:
        subject["service"] = budget.service
    after = status.spent if condition == "budget_exceeded" else status.expected
    return Event(
        kind="budget",
        severity=severity,
        title=f"budget {budget.name} {title}",
        time_ns=status.time_ns,
        detail=words,
        device=budget.device or "",
        subject=subject,
        before=money(status.amount, budget.currency),
        after=money(after or 0.0, budget.currency),
        metric=condition,
        since_ns=status.period.start_ns // NS_PER_S * NS_PER_S,
    )
