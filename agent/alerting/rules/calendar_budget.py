"""Budgets of calendar periods that are exceeded, or will be: read from the rows of `budget`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass
from typing import Any

from agent.alert import Fault, Symptom
from agent.alerting.rules.evaluator import Labels, Series, labels_of, where
from agent.calendar_step import CalendarStep
from agent.config_alerting import BudgetExceededRuleConfig, BudgetForecastRuleConfig
from agent.model import NS_PER_S, Event, Point

# A period that is over stands until its successor's first row, or for so long without one.
AFTER_NS = 1800 * NS_PER_S


@dataclass(slots=True)
class _Seen:
    """What a budget's last row said: since when it holds, until when it can, and the figures."""

    since_ns: int
    ends_ns: int
    value: float | None
    amount: float | None
    text: str
    is_next_period: bool = False


class _CalendarBudgets:
    """A rule over a flag of the rows of `budget`, which are free of flapping already."""

    flag = ""
    value = ""

    def __init__(self, rule: BudgetExceededRuleConfig | BudgetForecastRuleConfig) -> None:
        self._rule = rule
        self._seen: Series[_Seen] = Series()

    def observe(self, point: Point) -> None:
        """Takes a row of `budget`."""
        labels = labels_of(point.tags)
        ends_ns = point.fields.get("period_end_ns")
        if point.fields.get(self.flag) is not True or not isinstance(ends_ns, int):
            self._seen.pop(labels, None)
            return
        before = self._seen.get(labels)
        # What is exceeded in the next period too is told of anew: its incident ends in between.
        is_next = before is not None and (before.is_next_period or before.ends_ns != ends_ns)
        since_ns = point.time_ns if before is None or is_next else before.since_ns
        value, amount = point.fields.get(self.value), point.fields.get("amount")
        seen = _Seen(
            since_ns,
            ends_ns,
            value if isinstance(value, float) else None,
            amount if isinstance(amount, float) else None,
            str(point.fields.get("text", "")),
            is_next,
        )
        self._seen.keep(labels, seen)

    def notice(self, event: Event) -> None:
        """Budgets look at rows only."""

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the protocol
        """Each budget of which the flag is set."""
        found = []
        for labels, seen in self._seen.items():
            if not seen.is_next_period and time_ns < seen.ends_ns + AFTER_NS:
                found.append(self._symptom(labels, seen))
            seen.is_next_period = False
        return found

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar, which a period is of."""
        for seen in self._seen.values():
            seen.since_ns = step.of_ns(seen.since_ns)

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """The budgets of which the flag is set."""
        return [[list(labels), *astuple(seen)] for labels, seen in self._seen.items()]

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document."""
        for labels, *values in document:
            self._seen.keep(tuple((name, value) for name, value in labels), _Seen(*values))

    def _symptom(self, labels: Labels, seen: _Seen) -> Symptom:
        return Symptom(
            rule=self._rule.name,
            series=f"{self.value}{where(labels)}",
            text=seen.text,
            since_ns=seen.since_ns,
            value=seen.value,
            threshold=seen.amount,
            severity=self._rule.severity,
            labels=dict(labels),
        )


class ExceededBudgets(_CalendarBudgets):
    """A rule of kind `budget_exceeded` at work."""

    flag, value = "exceeded", "spent"


class ForecastBudgets(_CalendarBudgets):
    """A rule of kind `budget_forecast` at work."""

    flag, value = "forecast_exceeded", "forecast"
