"""Configuration of services: serving processes whose cost is allocated to requests and tokens."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from costprobe.adapters.serving.endpoint import MetricsEndpoint
from costprobe.adapters.serving.tenant_settings import TenantsConfig
from costprobe.core.config.fields import (
    Duration,
    Name,
    Qualities,
    Share,
    key,
)
from costprobe.core.host import Labels
from costprobe.domain.costing.serving.model_size import size_of

TokenWeight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class ServiceConfig(MetricsEndpoint):
    """One service: the addresses of its metrics, and the devices that it uses."""

    name: Name = Field(description="The tag `service`.", examples=["chat"])
    devices: tuple[Name, ...] = Field(
        min_length=1,
        max_length=256,
        description="All devices that the service uses.",
        examples=[["gpu0"]],
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Further tags on the service's rows; they replace those of the host.",
        examples=[{"team": "search", "product": "chat"}],
    )
    share: Share | None = Field(
        None,
        description=(
            "Its share of them, where several services share a device and busy time is "
            "not measured."
        ),
        examples=["50%"],
    )
    processes: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Its processes by their names in /proc/PID/comm, to attribute busy time.",
        examples=[["VLLM::EngineCor"]],
    )
    models: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Models that are counted; all by default.",
        examples=[["llama"]],
    )
    model: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Name of the only model, where the engine reports none.",
        examples=["llama"],
    )
    quality: Qualities | None = Field(
        None,
        description=(
            "Quality of the answers by your own measure: one figure, or one for each model."
        ),
        examples=[0.91],
    )
    tenants: TenantsConfig | None = Field(
        None,
        description="Counters by team, user or key, by which the cost is divided among them.",
        examples=[{"gateway": "litellm", "url": "http://127.0.0.1:4000", "label": "team"}],
    )
    token_split: Literal["auto", "calibrated"] = Field(
        "auto",
        description=(
            "How cost is divided between input and output tokens: by the device time that the engine"
            ' measures, else by weights; or "calibrated", by `costprobe calibrate`.'
        ),
        examples=["calibrated"],
    )
    parameters: Annotated[str, Field(max_length=50)] | None = Field(
        None,
        description=(
            "Size of the model, which the default weights of tokens depend on: all parameters,"
            ' and the active ones of experts; by default what the model\'s name states, else "8B".'
        ),
        examples=["8B", "30B-A3B", "8x7B"],
    )
    weight_in: TokenWeight = Field(
        1.0, description="Relative device time of a prompt token; only with `weight_out`."
    )
    weight_out: TokenWeight | None = Field(
        None,
        description=(
            "Relative device time of a generated token; by default estimated from the model's size"
            " and the load. Not used where the engine measures device time."
        ),
        examples=[6.0],
    )
    every_s: Duration = key("every", 15.0, description="Time between two scrapes.")
    window_s: Duration = key(
        "window", 300.0, description="Time over which cost and usage are aggregated together."
    )
    cold_start_s: Duration | None = key(
        "cold_start",
        None,
        description=(
            "How long it takes to start until the first answer, from a released device, for"
            " `costprobe savings`."
        ),
        examples=["45s"],
    )

    @property
    def is_calibrated(self) -> bool:
        """Whether the cost of tokens is divided by a calibration."""
        return self.token_split == "calibrated"  # noqa: S105 - no password

    @field_validator("devices")
    @classmethod
    def _devices_once(cls, devices: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(devices)) < len(devices):
            raise ValueError("a device appears twice; write each once")
        return devices

    @field_validator("processes")
    @classmethod
    def _named(cls, processes: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"[^\s/\x00]([^/\x00]{0,62})", name) for name in processes):
            raise ValueError('a process is named as in /proc/PID/comm, such as "VLLM::EngineCor"')
        return processes

    @model_validator(mode="after")
    def _keys_match(self) -> ServiceConfig:
        if self.weight_in == 0 and self.weight_out == 0:
            raise ValueError(
                "weight_in and weight_out are both 0: no token would be allocated a cost"
            )
        if self.weight_in != 1 and self.weight_out is None:
            raise ValueError("weight_in is relative to weight_out; add weight_out")
        if self.parameters is not None and size_of(self.parameters) is None:
            raise ValueError(
                f"parameters: {self.parameters!r} is no size of a model; write"
                ' "8B", "30B-A3B" or "8x7B"'
            )
        if self.timeout_s > self.every_s:
            raise ValueError("timeout must not be longer than every")
        if self.every_s * 2 > self.window_s:
            raise ValueError("window must be at least twice as long as every")
        return self
