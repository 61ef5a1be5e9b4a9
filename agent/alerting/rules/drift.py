"""A lasting change of a watched series, from the event that tells it to its return."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agent.alert import Fault, Symptom
from agent.alerting.rules.evaluator import MAX_SERIES, labels_of, where
from agent.calendar_step import CalendarStep
from agent.config_alerting import DriftRuleConfig
from agent.model import NS_PER_S, Event, Point

# Smaller than this share of the least change, it has returned.
RETURNED_SHARE = 0.5


class Drift:
    """A drift rule at work."""

    def __init__(self, rule: DriftRuleConfig) -> None:
        self._rule = rule
        self._active: dict[str, dict[str, Any]] = {}

    def observe(self, point: Point) -> None:
        """Drifts come as events."""

    def notice(self, event: Event) -> None:
        """Takes a drift: a new one, a further one, or a return."""
        rule = self._rule
        tags = {**event.subject, "device": event.device}
        if event.kind != "drift" or event.metric not in rule.metrics:
            return
        labels = labels_of(tags)
        series = f"{event.metric}{where(labels)}"
        level_pct = event.level_pct if event.level_pct is not None else event.change_pct or 0.0
        least_pct = rule.at_least * 100
        if abs(level_pct) < RETURNED_SHARE * least_pct:
            self._active.pop(series, None)
            return
        before = self._active.get(series)
        fits = rule.direction == "both" or (rule.direction == "up") == (level_pct > 0)
        if before is None and (abs(level_pct) < least_pct or not fits):
            return
        if before is not None and not fits:
            del self._active[series]
            return
        since_ns = event.since_ns if event.since_ns is not None else event.time_ns
        self._active[series] = {
            "labels": dict(labels),
            "level_pct": level_pct,
            "since_ns": since_ns if before is None else before["since_ns"],
            "told_ns": event.time_ns,
            # What moved on is told with the reason why it began to.
            "text": event.detail or f"{event.title}{_reason(before)}",
            "began": before["began"] if before else event.detail or event.title,
            # A change for the better is worth knowing and nothing to be woken for.
            "severity": "info" if event.severity == "info" else rule.severity,
            "cause": event.cause or (before or {}).get("cause", ""),
        }
        while len(self._active) > MAX_SERIES:
            del self._active[next(iter(self._active))]

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the protocol
        """The drifts that have neither returned nor become normal."""
        rule = self._rule
        accept_ns = int(rule.accept_after_s * NS_PER_S)
        for series in [
            series
            for series, drift in self._active.items()
            if time_ns - drift["told_ns"] > accept_ns
        ]:
            del self._active[series]
        return [
            Symptom(
                rule=rule.name,
                series=series,
                text=drift["text"],
                since_ns=drift["since_ns"],
                value=drift["level_pct"],
                threshold=rule.at_least * 100,
                cause=drift["cause"],
                severity=drift["severity"],
                labels=drift["labels"],
            )
            for series, drift in self._active.items()
        ]

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        for drift in self._active.values():
            for key in ("since_ns", "told_ns"):
                drift[key] = step.of_ns(drift[key])

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """The drifts that hold."""
        return self._active

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document."""
        self._active = {str(series): dict(drift) for series, drift in document.items()}


def _reason(before: dict[str, Any] | None) -> str:
    return f"; it began so: {before['began']}" if before else ""
