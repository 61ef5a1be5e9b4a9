"""Alert rules on values of a series: threshold with hysteresis, absence, and service level (SLO).

A series is absent without a new row for several of its usual intervals. A service level is a
share of probe runs that must stay within a latency, over a rolling window.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from costprobe.alerts.rules.rule import (
    UNMEASURED,
    Labels,
    MeasurementName,
    Rule,
    RuleConfig,
    SeriesTable,
    labels_of,
    numeric_field,
    over,
    over_until,
    span_text,
    where,
)
from costprobe.core.config.fields import Duration, Name, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.money import field_text
from costprobe.core.records import NS_PER_S, TOGETHER, Point
from costprobe.core.units import format_duration
from costprobe.drift.actions import action_of

# Fewest intervals from which the usual interval of a series is known.
MIN_INTERVALS = 2
INTERVALS = 11
# A series that is silent for longer is dropped.
FORGET_NS = 7 * 86_400 * NS_PER_S
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

    removed: ClassVar = {"forget_after": "a series that is silent for a week is dropped"}


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
        symptoms = []
        for labels, last_row in list(self._last_rows.items()):
            last_ns = last_row.last_at_ns
            if time_ns - last_ns > FORGET_NS:
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
        return self._last_rows.document(asdict)

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state; gaps are measured from the next evaluation on."""
        self._last_rows.restore(document, lambda **row: _LastRow(**{**row, "is_resumed": True}))
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


BUCKETS = 240


class SloRuleConfig(RuleConfig):
    """A share of probe runs that must stay within a latency, over a rolling window."""

    kind: Literal["slo"] = Field(description="Kind of rule.", examples=["slo"])
    field: Name = Field("latency_p90_ms", description="Field of `probe` that is compared.")
    within_ms: float = Field(gt=0, description="Longest acceptable latency in ms.", examples=[12])
    objective: Share = Field(
        0.99, description="Share of runs that must be within it.", examples=["99%"]
    )
    window_s: Duration = key(
        "window", 86400.0, description="Rolling window over which runs are counted."
    )
    min_runs: int = Field(12, ge=1, le=100_000, description="Fewest runs for an evaluation.")

    @field_validator("field")
    @classmethod
    def _is_numeric(cls, field: str) -> str:
        return numeric_field("probe", field)


class SloRule(Rule):
    """The state of a rule of kind `slo`: counts of runs in time buckets."""

    measurement = "probe"

    def __init__(self, config: SloRuleConfig) -> None:
        self._config = config
        self._bucket_ns = max(1, int(config.window_s * NS_PER_S) // BUCKETS)
        # Series -> bucket -> [good runs, all runs].
        self._runs: SeriesTable[dict[int, list[int]]] = SeriesTable()
        self._since_ns: dict[str, int] = {}

    def observe(self, row: Point) -> None:
        """Add a row of `probe`."""
        value = row.fields.get(self._config.field)
        if not isinstance(value, int | float):
            return
        labels = labels_of(row.tags)
        buckets = self._runs.get(labels, {})
        self._count(buckets, row.time_ns, int(value <= self._config.within_ms), 1)
        self._runs.put(labels, buckets)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each series that misses its objective."""
        config = self._config
        oldest = time_ns // self._bucket_ns - BUCKETS
        symptoms = []
        since_ns: dict[str, int] = {}
        for labels, buckets in list(self._runs.items()):
            in_window = {bucket: counts for bucket, counts in buckets.items() if bucket > oldest}
            if not in_window:
                del self._runs[labels]
                continue
            self._runs[labels] = in_window
            good, runs = (sum(counts[i] for counts in in_window.values()) for i in (0, 1))
            if runs < config.min_runs or good >= config.objective * runs:
                continue
            series = f"objective {config.name}{where(labels)}"
            since_ns[series] = self._since_ns.get(series, time_ns)
            symptoms.append(
                Symptom(
                    rule=config.name,
                    series=series,
                    text=(
                        f"{good} of {runs} runs{where(labels)} in the last"
                        f" {format_duration(config.window_s)} had {config.field} within"
                        f" {config.within_ms:g} ms: {100 * good / runs:.1f} %, below the objective"
                        f" of {100 * config.objective:g} %"
                    ),
                    since_ns=since_ns[series],
                    value=100 * good / runs,
                    threshold=100 * config.objective,
                    severity=config.severity,
                    labels=dict(labels),
                )
            )
        self._since_ns = since_ns
        return symptoms

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the counts with the bucket length: a changed window starts from zero."""
        runs = self._runs.document(
            lambda buckets: {
                "runs_at_ns": [bucket * self._bucket_ns for bucket in buckets],
                "counts": list(buckets.values()),
            }
        )
        return {"bucket_ns": self._bucket_ns, "runs": runs, "since_at_ns": self._since_ns}

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state of the same bucket length."""
        if document["bucket_ns"] != self._bucket_ns:
            return
        self._runs.restore(document["runs"], self._buckets)
        self._since_ns = dict(document["since_at_ns"])

    def _buckets(
        self, runs_at_ns: Sequence[int], counts: Sequence[tuple[int, int]]
    ) -> dict[int, list[int]]:
        buckets: dict[int, list[int]] = {}
        for time_ns, (good, runs) in zip(runs_at_ns, counts, strict=True):
            self._count(buckets, time_ns, good, runs)
        return buckets

    def _count(self, buckets: dict[int, list[int]], time_ns: int, good: int, runs: int) -> None:
        counts = buckets.setdefault(time_ns // self._bucket_ns, [0, 0])
        counts[0] += good
        counts[1] += runs


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

    def ended(self, symptom: Symptom, ended_ns: int) -> Symptom:
        """Return the value that was reported, in the past tense; one that ends without a good value is unmeasured."""
        last = self._last_values.get(tuple(symptom.labels.items()))
        if last is None or last.since_at_ns is not None:
            return over_until(symptom, ended_ns, UNMEASURED)
        what = symptom.text.replace(f"{symptom.series} is ", f"{symptom.series} was ", 1)
        span = span_text(symptom.since_ns, ended_ns)
        return over(symptom, f"back to normal: {what}, from {span}")

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the last value of each series."""
        return self._last_values.document(
            lambda last: {name: value for name, value in asdict(last).items() if name != "last_ns"}
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
