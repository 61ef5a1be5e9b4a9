"""A device that draws more power than a limit."""

from collections.abc import Collection
from typing import Any, Literal

from costprobe.alerts.rules.rule import Rule, RuleConfig, labels_of, where
from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import Point
from pydantic import Field


class PowerLimitRuleConfig(RuleConfig):
    """A device that draws more power than a limit."""

    kind: Literal["power_limit"] = Field(description="Kind of rule.", examples=["power_limit"])
    limit_w: float = Field(ge=0, description="Power limit in W.", examples=[350])


class PowerLimitRule(Rule[PowerLimitRuleConfig, dict[str, Any]]):
    """The state of a rule of kind `power_limit`: the last power reading of each device."""

    measurement = "device"

    def observe(self, row: Point) -> None:
        """Add a row of `device`."""
        power_w = row.fields.get("power_w")
        if isinstance(power_w, float):
            reading = {"since_at_ns": row.time_ns, "power_w": power_w}
            self.series.put(labels_of(row.tags), reading)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:
        """Return each device above the limit."""
        limit_w = self.config.limit_w
        return [
            self.symptom(
                labels,
                "power",
                f"power{where(labels)} is {reading['power_w']:.0f} W, above {limit_w:.0f} W",
                reading["since_at_ns"],
                value=reading["power_w"],
                threshold=limit_w,
            )
            for labels, reading in self.series.items()
            if reading["power_w"] > limit_w
        ]
