"""Configuration of services: serving processes whose cost is allocated to requests and tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from costprobe.adapters.net.settings import CaFile, TokenCredential, TokenFile
from costprobe.adapters.serving.engines import ENGINES
from costprobe.adapters.serving.setting_types import Selector, Urls
from costprobe.adapters.serving.tenant_settings import TenantsConfig
from costprobe.core.config.fields import (
    Duration,
    Name,
    Qualities,
    Section,
    Share,
    key,
    matching,
)
from costprobe.core.host import Labels
from costprobe.domain.costing.serving.token_weights import size_of

if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[(*ENGINES, "generic")]
TokenWeight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class CountersConfig(Section):
    """The counters of a server for which costprobe has no engine, by metric name."""

    requests: Selector | None = Field(
        None,
        description="Counter of completed requests; not needed where tokens are counted.",
        examples=["my_requests_total"],
    )
    errors: Selector | None = Field(
        None, description="Counter of failed requests.", examples=["my_errors_total"]
    )
    inferences: Selector | None = Field(
        None,
        description="Counter of inferences, if a request may contain several.",
        examples=["my_inferences_total"],
    )
    tokens_in: Selector | None = Field(
        None, description="Counter of prompt tokens.", examples=["my_prompt_tokens_total"]
    )
    tokens_out: Selector | None = Field(
        None, description="Counter of generated tokens.", examples=["my_generated_tokens_total"]
    )
    cached_tokens: Selector | None = Field(
        None,
        description="Counter of prompt tokens served from a cache.",
        examples=["my_cached_tokens_total"],
    )
    prefill_s: Selector | None = key(
        "prefill_time",
        None,
        description=(
            "Counter of the device time of prefill: a batch counts once. The unit is the suffix of"
            " its name, else seconds."
        ),
        examples=["my_prefill_seconds_total"],
    )
    decode_s: Selector | None = key(
        "decode_time",
        None,
        description="Counter of the device time of decode, likewise.",
        examples=["my_decode_seconds_total"],
    )
    compute_s: Selector | None = key(
        "compute_time",
        None,
        description="Counter of device time, where prefill and decode are not separated.",
        examples=["my_compute_seconds_total"],
    )
    decode_request_s: Selector | None = key(
        "decode_request_time",
        None,
        description="Counter of decode time summed over requests: a batch of 32 counts 32 times.",
        examples=["my_inter_token_seconds_sum"],
    )
    compute_request_s: Selector | None = key(
        "compute_request_time",
        None,
        description="Counter of compute time summed over requests.",
        examples=["my_request_compute_seconds_sum"],
    )
    executions: Selector | None = Field(
        None, description="Counter of executed batches.", examples=["my_batches_total"]
    )
    model_label: Annotated[
        str,
        Field(max_length=100),
        matching(r"([A-Za-z_]\w*)?", "a label has letters, digits and _"),
    ] = Field(
        "",
        description="Label with the model's name; empty if there is none.",
        examples=["model_name"],
    )

    @model_validator(mode="after")
    def _counts_answers(self) -> CountersConfig:
        if self.requests is None and self.tokens_in is None and self.tokens_out is None:
            raise ValueError(
                "nothing to divide the cost by: name requests, tokens_in or tokens_out, such as"
                ' counters = { requests = "my_requests_total" }'
            )
        return self


class ServiceConfig(Section):
    """One service: the addresses of its metrics, and the devices that it uses."""

    name: Name = Field(description="The tag `service`.", examples=["chat"])
    url: Urls = Field(
        description="Address of the metrics of each replica; without a path, /metrics is added.",
        examples=["http://127.0.0.1:8000"],
    )
    engine: EngineName = Field(
        description="Serving engine, which defines the names of the counters.", examples=["vllm"]
    )
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
    counters: CountersConfig | None = Field(
        None,
        description='Which metrics to read, for `engine = "generic"`.',
        examples=[{"requests": "my_requests_total"}],
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
    timeout_s: Duration = key("timeout", 5.0, description="Timeout of a whole scrape.")
    cold_start_s: Duration | None = key(
        "cold_start",
        None,
        description=(
            "How long it takes to start until the first answer, from a released device, for"
            " `costprobe savings`."
        ),
        examples=["45s"],
    )
    token_file: TokenFile = None
    token_credential: TokenCredential = None
    ca_file: CaFile = None

    @property
    def is_calibrated(self) -> bool:
        """Whether the cost of tokens is divided by a calibration."""
        return self.token_split == "calibrated"  # noqa: S105 - no password

    @field_validator("url")
    @classmethod
    def _each_once(cls, url: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(url)) < len(url):
            raise ValueError("a URL appears twice: its requests would count twice; remove one")
        return url

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
    def _keys_match_engine(self) -> ServiceConfig:
        if self.engine == "generic" and self.counters is None:
            raise ValueError(
                'engine = "generic" needs counters; name at least'
                ' counters = { requests = "my_requests_total" }'
            )
        if self.engine != "generic" and self.counters is not None:
            raise ValueError(
                f'counters are not for engine = "{self.engine}", whose counters are known;'
                ' remove them, or write engine = "generic"'
            )
        if self.token_file and self.token_credential:
            raise ValueError("give token_file or token_credential, not both")
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
