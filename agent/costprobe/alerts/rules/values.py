"""Alert rules on values of a series: threshold with hysteresis, absence, and service level (SLO).

A series is absent without a new row for several of its usual intervals. A service level is a
share of probe runs, or of a service's requests, that must stay within a latency, over a rolling window.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from costprobe.alerts.rules.rule import (
    UNMEASURED,
    Config,
    Labels,
    MeasurementName,
    Rule,
    RuleConfig,
    labels_of,
    numeric_field,
    over,
    over_until,
    span_text,
    where,
)
from costprobe.core.columns import as_number
from costprobe.core.config.fields import Duration, Name, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.money import field_text
from costprobe.core.records import NS_PER_S, TOGETHER, Point
from costprobe.core.slo import BOUNDS, objective_of
from costprobe.core.units import duration_words
from costprobe.drift.actions import action_of

if TYPE_CHECKING:
    Bound = str
else:
    Bound = Literal[BOUNDS]
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


@dataclass(slots=True, kw_only=True)
class _Rows:
    """The last row of a series, and the intervals between those before.

    Attributes:
        last_at_ns: Its time, UTC ns.
        intervals_ns: The last intervals between rows.
        is_silent: Whether the series is absent; it stays so until its next row.
    """

    last_at_ns: int
    intervals_ns: list[int] = field(default_factory=list)
    is_silent: bool = False

    def add(self, time_ns: int) -> None:
        """Add a row; one that is not later changes nothing."""
        if time_ns <= self.last_at_ns:
            return
        self.intervals_ns = [*self.intervals_ns, time_ns - self.last_at_ns][-INTERVALS:]
        self.last_at_ns, self.is_silent = time_ns, False

    @property
    def usual_ns(self) -> float:
        """The usual interval in ns; 0 before the second row."""
        return median(self.intervals_ns) if self.intervals_ns else 0.0


Rows = TypeVar("Rows", bound=_Rows)


class _TimedRule(Rule[Config, Rows]):
    """A rule on the time since the last row; downtime of the daemon does not count."""

    _resumed_ns: int | None = 0

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state; gaps are measured from the next evaluation on."""
        super().restore(document)
        self._resumed_ns = None

    def _idle_ns(self, rows: _Rows, time_ns: int) -> int:
        """Return the time since the last row, or since the rule was resumed."""
        self._resumed_ns = time_ns if self._resumed_ns is None else self._resumed_ns
        return time_ns - max(rows.last_at_ns, self._resumed_ns)


