"""Cost of devices over a rolling period, compared with an amount."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from costprobe.core.config.fields import Currency, Duration, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.money_text import money
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import HOUR_S, format_duration
from costprobe.domain.alerting.rules.rule import Rule, RuleConfig

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
