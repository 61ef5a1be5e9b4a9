"""When a budget is exceeded, or is heading there: told once a period, without flapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agent.costing.budget import BudgetStatus, period_words
from agent.model import NS_PER_S, Event, FieldValue, Point, Severity
from agent.series import make_point

Condition = Literal["budget_exceeded", "budget_forecast"]
# A forecast that was above the budget is no longer so once it is this share of it.
CLEAR_SHARE = 0.95
# A forecast counts once so many looks in a row found it above the budget.
LOOKS = 2


@dataclass(frozen=True, slots=True)
class Standing:
    """Which conditions hold of a budget.

    Attributes:
        is_exceeded: More is spent than planned.
        is_forecast: More will be, by the forecast.
    """

    is_exceeded: bool
    is_forecast: bool


class BudgetWatch:
    """The conditions of one budget over its periods.

    What is spent stays spent: once exceeded, a budget is until its period ends. A forecast must be
    above the budget in two looks one after the other, and is over when it has fallen to 95 % of it;
    after that it does not count again in the same period, whatever it does.
    """

    def __init__(self) -> None:
        self._start_ns = 0
        self._exceeded = False
        self._above = 0
        self._forecast: Literal["no", "yes", "over"] = "no"

    def take(self, status: BudgetStatus) -> tuple[Standing, list[Event]]:
        """Takes a look at a budget; which conditions hold now, and events of those that began."""
        if status.period.start_ns != self._start_ns:
            self._start_ns = status.period.start_ns
            self._exceeded, self._above, self._forecast = False, 0, "no"
        events = []
        if not self._exceeded and status.spent > status.amount:
            self._exceeded = True
            events.append(_event("budget_exceeded", status, exceeded_words(status)))
        if self._begins(status) and not self._exceeded:
            events.append(_event("budget_forecast", status, forecast_words(status)))
        return Standing(self._exceeded, self._forecast == "yes"), events

    def document(self) -> dict[str, Any]:
        """What was told, as JSON."""
        return {
            "start_ns": self._start_ns,
            "exceeded": self._exceeded,
            "above": self._above,
            "forecast": self._forecast,
        }

    @classmethod
    def restore(cls, document: Mapping[str, Any]) -> BudgetWatch:
        """Goes on from a document.

        Raises:
            KeyError, TypeError, ValueError: It is damaged.
        """
        watch = cls()
        watch._start_ns = int(document["start_ns"])
        watch._exceeded = bool(document["exceeded"])
        watch._above = int(document["above"])
        if document["forecast"] not in ("no", "yes", "over"):
            raise ValueError(f"no such state of a forecast: {document['forecast']!r}")
        watch._forecast = document["forecast"]
        return watch

    def _begins(self, status: BudgetStatus) -> bool:
        """True if the forecast's condition begins with this look."""
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


def budget_point(status: BudgetStatus, standing: Standing, tags: Mapping[str, str]) -> Point:
    """A row of `budget`.

    Args:
        status: Where the budget stands.
        standing: Which conditions hold.
        tags: Host and static labels.
    """
    budget = status.budget
    own = {
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
        "exceeded": standing.is_exceeded,
        "forecast_exceeded": standing.is_forecast,
        "period_start_ns": status.period.start_ns,
        "period_end_ns": status.period.end_ns,
        "text": forecast_words(status) if standing.is_forecast else exceeded_words(status),
    }
    return make_point("budget", {**tags, **own}, fields, status.time_ns)


def exceeded_words(status: BudgetStatus) -> str:
    """What was spent, in a sentence."""
    budget = status.budget
    covered = "" if status.coverage >= 1 - 0.01 else f"; rows cover {status.coverage:.0%} of it"
    return (
        f"budget {budget.name}: {status.spent:.2f} of {status.amount:.2f} {budget.currency} for"
        f" {period_words(status)} are spent with {status.elapsed_share:.0%} of it over{covered}"
    )


def forecast_words(status: BudgetStatus) -> str:
    """Where it is heading, in a sentence."""
    if status.expected is None or status.low is None or status.high is None:
        return exceeded_words(status)
    return (
        f"{exceeded_words(status)}; at its end it will be {status.expected:.2f}"
        f" (80 %: {status.low:.2f} to {status.high:.2f})"
    )


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
        before=f"{status.amount:.6g}",
        after=f"{after or 0.0:.6g}",
        metric=condition,
        since_ns=status.period.start_ns // NS_PER_S * NS_PER_S,
    )
