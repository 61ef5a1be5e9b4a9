"""Configuration of services and their tenants: [[service]], and checks across services.

A service is a serving process whose cost is allocated to requests and tokens. Its tenants are
configured by the counters that divide its cost. Devices that services share are allocated over
the same windows; the checks ensure it. A model's size is read from a text such as "8x7B" or
"30B-A3B", or from its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from costprobe.adapters.engines.settings import MetricsEndpoint, Selector, Urls
from costprobe.adapters.engines.tables import ENGINES
from costprobe.adapters.http.access import CaFile, WithHeaders, WithToken
from costprobe.core.config.fields import (
    Duration,
    Labels,
    Name,
    Qualities,
    Section,
    Share,
    key,
    matching,
)
from costprobe.core.config.slo import SloConfig
from costprobe.core.schema import GROUP_TAGS
from costprobe.core.slo import figure_of
from costprobe.core.units import HOUR_S, format_duration, percent

MAX_TENANTS = 100
_NUMBER = r"(\d+(?:\.\d+)?)"
_EXPERTS = re.compile(rf"(?<![A-Za-z0-9.])(\d+)x{_NUMBER}b(?![A-Za-z0-9])", re.IGNORECASE)
_ACTIVE = re.compile(rf"(?<![A-Za-z0-9.])a{_NUMBER}b(?![A-Za-z0-9])", re.IGNORECASE)
_TOTAL = re.compile(rf"(?<![A-Za-z0-9.]){_NUMBER}([bm])(?![A-Za-z0-9])", re.IGNORECASE)
_MAX_SIZE_B: Final = 100_000.0
# Experts of a "8x7B" that a token uses.
_EXPERTS_USED: Final = 2
TokenWeight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
# Shares that add up to 1 may exceed it by this.
_ROUNDING = 1e-9
# Keys of a request, which belong to a URL.
REQUEST_KEYS: Final = {"ca_file", *WithToken.model_fields, *WithHeaders.model_fields}


class _TenantCounters(Section):
    """The first keys of tenants: those of base classes come before its own, the last base's first."""

    gateway: Literal["litellm"] | None = Field(
        None,
        description="Gateway whose counters are known; else name them below.",
        examples=["litellm"],
    )
    url: Urls | None = Field(
        None,
        description=(
            "Address of the metrics with these counters, of each replica; those of the service by"
            " default."
        ),
        examples=["http://127.0.0.1:4000"],
    )
    label: Annotated[
        str,
        Field(max_length=100),
        matching(r"[A-Za-z_]\w*", "a label has letters, digits and _"),
    ] = Field(
        description=(
            "Label with the tenant; of LiteLLM `team`, `team_alias`, `api_key_alias`, `end_user`,"
            " `user`, or `requested_model` for LoRA adapters."
        ),
        examples=["team"],
    )
    tokens_in: Selector | None = Field(
        None,
        description="Counter of prompt tokens by tenant.",
        examples=["gateway_prompt_tokens_total"],
    )
    tokens_out: Selector | None = Field(
        None,
        description="Counter of generated tokens by tenant.",
        examples=["gateway_generated_tokens_total"],
    )
    cached_tokens: Selector | None = Field(
        None,
        description=(
            "Counter of the prompt tokens among them that a cache answered; without it all prompt"
            " tokens have one price."
        ),
        examples=["gateway_cached_tokens_total"],
    )
    requests: Selector | None = Field(
        None,
        description="Counter of requests by tenant; divides the cost where tokens are not counted.",
        examples=['gateway_requests_total{code="200"}'],
    )
    models: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description=(
            "With `gateway`: names under which clients request this service's models there; all"
            " by default."
        ),
        examples=[["llama"]],
    )
    names: int = Field(
        20,
        ge=1,
        le=MAX_TENANTS,
        description="Largest number of tenants with a name; further ones are together `other`.",
    )


class TenantsConfig(WithHeaders, WithToken, _TenantCounters):
    """Counters with a label that names the tenant: a team, a user or a key."""

    ca_file: CaFile = None

    @model_validator(mode="after")
    def _counters_are_known(self) -> TenantsConfig:
        counters = [self.tokens_in, self.tokens_out, self.requests]
        if self.gateway is None and not any(counters):
            raise ValueError(
                'name the counters, such as tokens_in = "gateway_prompt_tokens_total", or set'
                ' gateway = "litellm"'
            )
        if self.gateway is not None and any([*counters, self.cached_tokens]):
            raise ValueError(
                f'the counters of gateway = "{self.gateway}" are known: remove tokens_in,'
                " tokens_out, cached_tokens and requests, or gateway"
            )
        if self.cached_tokens is not None and self.tokens_in is None:
            raise ValueError("cached_tokens are a part of tokens_in; add tokens_in")
        if self.gateway is None and self.models is not None:
            raise ValueError(
                "models is for a gateway; write the model as a label of each counter:"
                " tokens_in = 'gateway_prompt_tokens_total{model=\"llama\"}'"
            )
        of_url = sorted(self.model_fields_set & REQUEST_KEYS)
        if self.url is None and of_url:
            raise ValueError(
                f"{of_url[0]} is for an own url: remove it, or write the url; without one, that of the"
                " service applies"
            )
        return self


