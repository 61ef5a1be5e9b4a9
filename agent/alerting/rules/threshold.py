"""A field above or below a fixed value, with hysteresis."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass
from typing import Any

from agent.alert import Fault, Symptom
from agent.alerting.rules.evaluator import Labels, Series, labels_of, where
from agent.calendar_step import CalendarStep
from agent.config_alerting import ThresholdRuleConfig
from agent.model import NS_PER_S, Event, Point

# A value holds for so many of its series' intervals; after that nobody knows.
HOLDS_INTERVALS = 4
HOLDS_AT_LEAST_NS = 60 * NS_PER_S
INTERVAL_GAIN = 0.2


@dataclass(slots=True)
class _Seen:
    """The last value of a series: what, when, how often, and since when it is beyond."""

    value: float
    last_ns: int
    interval_ns: float = 0.0
    since_ns: int | None = None

    @property
    def holds_ns(self) -> float:
        """For how many ns the value holds."""
        return max(HOLDS_AT_LEAST_NS, HOLDS_INTERVALS * self.interval_ns)

    def learn(self, step_ns: int) -> None:
        """Takes the ns between two rows; of a hole, as where the calendar was stepped, a part."""
        if self.interval_ns:
            step_ns = min(step_ns, round(self.holds_ns))
        gain = INTERVAL_GAIN if self.interval_ns else 1.0
        self.interval_ns += gain * (step_ns - self.interval_ns)


class Threshold:
    """A threshold rule at work."""

    def __init__(self, rule: ThresholdRuleConfig) -> None:
        self._rule = rule
        self._sign = 1 if rule.above is not None else -1
        limit = rule.above if rule.above is not None else rule.below
        self._limit = float(limit or 0.0)
        self._clear = self._limit if rule.clear is None else rule.clear
        self._seen: Series[_Seen] = Series()
        self._is_resumed = False
        self._resumed_ns = 0

    def observe(self, point: Point) -> None:
        """Takes a row of the rule's measurement."""
        value = point.fields.get(self._rule.field)
        if not isinstance(value, int | float):
            return
        labels = labels_of(point.tags)
        seen = self._seen.get(labels)
        if seen is None:
            seen = _Seen(float(value), point.time_ns)
        else:
            step_ns = point.time_ns - seen.last_ns
            if step_ns > 0:  # else the clock was set back
                seen.learn(step_ns)
            seen.value, seen.last_ns = float(value), point.time_ns
        if seen.since_ns is None:
            if self._sign * (seen.value - self._limit) > 0:
                seen.since_ns = point.time_ns
        elif self._sign * (seen.value - self._clear) <= 0:
            seen.since_ns = None
        self._seen.keep(labels, seen)

    def notice(self, event: Event) -> None:
        """Thresholds look at rows only."""

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the protocol
        """Each series that is beyond, and whose value is not stale; our own silence is none."""
        if self._is_resumed:
            self._is_resumed, self._resumed_ns = False, time_ns
        return [
            self._symptom(labels, seen, seen.since_ns)
            for labels, seen in self._seen.items()
            if seen.since_ns is not None
            if time_ns - max(seen.last_ns, self._resumed_ns) <= seen.holds_ns
        ]

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar: values are no older for the time that was skipped."""
        self._resumed_ns += step.by_ns
        for seen in self._seen.values():
            seen.last_ns += step.by_ns
            if seen.since_ns is not None:
                seen.since_ns = step.of_ns(seen.since_ns)

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Each series' last value."""
        return [[list(labels), *astuple(seen)] for labels, seen in self._seen.items()]

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document; values hold anew from the next tick on."""
        for labels, *values in document:
            self._seen.keep(tuple((name, value) for name, value in labels), _Seen(*values))
        self._is_resumed = True

    def _symptom(self, labels: Labels, seen: _Seen, since_ns: int) -> Symptom:
        rule = self._rule
        side = "above" if self._sign > 0 else "below"
        series = f"{rule.field}{where(labels)}"
        return Symptom(
            rule=rule.name,
            series=series,
            text=f"{series} is {seen.value:.6g}, {side} {self._limit:.6g}",
            since_ns=since_ns,
            value=seen.value,
            threshold=self._limit,
            severity=rule.severity,
            labels=dict(labels),
        )
