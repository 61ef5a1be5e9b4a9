"""The built-in rules, which apply without configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import TypeAdapter

from costprobe.core.config.kinds import union_of_kinds
from costprobe.domain.alerting.rules.fault import OF_FLEET, FaultName
from costprobe.domain.alerting.rules.registry import RULES
from costprobe.domain.alerting.rules.rule import RuleConfig

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


def _validated(tables: Iterable[Mapping[str, Any]]) -> tuple[RuleConfig, ...]:
    """Return the rules of tables as in the file; `kind` selects the class of each."""
    kinds = union_of_kinds({name: kind.config for name, kind in RULES.items()}, "kind")
    # One validator for all, which is not kept: each class's own would take memory.
    validator: TypeAdapter[RuleConfig] = TypeAdapter(kinds)
    return tuple(validator.validate_python(table) for table in tables)


DEFAULT_RULES = _validated(
    (
        {"name": "drift", "kind": "drift", "group": PERFORMANCE, "group_by": OF_PERFORMANCE},
        # What costs more because of its traffic is no fault of a device or a server.
        {
            "name": "demand",
            "kind": "drift",
            "metrics": ("demand", "mix"),
            "at_least": 0.1,
            "group_by": ("host", "service"),
        },
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
        {"name": "rows-rejected", "kind": "fault", "faults": ("rows_rejected",)},
        {"name": "store-replaced", "kind": "fault", "faults": ("store_replaced",)},
        {
            "name": "failing",
            "kind": "fault",
            "faults": tuple(
                name for name in get_args(FaultName) if name not in {*BROKEN, *LOST, *OF_FLEET}
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