# Keys that divide the cost between input and output.
_OF_SPLIT: Final = {"token_split", "parameters", "weight_out", "weight_cached"}
# Keys without effect where nothing is counted.
_OF_COUNTS: Final = {*REQUEST_KEYS, *_OF_SPLIT, "models", "model", "quality", "slo", "tenants"}


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Parameters of a model.

    Attributes:
        total_b: All of them, in billions.
        active_b: Those that a token uses, in billions; all of them unless it has experts.
    """

    total_b: float
    active_b: float


def size_of(text: str) -> ModelSize | None:
    """Return the size that a text states: "8B", "0.5B", "360M", "8x7B", "30B-A3B", or a model's name.

    None where it states none, or one that is no size of a model.
    """
    experts = _EXPERTS.search(text)
    if experts is not None:
        each_b = float(experts[2])
        count = float(experts[1])
        return _checked(count * each_b, min(count, _EXPERTS_USED) * each_b)
    total = _TOTAL.search(text)
    if total is None:
        return None
    total_b = float(total[1]) / (1000 if total[2] in "mM" else 1)
    active = _ACTIVE.search(text)
    return _checked(total_b, total_b if active is None else float(active[1]))


def _checked(total_b: float, active_b: float) -> ModelSize | None:
    return ModelSize(total_b, active_b) if 0 < active_b <= total_b <= _MAX_SIZE_B else None


class _NamedService(Section):
    """The first key of a service: keys of base classes come before its own, the last base's first."""

    name: Name = Field(description="The tag `service`.", examples=["chat"])


_PARTS: Final = ("prefill", "decode", "worker")
Role = Literal["all", "prefill", "decode", "worker"]


