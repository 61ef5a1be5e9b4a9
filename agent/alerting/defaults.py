"""The rules that hold with no configuration: what an operator wants to know, and little else."""

from __future__ import annotations

from collections.abc import Sequence

from agent.config import Config
from agent.config_alerting import RuleConfig

# What makes one device slow or dear is one incident, whatever it shows in.
PERFORMANCE = "performance"
# Of one budget, that it will be exceeded and that it is.
BUDGET = "budget"

# By the validator of the whole file, which is there anyway.
DEFAULT_RULES: tuple[RuleConfig, ...] = Config.model_validate(
    {
        "rule": (
            {"name": "drift", "kind": "drift", "group": PERFORMANCE},
            {
                "name": "anomaly",
                "kind": "anomaly",
                "group": PERFORMANCE,
                "severity": "info",
                "metrics": ("cost", "latency"),
                "at_least": 3,
            },
            {
                "name": "thermal-throttling",
                "kind": "threshold",
                "group": PERFORMANCE,
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
            # Silent unless a [[budget]] is configured.
            {"name": "budget-exceeded", "kind": "budget_exceeded", "group": BUDGET},
            {"name": "budget-forecast", "kind": "budget_forecast", "group": BUDGET},
            {
                "name": "broken",
                "kind": "fault",
                "faults": ("device_lost", "store_failing", "disk_low", "config_refused"),
            },
            {
                "name": "failing",
                "kind": "fault",
                "faults": (
                    "energy_suspect",
                    "sensor_restarting",
                    "probe_failing",
                    "service_unread",
                    "service_uncosted",
                    "sink_behind",
                    "notifier_failing",
                    "http_failing",
                    "price_stale",
                    "carbon_stale",
                ),
                "for": "10m",
            },
        )
    }
).rule


def effective_rules(configured: Sequence[RuleConfig], *, use_defaults: bool) -> list[RuleConfig]:
    """The rules in force.

    Args:
        configured: The operator's; one of a built-in rule's name takes its place.
        use_defaults: Whether the built-in rules hold at all.
    """
    rules = {rule.name: rule for rule in DEFAULT_RULES if use_defaults}
    rules.update((rule.name, rule) for rule in configured)
    return [rule for rule in rules.values() if rule.enabled]