class AbsenceRule(_TimedRule[AbsenceRuleConfig, _Rows]):
    """The state of a rule of kind `absence`."""

    state = _Rows

    def __init__(self, config: AbsenceRuleConfig) -> None:
        super().__init__(config)
        self.measurement = config.measurement

    def observe(self, row: Point) -> None:
        """Add a row of the configured measurement."""
        labels = labels_of(row.tags)
        rows = self.series.get(labels) or _Rows(last_at_ns=row.time_ns)
        rows.add(row.time_ns)
        self.series.put(labels, rows)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each series without rows."""
        config = self.config
        symptoms = []
        for labels, rows in list(self.series.items()):
            if time_ns - rows.last_at_ns > FORGET_NS:
                del self.series[labels]
            elif len(rows.intervals_ns) >= MIN_INTERVALS:
                longest_ns = max(config.at_least_s * NS_PER_S, config.intervals * rows.usual_ns)
                rows.is_silent = rows.is_silent or self._idle_ns(rows, time_ns) > longest_ns
                if rows.is_silent:
                    symptoms.append(self._silent(labels, rows, time_ns))
        return symptoms

    def forget_device(self, device: str) -> None:
        """Drop the series of a device that was removed: no rows of it are expected."""
        for labels in list(self.series):
            if device in dict(labels).get("device", "").split(TOGETHER):
                del self.series[labels]

    def _silent(self, labels: Labels, rows: _Rows, time_ns: int) -> Symptom:
        silent_s = (time_ns - rows.last_at_ns) / NS_PER_S
        shown_s = round(silent_s / MINUTE_S) * MINUTE_S if silent_s >= 2 * MINUTE_S else silent_s
        usual_s = max(1, round(rows.usual_ns / NS_PER_S))
        text = (
            f"no row of {self.measurement}{where(labels)} for {duration_words(round(shown_s))};"
            f" usually one every {duration_words(usual_s)}"
        )
        return self.symptom(labels, self.measurement, text, rows.last_at_ns, value=silent_s)


# A rolling window is divided into so many buckets.
BUCKETS = 240


@dataclass(slots=True)
class RollingSums:
    """Sums over a rolling window.

    Attributes:
        begun_at_ns: Start of each bucket, UTC ns.
        sums: The sums of each bucket.
        since_at_ns: Start of the violation, UTC ns; None without one.
    """

    begun_at_ns: list[int] = field(default_factory=list)
    sums: list[list[float]] = field(default_factory=list)
    since_at_ns: int | None = None

    def add(self, time_ns: int, window_s: float, *amounts: float) -> None:
        """Add amounts, as many at each call."""
        begun_ns = time_ns - time_ns % _bucket_ns(window_s)
        if begun_ns not in self.begun_at_ns:
            self.begun_at_ns.append(begun_ns)
            self.sums.append([0.0] * len(amounts))
        sums = self.sums[self.begun_at_ns.index(begun_ns)]
        sums[:] = map(sum, zip(sums, amounts, strict=True))

    def since(self, time_ns: int, window_s: float) -> list[float]:
        """Drop the buckets before the window that ends at a UTC ns, and return the sums; empty without any."""
        bucket_ns = _bucket_ns(window_s)
        oldest_ns = time_ns - time_ns % bucket_ns - BUCKETS * bucket_ns
        buckets = zip(self.begun_at_ns, self.sums, strict=True)
        kept = [(begun_ns, sums) for begun_ns, sums in buckets if begun_ns > oldest_ns]
        self.begun_at_ns = [begun_ns for begun_ns, _ in kept]
        self.sums = [sums for _, sums in kept]
        return [math.fsum(amounts) for amounts in zip(*self.sums, strict=True)]

    def covered_s(self, window_s: float) -> float:
        """Return the length of the time with buckets, of which there is at least one."""
        bucket_ns = _bucket_ns(window_s)
        return (max(self.begun_at_ns) - min(self.begun_at_ns) + bucket_ns) / NS_PER_S


def _bucket_ns(window_s: float) -> int:
    return max(1, int(window_s * NS_PER_S) // BUCKETS)


class SloRuleConfig(RuleConfig):
    """A share of probe runs, or of a service's requests, that must be fast enough, over a rolling window."""

    kind: Literal["slo"] = Field(description="Kind of rule.", examples=["slo"])
    field: Name = Field("latency_p90_ms", description="Field of `probe` that is compared.")
    within_ms: float | None = Field(
        None,
        gt=0,
        description="Longest acceptable latency of runs of probes, in ms.",
        examples=[12],
    )
    bound: Bound | None = Field(
        None,
        description="Bound of the `slo` of services, whose requests count in place of runs of probes.",
        examples=["ttft_p90"],
    )
    objective: Share | None = Field(
        None,
        description="Share that must be within it; by default 99 % of runs, of requests that of the bound.",
        examples=["99%"],
    )
    window_s: Duration = key(
        "window", 86400.0, description="Rolling window over which runs or requests are counted."
    )
    min_runs: int = Field(
        12, ge=1, le=100_000, description="Fewest runs, or requests, for an evaluation."
    )

    @model_validator(mode="after")
    def _of_runs_or_requests(self) -> SloRuleConfig:
        if (self.within_ms is None) == (self.bound is None):
            raise ValueError(
                "give within_ms for runs of probes, or bound for requests of services, one of them"
            )
        return self

    @property
    def share(self) -> float:
        """Share that must be within the latency."""
        if self.objective is not None:
            return self.objective
        return 0.99 if self.bound is None else objective_of(self.bound)

    @field_validator("field")
    @classmethod
    def _is_numeric(cls, field: str) -> str:
        return numeric_field("probe", field)