class ServiceConfig(MetricsEndpoint, _NamedService):
    """One service: the addresses of its metrics, and the devices that it uses."""

    removed: ClassVar = {
        "timeout": "a scrape may take five seconds, or `every` if that is shorter",
        "weight_in": "a prompt token has the weight 1; divide weight_out by it",
    }

    devices: tuple[Name, ...] = Field(
        min_length=1,
        max_length=256,
        description="All devices of this host that the service uses, by name or UUID.",
        examples=[["gpu0"]],
    )
    group: Name | None = Field(
        None,
        description=(
            "The service of several hosts that this one is a part of; its unit costs are in"
            " `costprobe compare --fleet --by group`."
        ),
        examples=["llama-70b"],
    )
    role: Role = Field(
        "all",
        description=(
            'What it is of its group: "all" for a complete replica; "prefill" or "decode" for a pool'
            ' of a disaggregated server; "worker" for a part of another engine that spans hosts. Of'
            " an engine that spans hosts, one host has the `url`, and the others have none."
        ),
        examples=["decode"],
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
    slo: SloConfig | None = Field(
        None,
        description=(
            "Service level: the requests of each window within each bound are counted, from the"
            " engine's histograms."
        ),
        examples=[{"ttft_p90": "500ms", "tpot_p90": "50ms"}],
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
    weight_out: TokenWeight | None = Field(
        None,
        description=(
            "Device time of a generated token, relative to a prompt token's; by default estimated"
            " from the model's size and the load. Not used where the engine measures device time."
        ),
        examples=[6.0],
    )
    weight_cached: TokenWeight = Field(
        0.0,
        description=(
            "Device time of a prompt token that a cache answered, relative to one that is computed;"
            " only with `weight_out`."
        ),
        examples=[0.05],
    )
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
    def is_part(self) -> bool:
        """Whether it is a part of a group that answers no request alone: it has no unit costs."""
        return self.role != "all"

    @property
    def has_one_kind(self) -> bool:
        """Whether it is a pool of prefill or of decode, whose cost is that of one kind of tokens."""
        return self.role in ("prefill", "decode")

    @property
    def row_tags(self) -> dict[str, str]:
        """Tags of all rows with its name: labels, group and role."""
        own = (self.group, self.role) if self.group else ()
        return {**self.labels, **dict(zip(GROUP_TAGS, own, strict=False))}

    @property
    def is_calibrated(self) -> bool:
        """Whether the cost of tokens is divided by a calibration."""
        return self.token_split == "calibrated"  # noqa: S105 - no password

    @field_validator("devices", mode="before")
    @classmethod
    def _devices_of_this_host(cls, devices: Any) -> Any:  # noqa: ANN401 - not checked yet
        if isinstance(devices, list) and any(
            isinstance(one, str) and "/" in one for one in devices
        ):
            raise ValueError(
                "a device of another host belongs into the configuration of that host; write the"
                ' same group there and here, such as group = "llama-70b" and role = "worker"'
            )
        return devices

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

    @model_validator(mode="before")
    @classmethod
    def _a_part_may_have_no_url(cls, keys: Any) -> Any:  # noqa: ANN401 - not checked yet
        is_grouped = isinstance(keys, dict) and ("group" in keys or keys.get("role") in _PARTS)
        return {"url": (), **keys} if is_grouped else keys

    @model_validator(mode="after")
    def _group_matches(self) -> ServiceConfig:
        if self.is_part and self.group is None:
            raise ValueError(
                f'role = "{self.role}" is a part of a group; add group, such as group = "llama-70b",'
                " the same on all of its hosts, or remove role"
            )
        if not (self.url or self.is_part):
            raise ValueError(
                "url is missing; add it, or, where another host has the url of the engine,"
                ' role = "worker"'
            )
        if self.group and HOUR_S % self.window_s and self.window_s % HOUR_S:
            raise ValueError(
                f"window = {format_duration(self.window_s)} is no part of an hour, and a group is priced"
                " by whole hours; write 5m, 10m or 1h"
            )
        of_split = sorted(self.model_fields_set & _OF_SPLIT)
        if of_split and self.has_one_kind:
            raise ValueError(
                f'{of_split[0]} has no effect with role = "{self.role}", whose cost is that of one'
                " kind of tokens; remove it"
            )
        of_url = sorted(self.model_fields_set & _OF_COUNTS)
        if of_url and not self.url:
            raise ValueError(f"{of_url[0]} has no effect without url; remove it, or add url")
        return self

    @model_validator(mode="after")
    def _keys_match(self) -> ServiceConfig:
        if self.weight_cached and self.weight_out is None:
            raise ValueError("weight_cached is relative to weight_out; add weight_out")
        if self.parameters is not None and size_of(self.parameters) is None:
            raise ValueError(
                f"parameters: {self.parameters!r} is no size of a model; write"
                ' "8B", "30B-A3B" or "8x7B"'
            )
        histograms = ENGINES[self.engine].histograms if self.engine in ENGINES else {}
        for bound in self.slo.bounds_ms if self.slo else ():
            if figure_of(bound) not in histograms:
                known = ", ".join(f"{name}_p90" for name in histograms)
                raise ValueError(
                    f"slo: engine {self.engine} has no histogram of the requests' {figure_of(bound)};"
                    f" remove {bound}" + (f" (it has {known})" if known else "")
                )
        if self.every_s * 2 > self.window_s:
            raise ValueError("window must be at least twice as long as every")
        return self


def service_problems(services: Sequence[ServiceConfig]) -> Iterator[str]:
    """Lines `key.path: what is wrong; the fix`, for windows and shares of shared devices.

    Args:
        services: In the file's order; in a file with other errors a required key may be None.
    """
    first: dict[str, tuple[int, float]] = {}
    shares: dict[str, float] = {}
    reported: set[int] = set()
    for index, service in enumerate(services):
        share = service.share or 0.0
        for device in service.devices or ():
            board = board_of(device)
            other, other_s = first.setdefault(board, (index, service.window_s))
            if service.window_s != other_s and index not in reported:
                reported.add(index)
                yield (
                    f"service[{index}].window: {format_duration(service.window_s)}, but"
                    f" service[{other}] has {format_duration(other_s)} and both use {board}: its"
                    " cost is allocated over one window; use the same"
                )
            shares[device] = shares.get(device, 0.0) + share
            if shares[device] > 1 + _ROUNDING >= shares[device] - share:
                yield (
                    f"service[{index}].share: the shares of {device} add up to"
                    f" {percent(shares[device])}; at most 100 % can be allocated"
                )


def board_of(device: str) -> str:
    """Return the board of a device or of a part of it: "gpu0" for "gpu0.mig1"."""
    return device.partition(".")[0]
