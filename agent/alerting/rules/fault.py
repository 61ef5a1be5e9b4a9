"""A part of infercost or of the host that does not work."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agent.alert import Fault, Symptom
from agent.calendar_step import CalendarStep
from agent.config_alerting import FaultRuleConfig
from agent.model import Event, Point


class Faults:
    """A fault rule at work: a fault's own severity holds unless the rule sets one."""

    def __init__(self, rule: FaultRuleConfig) -> None:
        self._rule = rule
        self._has_severity = "severity" in rule.model_fields_set
        self._since_ns: dict[str, int] = {}

    def observe(self, point: Point) -> None:
        """Faults are told at each tick."""

    def notice(self, event: Event) -> None:
        """Faults are told at each tick."""

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:
        """The faults that the rule looks at."""
        rule = self._rule
        wanted = {
            f"{fault.name} {fault.subject}".strip(): fault
            for fault in faults
            if rule.faults is None or fault.name in rule.faults
        }
        self._since_ns = {series: self._since_ns.get(series, time_ns) for series in wanted}
        return [
            Symptom(
                rule=rule.name,
                series=series,
                text=fault.text,
                since_ns=self._since_ns[series],
                cause=fault.name,
                severity=rule.severity if self._has_severity else fault.severity,
                labels=dict(fault.labels),
            )
            for series, fault in wanted.items()
        ]

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        self._since_ns = {series: step.of_ns(at_ns) for series, at_ns in self._since_ns.items()}

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Since when each fault is there."""
        return self._since_ns

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document."""
        self._since_ns = {str(series): int(since_ns) for series, since_ns in document.items()}
