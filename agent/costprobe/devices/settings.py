"""The section [telemetry]."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from costprobe.adapters.sensors.messages import SensorSettings
from costprobe.core.config.fields import Duration, Section, key

# A row holds one mean of each reading: a longer row could not be assigned to an hour.
LONGEST_AGGREGATE_S = 300.0


class TelemetryConfig(Section):
    """Sampling of the devices' sensors."""

    every_s: Duration = key(
        "every", 1.0, description="Time between two samples of a sensor.", examples=["1s"]
    )
    aggregate_s: Duration = key(
        "aggregate", 10.0, description="Time that one row of `device` covers; at most 5 minutes."
    )
    deadline_s: Duration = key(
        "deadline",
        5.0,
        description="Longest driver call; after it the sensor process is restarted.",
    )
    gpus: bool = Field(True, description="Whether GPUs are read.")
    cpu: bool | Literal["auto"] = Field(
        "auto", description='Whether the CPUs are a device; "auto": only if there is no GPU.'
    )
    cpu_idle_w: float | None = Field(
        None,
        ge=0,
        description="Power of all CPUs at idle in W, where it cannot be measured.",
        examples=[30],
    )
    cpu_max_w: float | None = Field(
        None,
        gt=0,
        description="Power of all CPUs at full load in W, where it cannot be measured.",
        examples=[180],
    )

    @field_validator("aggregate_s")
    @classmethod
    def _is_short(cls, aggregate_s: float) -> float:
        if aggregate_s > LONGEST_AGGREGATE_S:
            raise ValueError('a row of device covers at most 5 minutes; write aggregate = "5m"')
        return aggregate_s

    def sensor_settings(self, *, processes: bool) -> SensorSettings:
        """Return the section as the sensor child receives it.

        Args:
            processes: Whether to read how busy each process keeps a device.
        """
        return SensorSettings(**dict(self), processes=processes)
