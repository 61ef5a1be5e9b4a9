"""The configuration keys that every kind of probe shares."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from costprobe.core.config.fields import (
    Duration,
    Name,
    Pause,
    Quality,
    Section,
    WindowDuration,
    key,
)
from costprobe.core.host import Labels


class CommonProbeConfig(Section):
    """Options of all probes: device, period, deadline and placement."""

    name: Name = Field(description="The tag `probe`.", examples=["transformer"])
    devices: Literal["all"] | list[Name] = Field(
        "all",
        description=(
            "Devices to probe, each separately; for a server the devices that it uses, together."
        ),
        examples=["all"],
    )
    every_s: Duration = key(
        "every",
        300.0,
        description=(
            "Period; runs start on its multiples of the wall clock, on every host of a fleet."
        ),
        examples=["5m"],
    )
    stagger_s: Pause = key(
        "stagger",
        0.0,
        description="Time over which hosts are spread, each by a fixed delay.",
        examples=["30s"],
    )
    deadline_s: Duration = key(
        "deadline",
        180.0,
        description="Longest run; after it the run is killed. It restarts with each batch that is compiled.",
    )
    window_s: WindowDuration = key(
        "window",
        5.0,
        description="Length of the steady-state window over which energy is measured.",
    )
    sample_cap_s: Duration = key(
        "sample_cap", 10.0, description="Longest time spent on latency samples."
    )
    energy: bool = Field(
        True, description="Whether energy is measured; a run without it is shorter."
    )
    quality: Quality | None = Field(
        None,
        description=(
            "Quality of the model's answers by your own measure, for `costprobe "
            "compare`; higher is better."
        ),
        examples=[0.91],
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Further tags on the probe's rows; they replace those of the host.",
        examples=[{"team": "search"}],
    )

    @model_validator(mode="after")
    def _ends_in_time(self) -> CommonProbeConfig:
        if self.deadline_s <= self.window_s:
            raise ValueError("deadline must be longer than window, or no run can end in time")
        return self
