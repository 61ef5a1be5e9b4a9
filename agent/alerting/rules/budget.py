"""Money that the devices cost in a rolling period, against what was planned."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agent.alert import Fault, Symptom
from agent.calendar_step import CalendarStep
from agent.config_alerting import BudgetRuleConfig
from agent.model import NS_PER_S, Event, Point
from agent.units import HOUR_S, format_duration

BUCKETS = 240


class Budget:
    """A budget rule at work: it adds up the `cost` of rows of `device`, in buckets of time."""

    def __init__(self, rule: BudgetRuleConfig) -> None:
        self._rule = rule
        self._bucket_ns = max(1, int(rule.per_s * NS_PER_S) // BUCKETS)
        self._spent: dict[int, float] = {}
        self._since_ns: int | None = None

    def observe(self, point: Point) -> None:
        """Takes a row of `device`; one in another currency is not added."""
        cost = point.fields.get("cost")
        if isinstance(cost, float) and point.tags.get("currency") in {None, self._rule.currency}:
            bucket = point.time_ns // self._bucket_ns
            self._spent[bucket] = self._spent.get(bucket, 0.0) + cost

    def notice(self, event: Event) -> None:
        """Budgets look at rows only."""

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the protocol
        """The budget, once it is spent."""
        rule = self._rule
        oldest = time_ns // self._bucket_ns - BUCKETS
        self._spent = {bucket: cost for bucket, cost in self._spent.items() if bucket > oldest}
        spent = sum(self._spent.values())
        limit = rule.amount * rule.warn_at
        if spent < limit:
            self._since_ns = None
            return []
        self._since_ns = self._since_ns or time_ns
        covered_s = (max(self._spent) - min(self._spent) + 1) * self._bucket_ns / NS_PER_S
        per_h = spent / covered_s * HOUR_S
        return [
            Symptom(
                rule=rule.name,
                series=f"budget {rule.name}",
                text=(
                    f"{spent:.2f} {rule.currency} were spent in the last"
                    f" {format_duration(rule.per_s)}, of {rule.amount:.2f} planned;"
                    f" {per_h:.2f} {rule.currency} an hour on average"
                ),
                since_ns=self._since_ns,
                value=spent,
                threshold=limit,
                severity=rule.severity,
            )
        ]

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        spent: dict[int, float] = {}
        for bucket, cost in self._spent.items():
            now = step.of_ns(bucket * self._bucket_ns) // self._bucket_ns
            spent[now] = spent.get(now, 0.0) + cost
        self._spent = spent
        if self._since_ns is not None:
            self._since_ns = step.of_ns(self._since_ns)

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """The buckets, with their length: another period begins anew."""
        spent = [[bucket, cost] for bucket, cost in self._spent.items()]
        return {"bucket_ns": self._bucket_ns, "spent": spent, "since_ns": self._since_ns}

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document."""
        if document["bucket_ns"] == self._bucket_ns:
            self._spent = {int(bucket): float(cost) for bucket, cost in document["spent"]}
            self._since_ns = document["since_ns"]
