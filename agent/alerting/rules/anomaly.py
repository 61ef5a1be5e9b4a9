"""Single values far from all others, until none came for a while."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agent.alert import Fault, Symptom
from agent.alerting.rules.evaluator import MAX_SERIES, labels_of, where
from agent.calendar_step import CalendarStep
from agent.config_alerting import AnomalyRuleConfig
from agent.model import NS_PER_S, Event, Point

MAX_TIMES = 1000


class Anomaly:
    """An anomaly rule at work."""

    def __init__(self, rule: AnomalyRuleConfig) -> None:
        self._rule = rule
        self._seen: dict[str, dict[str, Any]] = {}

    def observe(self, point: Point) -> None:
        """Anomalies come as events."""

    def notice(self, event: Event) -> None:
        """Takes an anomaly."""
        tags = {**event.subject, "device": event.device}
        if event.kind != "anomaly" or event.metric not in self._rule.metrics:
            return
        labels = labels_of(tags)
        series = f"{event.metric}{where(labels)}"
        seen = self._seen.pop(series, {"times_ns": []})
        # After a restart an event may be told once more.
        times_ns = [at_ns for at_ns in seen["times_ns"] if at_ns != event.time_ns]
        self._seen[series] = {
            "labels": dict(labels),
            "times_ns": [*times_ns, event.time_ns][-MAX_TIMES:],
            "text": f"{event.title} ({event.detail})",
            "cause": event.cause,
            "change_pct": event.change_pct,
        }
        while len(self._seen) > MAX_SERIES:
            del self._seen[next(iter(self._seen))]

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the protocol
        """Each series with enough of them lately."""
        rule = self._rule
        since_ns = time_ns - int(rule.within_s * NS_PER_S)
        found = []
        for series, seen in list(self._seen.items()):
            seen["times_ns"] = [at_ns for at_ns in seen["times_ns"] if at_ns >= since_ns]
            if not seen["times_ns"]:
                del self._seen[series]
            elif len(seen["times_ns"]) >= rule.at_least:
                found.append(
                    Symptom(
                        rule=rule.name,
                        series=series,
                        text=seen["text"],
                        since_ns=seen["times_ns"][0],
                        value=seen["change_pct"],
                        cause=seen["cause"],
                        severity=rule.severity,
                        labels=seen["labels"],
                    )
                )
        return found

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        for seen in self._seen.values():
            seen["times_ns"] = [step.of_ns(at_ns) for at_ns in seen["times_ns"]]

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """The anomalies that still count."""
        return self._seen

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document."""
        self._seen = {str(series): dict(seen) for series, seen in document.items()}
