"""A series without a new row for several of its usual intervals."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Literal

from pydantic import Field

from costprobe.core.config.fields import Duration, key
from costprobe.core.device_names import TOGETHER
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
    """A series without a new row for several of its usual intervals."""

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


@dataclass(frozen=True, slots=True)
class _LastRow:
    """The last row of a series.

    Attributes:
        last_at_ns: Its time, UTC ns.
        intervals_ns: The last intervals between rows.
        is_silent: Whether the series is absent; it stays so until its next row.
        is_resumed: True after a restart or a clock step: the time until the next row is no interval.
    """

    last_at_ns: int
    intervals_ns: Sequence[int] = ()
    is_silent: bool = False
    is_resumed: bool = False


class AbsenceRule(Rule):
    """The state of a rule of kind `absence`."""

    def __init__(self, config: AbsenceRuleConfig) -> None:
        self.measurement = config.measurement
        self._config = config
        self._last_rows: SeriesTable[_LastRow] = SeriesTable()
        self._is_resumed = False
        self._resumed_ns = 0

    def observe(self, row: Point) -> None:
        """Add a row of the configured measurement."""
        labels = labels_of(row.tags)
        before = self._last_rows.get(labels)
        if before is None:
            self._last_rows.put(labels, _LastRow(row.time_ns))
        elif row.time_ns > before.last_at_ns:
            intervals_ns = before.intervals_ns
            if not before.is_resumed:
                intervals_ns = [*intervals_ns, row.time_ns - before.last_at_ns][-INTERVALS:]
            self._last_rows.put(labels, _LastRow(row.time_ns, intervals_ns))

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each series without rows; downtime of the daemon does not count."""
        config = self._config
        if self._is_resumed:
            self._is_resumed, self._resumed_ns = False, time_ns
        forget_ns = int(config.forget_after_s * NS_PER_S)
        symptoms = []
        for labels, last_row in list(self._last_rows.items()):
            last_ns = last_row.last_at_ns
            if time_ns - last_ns > forget_ns:
                del self._last_rows[labels]
            elif len(last_row.intervals_ns) >= MIN_INTERVALS:
                usual_ns = median(last_row.intervals_ns)
                longest_ns = max(config.at_least_s * NS_PER_S, config.intervals * usual_ns)
                if last_row.is_silent or time_ns - max(last_ns, self._resumed_ns) > longest_ns:
                    self._last_rows[labels] = replace(last_row, is_silent=True)
                    symptoms.append(self._symptom(labels, last_ns, usual_ns, time_ns))
        return symptoms

    def forget_device(self, device: str) -> None:
        """Drop the series of a device that was removed: no rows of it are expected."""
        for labels in list(self._last_rows):
            if device in dict(labels).get("device", "").split(TOGETHER):
                del self._last_rows[labels]

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the last row and the intervals of each series."""
        return self._last_rows.document(
            lambda last_row: {
                "last_at_ns": last_row.last_at_ns,
                "intervals_ns": list(last_row.intervals_ns),
                "is_silent": last_row.is_silent,
            }
        )

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state; gaps are measured from the next evaluation on."""
        self._last_rows.restore(document, partial(_LastRow, is_resumed=True))
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
                f" usually one every {format_duration(usual_s)}"
            ),
            since_ns=last_ns,
            value=silent_s,
            severity=config.severity,
            labels=dict(labels),
        )
