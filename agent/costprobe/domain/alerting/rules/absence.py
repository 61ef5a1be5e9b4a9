"""A series that existed and has had no row for several of its own intervals."""

from __future__ import annotations

from collections.abc import Collection
from statistics import median
from typing import Any, Literal

from pydantic import Field

from costprobe.core.clock_step import ClockStep
from costprobe.core.config.fields import Duration, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import format_duration
from costprobe.domain.alerting.rules.compared_field import MeasurementName
from costprobe.domain.alerting.rules.rule import (
    Labels,
    Rule,
    RuleConfig,
    SeriesTable,
    labels_of,
    where,
)

# Fewest intervals from which the usual interval of a series is known.
MIN_INTERVALS = 2
INTERVALS = 11
MINUTE_S = 60


class AbsenceRuleConfig(RuleConfig):
    """A series that existed and has had no row for several of its own intervals."""

    kind: Literal["absence"] = Field(description="Kind of rule.", examples=["absence"])
    measurement: MeasurementName = Field(
        description="Measurement of the series.", examples=["probe"]
    )
    intervals: float = Field(
        5,
        ge=2,
        le=10_000,
        description="Number of a series' usual intervals that may pass without a row.",
    )
    at_least_s: Duration = key("at_least", 60.0, description="Shortest gap that counts.")
    forget_after_s: Duration = key(
        "forget_after", 7 * 86400.0, description="When a silent series is dropped."
    )


class AbsenceRule(Rule):
    """The state of a rule of kind `absence`."""

    def __init__(self, config: AbsenceRuleConfig) -> None:
        self.measurement = config.measurement
        self._config = config
        # Series -> UTC ns of its last row, and its last intervals in ns.
        self._seen: SeriesTable[tuple[int, list[int]]] = SeriesTable()
        self._is_resumed = False
        self._resumed_ns = 0

    def observe(self, row: Point) -> None:
        """Add a row of the configured measurement."""
        labels = labels_of(row.tags)
        last_ns, intervals = self._seen.get(labels, (None, []))
        if last_ns is None:
            self._seen.put(labels, (row.time_ns, []))
        elif row.time_ns > last_ns:
            step_ns = row.time_ns - last_ns
            self._seen.put(labels, (row.time_ns, [*intervals, step_ns][-INTERVALS:]))

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each series without rows; downtime of the daemon does not count."""
        config = self._config
        if self._is_resumed:
            self._is_resumed, self._resumed_ns = False, time_ns
        forget_ns = int(config.forget_after_s * NS_PER_S)
        found = []
        for labels, (last_ns, intervals) in list(self._seen.items()):
            if time_ns - last_ns > forget_ns:
                del self._seen[labels]
            elif len(intervals) >= MIN_INTERVALS:
                usual_ns = median(intervals)
                longest_ns = max(config.at_least_s * NS_PER_S, config.intervals * usual_ns)
                if time_ns - max(last_ns, self._resumed_ns) > longest_ns:
                    found.append(self._symptom(labels, last_ns, usual_ns, time_ns))
        return found

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants: the step is not a gap of any series."""
        self._resumed_ns += step.by_ns
        for labels, (last_ns, intervals) in self._seen.items():
            self._seen[labels] = (last_ns + step.by_ns, intervals)

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the last row and the intervals of each series."""
        return [[list(labels), *seen] for labels, seen in self._seen.items()]

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state; gaps are measured from the next evaluation on."""
        for labels, last_ns, intervals in document:
            key = tuple((name, value) for name, value in labels)
            self._seen.put(key, (int(last_ns), [int(step_ns) for step_ns in intervals]))
        self._is_resumed = True

    def _symptom(self, labels: Labels, last_ns: int, usual_ns: float, time_ns: int) -> Symptom:
        config = self._config
        series = f"{config.measurement}{where(labels)}"
        silent_s = (time_ns - last_ns) / NS_PER_S
        shown_s = round(silent_s / MINUTE_S) * MINUTE_S if silent_s >= 2 * MINUTE_S else silent_s
        usual_s = max(1, round(usual_ns / NS_PER_S))
        return Symptom(
            rule=config.name,
            series=series,
            text=(
                f"no row of {series} for {format_duration(round(shown_s))};"
                f" one every {format_duration(usual_s)} is usual"
            ),
            since_ns=last_ns,
            value=silent_s,
            severity=config.severity,
            labels=dict(labels),
        )
