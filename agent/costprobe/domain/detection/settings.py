"""The section [detection]."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from costprobe.core.config.fields import Section, Share
from costprobe.domain.detection.findings import DetectorSettings

# The monitored series of a probe.
Metric = Literal["cost", "latency", "energy", "throughput"]


class DetectionConfig(Section):
    """Detection of drift and anomalies in the series of probes."""

    enabled: bool = Field(True, description="Whether series are monitored for drift and anomalies.")
    least_effect: Share = Field(0.02, description="Smallest persistent shift that is detected.")
    warm_up: int = Field(
        36, ge=12, le=10_000, description="Values of a series before the first detection."
    )

    @property
    def detector(self) -> DetectorSettings:
        """The sensitivity of each detector."""
        return DetectorSettings(self.least_effect, self.warm_up)
