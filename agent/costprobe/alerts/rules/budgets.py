"""Alert rules on budgets: cost over a rolling period, and a [[budget]] exceeded or forecast to be.

The two rules on a [[budget]] read rows of `budget`, whose flags are debounced by the budget
status.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from costprobe.alerts.rules.rule import Rule, RuleConfig, labels_of
from costprobe.alerts.rules.values import RollingSums
from costprobe.core.columns import number
from costprobe.core.config.fields import Currency, Duration, Name, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.money import cents, money
from costprobe.core.records import NS_PER_S, Point, Severity
from costprobe.core.units import HOUR_S, duration_words


class BudgetRuleConfig(RuleConfig):
    """Cost of the matching devices over a rolling period, compared with an amount."""

    kind: Literal["budget"] = Field(description="Kind of rule.", examples=["budget"])
    amount: float = Field(gt=0, description="Amount of money for a period.", examples=[60])
    currency: Currency = Field(
        "USD",
        description="ISO 4217 code; rows in another currency are not counted.",
        examples=["USD"],
    )
    per_s: Duration = key("per", 86400.0, description="Length of the rolling period.")
    warn_at: Share = Field(
        1.0, description="Share of the amount at which the rule fires.", examples=["80%"]
    )


class BudgetRule(Rule[BudgetRuleConfig, RollingSums]):
    """The state of a rule of kind `budget`: the sum of the `cost` of rows of `device`."""

    measurement = "device"
    state = RollingSums

    def observe(self, row: Point) -> None:
        """Add the cost of a row of `device`; rows in another currency are skipped."""
        cost = row.fields.get("cost")
        if isinstance(cost, float) and row.tags.get("currency") in {None, self.config.currency}:
            self.series.setdefault((), RollingSums()).add(row.time_ns, self.config.per_s, cost)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return a symptom while the cost is at or above the limit."""
        config = self.config
        sums = self.series.setdefault((), RollingSums())
        (spent,) = sums.since(time_ns, config.per_s) or (0.0,)
        limit = config.amount * config.warn_at
        if spent < limit:
            sums.since_at_ns = None
            return []
        sums.since_at_ns = sums.since_at_ns or time_ns
        used, planned = (cents(amount, config.currency) for amount in (spent, config.amount))
        per_h = money(spent / sums.covered_s(config.per_s) * HOUR_S, config.currency)
        text = (
            f"{used} were spent in the last {duration_words(config.per_s)},"
            f" of {planned} planned; {per_h} per hour on average"
        )
        series = f"budget {config.name}"
        return [self.symptom((), series, text, sums.since_at_ns, value=spent, threshold=limit)]


# After its end a period counts until the first row of the next, at most this long.
GRACE_NS = 1800 * NS_PER_S


class CalendarBudgetRule(Rule[RuleConfig, dict[str, Any]]):
    """A rule over a flag of the rows of `budget`: the last row of each whose flag is set.

    The end of its period is a date of the calendar, which a step of the wall clock does not move.

    Attributes:
        flag: Boolean field that fires.
        value: Field that is reported.
    """

    measurement = "budget"
    flag = ""
    value = ""

    def observe(self, row: Point) -> None:
        """Add a row of `budget`."""
        labels = labels_of(row.tags)
        ends_ns = row.fields.get("period_end_ns")
        if row.fields.get(self.flag) is not True or not isinstance(ends_ns, int):
            self.series.pop(labels, None)
            return
        before = self.series.get(labels)
        # A flag set in the next period too is a new incident: the old one resolves in between.
        is_next = bool(before and (before["is_next_period"] or before["ends_ns"] != ends_ns))
        flagged = {
            "since_at_ns": before["since_at_ns"] if before and not is_next else row.time_ns,
            "ends_ns": ends_ns,
            "value": number(row, self.value),
            "amount": number(row, "amount"),
            "text": str(row.fields.get("text", "")),
            "is_next_period": is_next,
        }
        self.series.put(labels, flagged)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each budget whose flag is set."""
        symptoms = []
        for labels, flagged in self.series.items():
            if not flagged["is_next_period"] and time_ns < flagged["ends_ns"] + GRACE_NS:
                since_ns, value, amount = (
                    flagged[name] for name in ("since_at_ns", "value", "amount")
                )
                symptoms.append(
                    self.symptom(
                        labels, self.value, flagged["text"], since_ns, value=value, threshold=amount
                    )
                )
            flagged["is_next_period"] = False
        return symptoms


class BudgetExceededRuleConfig(RuleConfig):
    """A [[budget]] that is exceeded; resolved when its period ends."""

    kind: Literal["budget_exceeded"] = Field(
        description="Kind of rule.", examples=["budget_exceeded"]
    )
    group_by: tuple[Name, ...] = Field(
        ("host", "budget"), description="Tags that distinguish incidents."
    )
    severity: Severity = Field("critical", description="Severity of the incidents.")


class BudgetExceededRule(CalendarBudgetRule):
    """The state of a rule of kind `budget_exceeded`."""

    flag, value = "exceeded", "spent"


class BudgetForecastRuleConfig(RuleConfig):
    """A [[budget]] that is forecast to be exceeded; at most once in a period."""

    kind: Literal["budget_forecast"] = Field(
        description="Kind of rule.", examples=["budget_forecast"]
    )
    group_by: tuple[Name, ...] = Field(
        ("host", "budget"), description="Tags that distinguish incidents."
    )


class BudgetForecastRule(CalendarBudgetRule):
    """The state of a rule of kind `budget_forecast`."""

    flag, value = "forecast_exceeded", "forecast"
