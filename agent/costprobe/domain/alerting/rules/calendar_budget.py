"""Shared part of the rules over rows of `budget`, whose flags are debounced by the budget status."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import NS_PER_S, Point
from costprobe.domain.alerting.rules.rule import (
    Labels,
    Rule,
    RuleConfig,
    SeriesTable,
    labels_of,
    where,
)

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
