"""The configuration of detection, rules and silences' fixed windows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from agent.config_fields import (
    ClockTime,
    Currency,
    Duration,
    Level,
    Match,
    Name,
    Pause,
    Section,
    Share,
    Weekday,
    Zone,
    key,
    kind_of,
)

Metric = Literal["cost", "latency", "energy", "throughput"]
Direction = Literal["up", "down", "both"]
FaultName = Literal[
    "device_lost",
    "energy_suspect",
    "sensor_restarting",
    "probe_failing",
    "service_unread",
    "service_uncosted",
    "sink_behind",
    "notifier_failing",
    "http_failing",
    "store_failing",
    "disk_low",
    "price_stale",
    "carbon_stale",
    "config_refused",
]


class DetectionConfig(Section):
    """What counts as a drift, for every watched series.

    Attributes:
        enabled: Whether series are watched for drift and anomalies at all.
        least_effect: Smallest lasting change that is looked for.
        warm_up: Values of a series before anything is said of it.
    """

    enabled: bool = True
    least_effect: Share = 0.02
    warm_up: int = Field(36, ge=12, le=10_000)


class AlertingConfig(Section):
    """What all rules share.

    Attributes:
        defaults: Whether the built-in rules hold.
        evaluate_every_s: Time between two looks at all rules.
        flapping_changes: So many comings and goings within `flapping_window` are flapping.
        flapping_window_s: Time in which they are counted, and quiet that ends it.
    """

    defaults: bool = True
    evaluate_every_s: Duration = key("evaluate_every", 10.0)
    flapping_changes: int = Field(6, ge=3, le=100)
    flapping_window_s: Duration = key("flapping_window", 3600.0)


class _RuleConfig(Section):
    """What every rule has.

    Attributes:
        name: Of the rule; one of a built-in rule's name takes its place.
        enabled: False switches it off, a built-in one too.
        match: Series it looks at, by tag; a pattern each.
        group: Incidents of rules of the same group are one; the rule's name by default.
        group_by: Tags that tell incidents apart.
        severity: Of its incidents.
        labels: Added to its incidents.
        for_s: How long a symptom must last before it fires.
        cool_down_s: How long an incident that was resolved may not fire again.
        notify: Notifiers by name; all of them by default.
    """

    name: Name
    enabled: bool = True
    match: Match = Field(default_factory=dict)
    group: Name | None = None
    group_by: tuple[Name, ...] = ("host", "device")
    severity: Level = "warning"
    labels: dict[Name, str] = Field(default_factory=dict)
    for_s: Pause = key("for", 0.0)
    cool_down_s: Pause = key("cool_down", 0.0)
    notify: tuple[Name, ...] | None = None


class DriftRuleConfig(_RuleConfig):
    """A lasting change of a watched series; ends when it has returned, or is accepted as normal.

    Attributes:
        metrics: Which series of a probe.
        at_least: Smallest change that is told.
        direction: Which way; "up" is more, whatever that means for the metric.
        accept_after_s: When a new level counts as normal and the incident ends.
    """

    kind: Literal["drift"]
    metrics: tuple[Metric, ...] = ("cost", "latency", "energy", "throughput")
    at_least: Share = 0.01
    direction: Direction = "both"
    accept_after_s: Duration = key("accept_after", 86400.0)


class AnomalyRuleConfig(_RuleConfig):
    """Single values far from all others; ends when none came for a while.

    Attributes:
        metrics: Which series of a probe.
        at_least: How many it takes.
        within_s: Time in which they are counted; quiet that ends the incident.
    """

    kind: Literal["anomaly"]
    metrics: tuple[Metric, ...] = ("cost", "latency", "energy", "throughput")
    at_least: int = Field(1, ge=1, le=1000)
    within_s: Duration = key("within", 3600.0)


class ThresholdRuleConfig(_RuleConfig):
    """A field above or below a fixed value; ends beyond `clear`, the same value by default.

    Attributes:
        measurement: Series it looks at.
        field: Field of it.
        above: Fires above this.
        below: Fires below this.
        clear: Ends once the value is back at this; by default at `above` or `below`.
    """

    kind: Literal["threshold"]
    measurement: Name
    field: Name
    above: float | None = None
    below: float | None = None
    clear: float | None = None

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


class BudgetRuleConfig(_RuleConfig):
    """Money that matched devices cost over a rolling period, against what was planned.

    Attributes:
        amount: Money for a period.
        currency: ISO 4217 code; rows in another do not count.
        per_s: Length of the rolling period.
        warn_at: Share of the amount at which it fires.
    """

    kind: Literal["budget"]
    amount: float = Field(gt=0)
    currency: Currency = "USD"
    per_s: Duration = key("per", 86400.0)
    warn_at: Share = 1.0


class BudgetExceededRuleConfig(_RuleConfig):
    """A [[budget]] of which more is spent than planned; ends with its period."""

    kind: Literal["budget_exceeded"]
    group_by: tuple[Name, ...] = ("host", "budget")
    severity: Level = "critical"


class BudgetForecastRuleConfig(_RuleConfig):
    """A [[budget]] that will be exceeded by its forecast; at most once in a period."""

    kind: Literal["budget_forecast"]
    group_by: tuple[Name, ...] = ("host", "budget")


class AbsenceRuleConfig(_RuleConfig):
    """A series that was there and has been silent for several of its own intervals.

    Attributes:
        measurement: Series it waits for.
        intervals: How many of a series' usual intervals may pass.
        at_least_s: Shortest silence that counts.
        forget_after_s: When a silent series is given up.
    """

    kind: Literal["absence"]
    measurement: Name
    intervals: float = Field(5, ge=2, le=10_000)
    at_least_s: Duration = key("at_least", 60.0)
    forget_after_s: Duration = key("forget_after", 7 * 86400.0)


class FaultRuleConfig(_RuleConfig):
    """A part of infercost or of the host that does not work.

    Attributes:
        faults: Which ones; all of them if absent.
    """

    kind: Literal["fault"]
    faults: tuple[FaultName, ...] | None = None


class SloRuleConfig(_RuleConfig):
    """A share of probe runs that must be within a latency, over a rolling window.

    Attributes:
        field: Field of `probe` that is compared.
        within_ms: Longest latency that is good, in ms.
        objective: Share of runs that must be good.
        window_s: Rolling time over which runs are counted.
        min_runs: Fewer runs say nothing.
    """

    kind: Literal["slo"]
    field: Name = "latency_p90_ms"
    within_ms: float = Field(gt=0)
    objective: Share = 0.99
    window_s: Duration = key("window", 86400.0)
    min_runs: int = Field(12, ge=1, le=100_000)


RuleConfig = Annotated[
    Annotated[DriftRuleConfig, Tag("drift")]
    | Annotated[AnomalyRuleConfig, Tag("anomaly")]
    | Annotated[ThresholdRuleConfig, Tag("threshold")]
    | Annotated[BudgetRuleConfig, Tag("budget")]
    | Annotated[BudgetExceededRuleConfig, Tag("budget_exceeded")]
    | Annotated[BudgetForecastRuleConfig, Tag("budget_forecast")]
    | Annotated[AbsenceRuleConfig, Tag("absence")]
    | Annotated[FaultRuleConfig, Tag("fault")]
    | Annotated[SloRuleConfig, Tag("slo")],
    Discriminator(kind_of),
]


class MaintenanceConfig(Section):
    """A window that comes back every week, in which matched incidents notify nobody.

    A window that ends at or before the time at which it begins ends on the next day.

    Attributes:
        name: Of the window.
        match: Incidents it holds for, by label; a pattern each.
        days: Days on which it begins.
        start: Beginning, by the clocks of `timezone`.
        end: End, likewise.
        timezone: IANA name of the place whose clocks these are.
    """

    name: Name
    match: Match = Field(default_factory=dict)
    days: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    start: ClockTime
    end: ClockTime
    timezone: Zone = "UTC"