class SloRule(Rule[SloRuleConfig, RollingSums]):
    """The state of a rule of kind `slo`: counts of good runs or requests, and of all."""

    state = RollingSums

    def __init__(self, config: SloRuleConfig) -> None:
        super().__init__(config)
        self.measurement = "slo" if config.bound else "probe"

    def observe(self, row: Point) -> None:
        """Add a row of `probe`, or of `slo`."""
        config, labels = self.config, labels_of(row.tags)
        if config.bound and row.tags.get("bound") != config.bound:
            return
        value = row.fields.get("requests_met" if config.bound else config.field)
        if not isinstance(value, int | float):
            return
        sums = self.series.get(labels) or RollingSums()
        if config.within_ms is None:
            sums.add(
                row.time_ns, config.window_s, value, as_number(row.fields.get("requests")) or 0
            )
        else:
            sums.add(row.time_ns, config.window_s, value <= config.within_ms, 1)
        self.series.put(labels, sums)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each series that misses its objective."""
        config = self.config
        symptoms = []
        for labels, sums in list(self.series.items()):
            counts = sums.since(time_ns, config.window_s)
            if not counts:
                del self.series[labels]
                continue
            good, runs = map(round, counts)
            if runs < config.min_runs or good >= config.share * runs:
                sums.since_at_ns = None
                continue
            sums.since_at_ns = sums.since_at_ns or time_ns
            share, objective = 100 * good / runs, 100 * config.share
            what, within = "requests", f"were within {config.bound}"
            if config.within_ms is not None:
                what, within = "runs", f"had {config.field} within {config.within_ms:g} ms"
            text = (
                f"{good} of {runs} {what}{where(labels)} in the last"
                f" {duration_words(config.window_s)} {within}: {share:.1f} %, below the objective"
                f" of {objective:g} %"
            )
            what = f"objective {config.name}"
            symptoms.append(
                self.symptom(labels, what, text, sums.since_at_ns, value=share, threshold=objective)
            )
        return symptoms


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


@dataclass(slots=True, kw_only=True)
class _LastValue(_Rows):
    """The last value of a series.

    Attributes:
        value: The value.
        limit: The last limit that was violated: a reload may have changed the rule's since.
        since_at_ns: Start of the violation, UTC ns; None without one.
        currency: Its currency, of an amount of money.
    """

    value: float
    limit: float
    since_at_ns: int | None = None
    currency: str = ""


class ThresholdRule(_TimedRule[ThresholdRuleConfig, _LastValue]):
    """The state of a rule of kind `threshold`."""

    state = _LastValue

    def __init__(self, config: ThresholdRuleConfig) -> None:
        super().__init__(config)
        self.measurement = config.measurement
        self._sign = 1 if config.above is not None else -1
        limit = config.above if config.above is not None else config.below
        self._limit = float(limit or 0.0)
        self._clear = self._limit if config.clear is None else config.clear

    def observe(self, row: Point) -> None:
        """Add a row of the configured measurement."""
        value = row.fields.get(self.config.field)
        if not isinstance(value, int | float):
            return
        labels = labels_of(row.tags)
        last = self.series.get(labels) or _LastValue(
            last_at_ns=row.time_ns, value=value, limit=self._limit
        )
        last.add(row.time_ns)
        last.value, last.currency = float(value), row.tags.get("currency", "")
        if self._sign * (value - self._limit) > 0:
            last.since_at_ns = last.since_at_ns or row.time_ns
            last.limit = self._limit
        elif self._sign * (value - self._clear) <= 0:
            last.since_at_ns = None
        self.series.put(labels, last)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each violating series whose value is not stale."""
        return [
            self._violation(labels, last, last.since_at_ns)
            for labels, last in self.series.items()
            if last.since_at_ns is not None
            if self._idle_ns(last, time_ns)
            <= max(VALID_AT_LEAST_NS, VALID_INTERVALS * last.usual_ns)
        ]

    def ended(self, symptom: Symptom, ended_ns: int) -> Symptom:
        """Return the value that was reported, in the past tense; one that ends without a good value is unmeasured."""
        last = self.series.get(tuple(symptom.labels.items()))
        if last is None or last.since_at_ns is not None:
            return over_until(symptom, ended_ns, UNMEASURED)
        what = symptom.text.replace(f"{symptom.series} is ", f"{symptom.series} was ", 1)
        span = span_text(symptom.since_ns, ended_ns)
        return over(symptom, f"back to normal: {what}, from {span}")

    def _violation(self, labels: Labels, last: _LastValue, since_ns: int) -> Symptom:
        config = self.config
        side = "above" if self._sign > 0 else "below"
        value, limit, clear = (
            field_text(config.measurement, config.field, number, last.currency)
            for number in (last.value, last.limit, self._clear)
        )
        is_beyond = self._sign * (last.value - last.limit) > 0
        passed = f"{value}, {side} {limit}"
        cleared = f"{value} and was {side} {limit}; resolved at {clear}"
        cause, device = CAUSES.get(config.field), dict(labels).get("device", "")
        return self.symptom(
            labels,
            config.field,
            f"{config.field}{where(labels)} is {passed if is_beyond else cleared}",
            since_ns,
            value=last.value,
            threshold=last.limit,
            detail=f"To do: {action_of(cause, device)}" if cause else "",
        )
