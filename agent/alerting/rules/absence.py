"""A series that was there and has been silent for several of its own intervals."""

from __future__ import annotations

from collections.abc import Collection
from statistics import median
from typing import Any

from agent.alert import Fault, Symptom
from agent.alerting.rules.evaluator import Labels, Series, labels_of, where
from agent.calendar_step import CalendarStep
from agent.config_alerting import AbsenceRuleConfig
from agent.model import NS_PER_S, Event, Point
from agent.units import format_duration

# From so many intervals on, a series' own is known.
LEAST_INTERVALS = 2
INTERVALS = 11
MINUTE_S = 60


class Absence:
    """An absence rule at work."""

    def __init__(self, rule: AbsenceRuleConfig) -> None:
        self._rule = rule
        # For each series the UTC ns of its last row, and its last intervals in ns.
        self._seen: Series[tuple[int, list[int]]] = Series()
        self._is_resumed = False
        self._resumed_ns = 0

    def observe(self, point: Point) -> None:
        """Takes a row of the rule's measurement."""
        labels = labels_of(point.tags)
        last_ns, intervals = self._seen.get(labels, (None, []))
        if last_ns is None:
            self._seen.keep(labels, (point.time_ns, []))
        elif point.time_ns > last_ns:
            step_ns = point.time_ns - last_ns
            self._seen.keep(labels, (point.time_ns, [*intervals, step_ns][-INTERVALS:]))

    def notice(self, event: Event) -> None:
        """Absence looks at rows only."""

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the protocol
        """Each series that is missed; a silence of our own does not count."""
        rule = self._rule
        if self._is_resumed:
            self._is_resumed, self._resumed_ns = False, time_ns
        forget_ns = int(rule.forget_after_s * NS_PER_S)
        found = []
        for labels, (last_ns, intervals) in list(self._seen.items()):
            if time_ns - last_ns > forget_ns:
                del self._seen[labels]
            elif len(intervals) >= LEAST_INTERVALS:
                usual_ns = median(intervals)
                patience_ns = max(rule.at_least_s * NS_PER_S, rule.intervals * usual_ns)
                if time_ns - max(last_ns, self._resumed_ns) > patience_ns:
                    found.append(self._symptom(labels, last_ns, usual_ns, time_ns))
        return found

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar: none was silent for the time that was skipped."""
        self._resumed_ns += step.by_ns
        for labels, (last_ns, intervals) in self._seen.items():
            self._seen[labels] = (last_ns + step.by_ns, intervals)

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """When each series was seen last, and how often it comes."""
        return [[list(labels), *seen] for labels, seen in self._seen.items()]

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document; patience begins anew with the next tick."""
        for labels, last_ns, intervals in document:
            key = tuple((name, value) for name, value in labels)
            self._seen.keep(key, (int(last_ns), [int(step_ns) for step_ns in intervals]))
        self._is_resumed = True

    def _symptom(self, labels: Labels, last_ns: int, usual_ns: float, time_ns: int) -> Symptom:
        rule = self._rule
        series = f"{rule.measurement}{where(labels)}"
        silent_s = (time_ns - last_ns) / NS_PER_S
        told_s = round(silent_s / MINUTE_S) * MINUTE_S if silent_s >= 2 * MINUTE_S else silent_s
        usual_s = max(1, round(usual_ns / NS_PER_S))
        return Symptom(
            rule=rule.name,
            series=series,
            text=(
                f"no row of {series} for {format_duration(round(told_s))};"
                f" one every {format_duration(usual_s)} is usual"
            ),
            since_ns=last_ns,
            value=silent_s,
            severity=rule.severity,
            labels=dict(labels),
        )
