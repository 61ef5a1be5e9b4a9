"""The kinds of alert rule, and the built-in rules, which apply without configuration.

A new kind is a file in this folder and a line in RULES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from pydantic import TypeAdapter

from costprobe.alerts.rules.budgets import (
    BudgetExceededRule,
    BudgetExceededRuleConfig,
    BudgetForecastRule,
    BudgetForecastRuleConfig,
    BudgetRule,
    BudgetRuleConfig,
)
from costprobe.alerts.rules.changes import (
    AnomalyRule,
    AnomalyRuleConfig,
    DriftRule,
    DriftRuleConfig,
    LoadCurveRule,
    LoadCurveRuleConfig,
)
from costprobe.alerts.rules.faults import OF_FLEET, FaultName, FaultRule, FaultRuleConfig
from costprobe.alerts.rules.rule import Rule, RuleConfig
from costprobe.alerts.rules.values import (
    AbsenceRule,
    AbsenceRuleConfig,
    SloRule,
    SloRuleConfig,
    ThresholdRule,
    ThresholdRuleConfig,
)
from costprobe.core.config.fields import union_of_kinds


class RuleKind(NamedTuple):
    """A kind of rule.

    Attributes:
        config: Its `[[rule]]` section.
        rule: Constructs the rule from the section.
    """

    config: type[RuleConfig]
    rule: Callable[[Any], Rule[Any, Any]]


RULES: dict[str, RuleKind] = {
    "drift": RuleKind(DriftRuleConfig, DriftRule),
    "anomaly": RuleKind(AnomalyRuleConfig, AnomalyRule),
    "threshold": RuleKind(ThresholdRuleConfig, ThresholdRule),
    "budget": RuleKind(BudgetRuleConfig, BudgetRule),
    "budget_exceeded": RuleKind(BudgetExceededRuleConfig, BudgetExceededRule),
    "budget_forecast": RuleKind(BudgetForecastRuleConfig, BudgetForecastRule),
    "absence": RuleKind(AbsenceRuleConfig, AbsenceRule),
    "fault": RuleKind(FaultRuleConfig, FaultRule),
    "load_curve": RuleKind(LoadCurveRuleConfig, LoadCurveRule),
    "slo": RuleKind(SloRuleConfig, SloRule),
}


def rule_of(config: RuleConfig) -> Rule[Any, Any]:
    """Construct the rule of a section."""
    return RULES[config.kind].rule(config)


# All performance problems of one device form one incident, and those of a service, which has no device.
PERFORMANCE = "performance"
OF_PERFORMANCE = ("host", "device", "service")
# Forecast and exceedance of one budget form one incident.
BUDGET = "budget"
# Faults that do not pass by themselves; all others are reported after a while.
BROKEN: tuple[FaultName, ...] = (
    "device_lost",
    "driver_failing",
    "store_failing",
    "disk_low",
    "config_refused",
)
# Lost measurements: each has a rule of its own, so that no fault that lasts hides a new one.
LOST: tuple[FaultName, ...] = ("rows_rejected", "store_replaced")
ABSENT: tuple[FaultName, ...] = ("device_absent",)


def _validated(tables: Iterable[Mapping[str, Any]]) -> tuple[RuleConfig, ...]:
    """Return the rules of tables as in the file; `kind` selects the class of each."""
    kinds = union_of_kinds({name: kind.config for name, kind in RULES.items()}, "kind")
    # One validator for all, which is not kept: each class's own would take memory.
    validator: TypeAdapter[RuleConfig] = TypeAdapter(kinds)
    return tuple(validator.validate_python(table) for table in tables)


DEFAULT_RULES = _validated(
    (
        {"name": "drift", "kind": "drift", "group": PERFORMANCE, "group_by": OF_PERFORMANCE},
        # Curves are measured by hand: what a later one is compared with changes after a week.
        {
            "name": "load-curve",
            "kind": "load_curve",
            "group": PERFORMANCE,
            "group_by": OF_PERFORMANCE,
        },
        {
            "name": "anomaly",
            "kind": "anomaly",
            "group": PERFORMANCE,
            "group_by": OF_PERFORMANCE,
            "severity": "info",
            "metrics": ("cost", "latency"),
            "at_least": 3,
        },
        {
            "name": "thermal-throttling",
            "kind": "threshold",
            "group": PERFORMANCE,
            "group_by": OF_PERFORMANCE,
            "measurement": "probe",
            "field": "throttled_thermal_pct",
            "above": 5.0,
            "clear": 1.0,
            "for": "10m",
        },
        {
            "name": "memory-errors",
            "kind": "threshold",
            "measurement": "device",
            "field": "ecc_uncorrected",
            "above": 0,
            "severity": "critical",
        },
        {"name": "device-silent", "kind": "absence", "measurement": "device", "at_least": "5m"},
        {"name": "probe-silent", "kind": "absence", "measurement": "probe", "at_least": "15m"},
        # Without effect unless a [[budget]] is configured.
        {"name": "budget-exceeded", "kind": "budget_exceeded", "group": BUDGET},
        {"name": "budget-forecast", "kind": "budget_forecast", "group": BUDGET},
        {
            "name": "broken",
            "kind": "fault",
            "faults": BROKEN,
        },
        # At a start the discovery of a board may take a minute.
        {"name": "device-absent", "kind": "fault", "faults": ABSENT, "for": "2m"},
        {"name": "rows-rejected", "kind": "fault", "faults": ("rows_rejected",)},
        {"name": "store-replaced", "kind": "fault", "faults": ("store_replaced",)},
        {
            "name": "failing",
            "kind": "fault",
            "faults": tuple(
                name
                for name in get_args(FaultName)
                if name not in {*BROKEN, *LOST, *ABSENT, *OF_FLEET}
            ),
            "for": "10m",
        },
        # Without effect except in `costprobe fleet watch`: each kind of finding has a rule of its own.
        {
            "name": "host-silent",
            "kind": "fault",
            "faults": ("host_silent",),
            "group_by": ("host", "silent_since"),
        },
        {"name": "gpu-outlier", "kind": "fault", "faults": ("gpu_outlier",)},
        {
            "name": "fleet-drift",
            "kind": "fault",
            "faults": ("fleet_drift",),
            "group_by": ("workload", "model", "currency"),
        },
    )
)


def effective_rules(configured: Sequence[RuleConfig], *, use_defaults: bool) -> list[RuleConfig]:
    """Return the rules in force.

    Args:
        configured: Configured rules; a rule replaces a built-in one of the same name.
        use_defaults: Whether the built-in rules apply.
    """
    rules = {rule.name: rule for rule in DEFAULT_RULES if use_defaults}
    rules.update((rule.name, rule) for rule in configured)
    return [rule for rule in rules.values() if rule.enabled]
