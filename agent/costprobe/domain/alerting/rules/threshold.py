"""A field above or below a fixed value, with hysteresis."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from costprobe.core.config.fields import Name
from costprobe.core.incident import Fault, Symptom
from costprobe.core.money_text import field_text
from costprobe.core.records import NS_PER_S, Point
from costprobe.domain.alerting.rules.compared_field import MeasurementName, numeric_field
from costprobe.domain.alerting.rules.rule import (
    Labels,
    Rule,
    RuleConfig,
    SeriesTable,
    labels_of,
    where,
)
from costprobe.domain.detection.causes import action_of

# Fields that are a cause themselves, whose messages say what to do.
CAUSES = {
    "throttled_thermal_pct": "thermal throttling",
    "throttle_thermal_s": "thermal throttling",
    "throttled_power_pct": "power limit",
    "throttle_power_s": "power limit",
    "temp_c": "temperature",
    "temp_max_c": "temperature",
}
# A value is valid for this many intervals of its series; after that it is stale.
VALID_INTERVALS = 4
VALID_AT_LEAST_NS = 60 * NS_PER_S
INTERVAL_GAIN = 0.2


class ThresholdRuleConfig(RuleConfig):
    """A field above or below a fixed value; resolved beyond `clear`, by default the same value."""

    kind: Literal["threshold"] = Field(description="Kind of rule.", examples=["threshold"])
    measurement: MeasurementName = Field(
        description="Measurement of the series.", examples=["device"]
    )
    field: Name = Field(description="Field that is compared.", examples=["power_w"])
    above: float | None = Field(None, description="Fires above this value.", examples=[350])
    below: float | None = Field(None, description="Fires below this value.", examples=[50])
    clear: float | None = Field(
        None,
        description="Resolved at this value; by default at `above` or `below`.",
        examples=[320],
    )

    @field_validator("field")
    @classmethod
    def _is_numeric(cls, field: str, info: ValidationInfo) -> str:
        return numeric_field(info.data.get("measurement"), field)

    @model_validator(mode="after")
    def _one_side(self) -> ThresholdRuleConfig:
        if (self.above is None) == (self.below is None):
            raise ValueError("give above or below, one of them")
        if self.clear is not None:
            if self.above is not None and self.clear > self.above:
                raise ValueError("clear must not be higher than above")
            if self.below is not None and self.clear < self.below:
                raise ValueError("clear must not be lower than below")
        return self


@dataclass(slots=True)
class _LastValue:
    """The last value of a series, the mean interval, the start of the violation, time and currency.

    The time is None after a restart or a clock step: the time until the next row is no interval.
    The limit is the last one that was violated: a reload may have changed the rule's since.
    """

    value: float
    limit: float
    interval_ns: float = 0.0
    since_at_ns: int | None = None
    last_ns: int | None = None
    currency: str = ""

    @property
    def valid_ns(self) -> float:
        """Validity of the value in ns."""
        return max(VALID_AT_LEAST_NS, VALID_INTERVALS * self.interval_ns)

    def add_interval(self, step_ns: int) -> None:
        """Update the mean interval with the ns between two rows; gaps count at most `valid_ns`."""
        if self.interval_ns:
            step_ns = min(step_ns, round(self.valid_ns))
        gain = INTERVAL_GAIN if self.interval_ns else 1.0
        self.interval_ns += gain * (step_ns - self.interval_ns)


class ThresholdRule(Rule):
    """The state of a rule of kind `threshold`."""

    def __init__(self, config: ThresholdRuleConfig) -> None:
        self.measurement = config.measurement
        self._config = config
        self._sign = 1 if config.above is not None else -1
        limit = config.above if config.above is not None else config.below
        self._limit = float(limit or 0.0)
        self._clear = self._limit if config.clear is None else config.clear
        self._last_values: SeriesTable[_LastValue] = SeriesTable()
        self._is_resumed = False
        self._resumed_ns = 0

    def observe(self, row: Point) -> None:
        """Add a row of the configured measurement."""
        value = row.fields.get(self._config.field)
        if not isinstance(value, int | float):
            return
        labels = labels_of(row.tags)
        last_value = self._last_values.get(labels)
        if last_value is None:
            last_value = _LastValue(float(value), self._limit)
        elif last_value.last_ns is not None and row.time_ns > last_value.last_ns:
            last_value.add_interval(row.time_ns - last_value.last_ns)
        last_value.value, last_value.last_ns = float(value), row.time_ns
        last_value.currency = row.tags.get("currency", "")
        if self._sign * (last_value.value - self._limit) > 0:
            last_value.since_at_ns = last_value.since_at_ns or row.time_ns
            last_value.limit = self._limit
        elif self._sign * (last_value.value - self._clear) <= 0:
            last_value.since_at_ns = None
        self._last_values.put(labels, last_value)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each violating series whose value is not stale; downtime of the daemon does not count."""
        if self._is_resumed:
            self._is_resumed, self._resumed_ns = False, time_ns
        return [
            self._symptom(labels, last_value, last_value.since_at_ns)
            for labels, last_value in self._last_values.items()
            if last_value.since_at_ns is not None
            if time_ns - max(last_value.last_ns or 0, self._resumed_ns) <= last_value.valid_ns
        ]

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the last value of each series."""
        return self._last_values.document(
            lambda last_value: {
                "value": last_value.value,
                "limit": last_value.limit,
                "interval_ns": last_value.interval_ns,
                "since_at_ns": last_value.since_at_ns,
                "currency": last_value.currency,
            }
        )

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state; validity counts from the next evaluation on."""
        self._last_values.restore(document, _LastValue)
        self._is_resumed = True

    def _symptom(self, labels: Labels, last_value: _LastValue, since_ns: int) -> Symptom:
        config = self._config
        side = "above" if self._sign > 0 else "below"
        series = f"{config.field}{where(labels)}"
        value, limit, clear = (
            field_text(config.measurement, config.field, number, last_value.currency)
            for number in (last_value.value, last_value.limit, self._clear)
        )
        is_beyond = self._sign * (last_value.value - last_value.limit) > 0
        return Symptom(
            rule=config.name,
            series=series,
            text=f"{series} is {value}, {side} {limit}"
            if is_beyond
            else f"{series} is {value} and was {side} {limit}; resolved at {clear}",
            detail=f"To do: {action_of(cause)}" if (cause := CAUSES.get(config.field)) else "",
            since_ns=since_ns,
            value=last_value.value,
            threshold=last_value.limit,
            severity=config.severity,
            labels=dict(labels),
        )
