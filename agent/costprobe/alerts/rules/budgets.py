"""Alert rules on budgets: cost over a rolling period, and a [[budget]] exceeded or forecast to be.

The two rules on a [[budget]] read rows of `budget`, whose flags are debounced by the budget
status.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import Field

from costprobe.alerts.rules.rule import Labels, Rule, RuleConfig, SeriesTable, labels_of, where
from costprobe.core.config.fields import Currency, Duration, Name, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.money import money
from costprobe.core.records import NS_PER_S, Point, Severity
from costprobe.core.units import HOUR_S, format_duration

BUCKETS = 240


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


class BudgetRule(Rule):
    """The state of a rule of kind `budget`: sums of the `cost` of rows of `device` in time buckets."""

    measurement = "device"

    def __init__(self, config: BudgetRuleConfig) -> None:
        self._config = config
        self._bucket_ns = max(1, int(config.per_s * NS_PER_S) // BUCKETS)
        self._spent: dict[int, float] = {}
        self._since_ns: int | None = None

    def observe(self, row: Point) -> None:
        """Add the cost of a row of `device`; rows in another currency are skipped."""
        cost = row.fields.get("cost")
        if isinstance(cost, float) and row.tags.get("currency") in {None, self._config.currency}:
            self._add(row.time_ns, cost)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return a symptom while the cost is at or above the limit."""
        config = self._config
        oldest = time_ns // self._bucket_ns - BUCKETS
        self._spent = {bucket: cost for bucket, cost in self._spent.items() if bucket > oldest}
        spent = math.fsum(self._spent.values())
        limit = config.amount * config.warn_at
        if spent < limit:
            self._since_ns = None
            return []
        self._since_ns = self._since_ns or time_ns
        covered_s = (max(self._spent) - min(self._spent) + 1) * self._bucket_ns / NS_PER_S
        used, planned, per_h = (
            money(amount, config.currency)
            for amount in (spent, config.amount, spent / covered_s * HOUR_S)
        )
        return [
            Symptom(
                rule=config.name,
                series=f"budget {config.name}",
                text=(
                    f"{used} were spent in the last {format_duration(config.per_s)},"
                    f" of {planned} planned; {per_h} per hour on average"
                ),
                since_ns=self._since_ns,
                value=spent,
                threshold=limit,
                severity=config.severity,
            )
        ]

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the buckets with their length: a changed period starts from zero."""
        return {
            "bucket_ns": self._bucket_ns,
            "spent_at_ns": [bucket * self._bucket_ns for bucket in self._spent],
            "spent": list(self._spent.values()),
            "since_at_ns": self._since_ns,
        }

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state of the same bucket length."""
        if document["bucket_ns"] != self._bucket_ns:
            return
        self._spent = {}
        for time_ns, cost in zip(document["spent_at_ns"], document["spent"], strict=True):
            self._add(time_ns, cost)
        self._since_ns = document["since_at_ns"]

    def _add(self, time_ns: int, cost: float) -> None:
        bucket = time_ns // self._bucket_ns
        self._spent[bucket] = self._spent.get(bucket, 0.0) + cost


# After its end a period counts until the first row of the next, at most this long.
GRACE_NS = 1800 * NS_PER_S


@dataclass(slots=True)
class _FlaggedBudget:
    """The last row of a budget whose flag is set: its start, the end of its period, its figures.

    The end is a date of the calendar, which a step of the wall clock does not move.
    """

    since_at_ns: int
    ends_ns: int
    value: float | None
    amount: float | None
    text: str
    is_next_period: bool = False


class CalendarBudgetRule(Rule):
    """A rule over a flag of the rows of `budget`.

    Attributes:
        flag: Boolean field that fires.
        value: Field that is reported.
    """

    measurement = "budget"
    flag = ""
    value = ""

    def __init__(self, config: RuleConfig) -> None:
        self._config = config
        self._flagged: SeriesTable[_FlaggedBudget] = SeriesTable()

    def observe(self, row: Point) -> None:
        """Add a row of `budget`."""
        labels = labels_of(row.tags)
        ends_ns = row.fields.get("period_end_ns")
        if row.fields.get(self.flag) is not True or not isinstance(ends_ns, int):
            self._flagged.pop(labels, None)
            return
        before = self._flagged.get(labels)
        # A flag set in the next period too is a new incident: the old one resolves in between.
        is_next = before is not None and (before.is_next_period or before.ends_ns != ends_ns)
        since_ns = row.time_ns if before is None or is_next else before.since_at_ns
        value, amount = row.fields.get(self.value), row.fields.get("amount")
        flagged = _FlaggedBudget(
            since_ns,
            ends_ns,
            value if isinstance(value, float) else None,
            amount if isinstance(amount, float) else None,
            str(row.fields.get("text", "")),
            is_next,
        )
        self._flagged.put(labels, flagged)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each budget whose flag is set."""
        symptoms = []
        for labels, flagged in self._flagged.items():
            if not flagged.is_next_period and time_ns < flagged.ends_ns + GRACE_NS:
                symptoms.append(self._symptom(labels, flagged))
            flagged.is_next_period = False
        return symptoms

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the budgets whose flag is set."""
        return self._flagged.document(asdict)

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state."""
        self._flagged.restore(document, _FlaggedBudget)

    def _symptom(self, labels: Labels, flagged: _FlaggedBudget) -> Symptom:
        return Symptom(
            rule=self._config.name,
            series=f"{self.value}{where(labels)}",
            text=flagged.text,
            since_ns=flagged.since_at_ns,
            value=flagged.value,
            threshold=flagged.amount,
            severity=self._config.severity,
            labels=dict(labels),
        )


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
