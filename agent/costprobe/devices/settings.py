"""The section [telemetry]."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from costprobe.adapters.sensors.messages import SensorSettings
from costprobe.core.config.fields import Duration, Section, key

SAMPLES_A_ROW: Final = 10
# A row holds one mean of each reading: a longer row could not be assigned to an hour.
LONGEST_AGGREGATE_S: Final = 300.0


class TelemetryConfig(Section):
    """Sampling of the devices' sensors."""

    removed: ClassVar = {
        "aggregate": "a row of device covers ten samples, at most 5 minutes",
        "deadline": "a driver call may last 5 s; after it the sensor process is restarted",
    }

    every_s: Duration = key(
        "every",
        1.0,
        description="Time between two samples of a sensor; a row of `device` covers ten,"
        " at most 5 minutes.",
        examples=["1s"],
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

    @property
    def aggregate_s(self) -> float:
        """Time that one row of `device` covers, in s."""
        return min(SAMPLES_A_ROW * self.every_s, LONGEST_AGGREGATE_S)

    def sensor_settings(self, *, processes: bool) -> SensorSettings:
        """Return the section as the sensor child receives it.

        Args:
            processes: Whether to read how busy each process keeps a device.
        """
        return SensorSettings(**dict(self), aggregate_s=self.aggregate_s, processes=processes)
