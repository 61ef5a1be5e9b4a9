"""A fault of costprobe or of the host, and what `costprobe fleet watch` finds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from costprobe.alerts.rules.rule import TO_DO, Rule, RuleConfig
from costprobe.core.incident import Fault, Symptom

FaultName = Literal[
    "device_lost",
    "device_absent",
    "billed_elsewhere",
    "driver_failing",
    "energy_suspect",
    "sensor_restarting",
    "probe_failing",
    "service_unread",
    "pods_unread",
    "service_uncosted",
    "sink_behind",
    "rows_rejected",
    "notifier_failing",
    "http_failing",
    "store_failing",
    "store_replaced",
    "disk_low",
    "price_stale",
    "carbon_stale",
    "server_power_unusable",
    "config_refused",
    "fleet_unread",
    "host_silent",
    "gpu_outlier",
    "fleet_drift",
]

# What `costprobe fleet watch` finds: no fault of costprobe or of its host. A rule has to name it.
OF_FLEET: tuple[FaultName, ...] = ("host_silent", "gpu_outlier", "fleet_drift")
# What the sensor process finds, which is kept when the parts of a configuration are replaced.
OF_SENSOR: frozenset[FaultName] = frozenset(
    {
        "device_lost",
        "device_absent",
        "billed_elsewhere",
        "driver_failing",
        "energy_suspect",
        "sensor_restarting",
    }
)
# What each evaluation finds, also the first one of a process or of a configuration.
FOUND_AT_ONCE: frozenset[FaultName] = frozenset(
    {
        *OF_FLEET,
        "fleet_unread",
        "config_refused",
        "disk_low",
        "http_failing",
        "store_failing",
        "store_replaced",
    }
)
# Labels of faults of a fleet, beside host and device.
FLEET_LABELS = ("workload", "model", "currency", "silent_since")


class FaultRuleConfig(RuleConfig):
    """A fault of costprobe or of the host; what `costprobe fleet watch` finds, if `faults` names it."""

    kind: Literal["fault"] = Field(description="Kind of rule.", examples=["fault"])
    faults: tuple[FaultName, ...] | None = Field(
        None,
        description=(
            f"Faults that fire; by default all but what `costprobe fleet watch` finds ({', '.join(OF_FLEET)})."
        ),
        examples=[["disk_low"]],
    )


class FaultRule(Rule[FaultRuleConfig, dict[str, Any]]):
    """The state of a rule of kind `fault`: the severity of a fault applies unless the rule has one."""

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:
        """Return the faults that the rule selects."""
        config, before = self.config, dict(self.series)
        self.series.clear()
        symptoms = {}
        for fault in faults:
            if fault.name in (config.faults or ()) or (
                config.faults is None and fault.name not in OF_FLEET
            ):
                series = f"{fault.name} {fault.subject}".strip()
                key = (("fault", series),)
                self.series.put(key, before.get(key, {"since_at_ns": time_ns}))
                symptoms[series] = Symptom(
                    rule=config.name,
                    series=series,
                    text=fault.text,
                    since_ns=self.series[key]["since_at_ns"],
                    value=fault.value,
                    cause=fault.cause or fault.name,
                    severity=config.severity
                    if "severity" in config.model_fields_set
                    else fault.severity,
                    labels=dict(fault.labels),
                    detail=fault.detail or (f"{TO_DO}{fault.fix}" if fault.fix else ""),
                )
        return list(symptoms.values())
