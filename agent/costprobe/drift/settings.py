"""The section [detection]."""

from __future__ import annotations

from pydantic import Field

from costprobe.core.config.fields import Duration, Section, Share, key
from costprobe.drift.findings import SERVING_DETECTED, DetectorSettings


class DetectionConfig(Section):
    """Detection of drift and anomalies in the series of probes and services."""

    enabled: bool = Field(True, description="Whether series are monitored for drift and anomalies.")
    least_effect: Share = Field(0.02, description="Smallest persistent shift that is detected.")
    warm_up: int = Field(
        36, ge=12, le=10_000, description="Values of a series before the first detection."
    )
    serving_effect: Share = Field(
        0.06,
        description="Smallest persistent shift of a service's device time or energy per token.",
    )
    serving_window_s: Duration = key(
        "serving_window",
        1800.0,
        description="Time over which a service's windows are added up to one value.",
    )

    @property
    def detector(self) -> DetectorSettings:
        """The sensitivity of each detector."""
        return DetectorSettings(self.least_effect, self.warm_up)

    @property
    def serving_shift(self) -> float:
        """The smallest shift that the detectors of services look for."""
        return SERVING_DETECTED * self.serving_effect
