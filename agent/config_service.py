"""The configuration of services: serving processes whose cost is divided by what they served."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from agent.config_fields import Duration, Name, Qualities, Section, Share, key, matching

METRICS_PATH = "/metrics"
MAX_REPLICAS = 64
_URL = re.compile(r"(https?)://([^/@\s?#]+)(/[^\s?#]*)?")
# A metric's name, perhaps with labels that it must have: name{label="value",other="value"}.
_LABEL = r'[A-Za-z_]\w*="[^"{}\\]*"'
SELECTOR = re.compile(rf"([A-Za-z_:][\w:]*)(?:\{{({_LABEL}(?:,{_LABEL})*)\}})?")


def _urls(value: Any) -> Any:
    """One address or several; that of a server alone is completed to that of its metrics."""
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, list | tuple) or not all(isinstance(url, str) for url in urls):
        raise ValueError('write an address, "http://127.0.0.1:8000/metrics", or a list of them')
    if not 1 <= len(urls) <= MAX_REPLICAS:
        raise ValueError(f"name 1 to {MAX_REPLICAS} addresses, one for each replica")
    return tuple(_with_path(url) for url in urls)


def _with_path(url: str) -> str:
    found = _URL.fullmatch(url)
    if found is None or len(url) > 500:  # noqa: PLR2004 - no address is longer
        raise ValueError(
            "an address is http(s)://host:port/path, without user, query or fragment; a token"
            " goes into token_file"
        )
    return url if found[3] not in (None, "/") else f"{found[1]}://{found[2]}{METRICS_PATH}"


def _selector(value: Any) -> Any:
    if isinstance(value, str) and not SELECTOR.fullmatch(value):
        raise ValueError(
            'write the counter\'s name, or name{label="value"} where only a part of it counts'
        )
    return value


Selector = Annotated[str, BeforeValidator(_selector), Field(max_length=500)]


class CountersConfig(Section):
    """The counters of a server that no engine of ours describes, as it writes them.

    Attributes:
        requests: Counter of requests that were answered.
        errors: Counter of those that failed.
        inferences: Counter of inferences, where a request may hold several.
        tokens_in: Counter of tokens that were read.
        tokens_out: Counter of tokens that were written.
        cached_tokens: Counter of tokens that a cache spared reading.
        prefill_s: Counter of the time of reading; its unit is the end of its name, else seconds.
        decode_s: Counter of the time of writing, likewise.
        compute_s: Counter of the time of computing, likewise.
        model_label: Label that names the model; empty: none does.
    """

    requests: Selector
    errors: Selector | None = None
    inferences: Selector | None = None
    tokens_in: Selector | None = None
    tokens_out: Selector | None = None
    cached_tokens: Selector | None = None
    prefill_s: Selector | None = key("prefill_time", None)
    decode_s: Selector | None = key("decode_time", None)
    compute_s: Selector | None = key("compute_time", None)
    model_label: Annotated[str, Field(max_length=100), matching(r"^([A-Za-z_]\w*)?$")] = ""


class ServiceConfig(Section):
    """One service: where it says what it served, and the devices that it holds.

    Attributes:
        name: The tag `service`.
        url: Address of the metrics of each process; without a path it is /metrics.
        engine: Whose counters they are.
        devices: All devices that the service holds.
        share: Its part of them, where several services share and busy time is not known.
        processes: Its processes by the names in /proc/PID/comm, to tell whose busy time is whose.
        models: Models that count; all of them if absent.
        model: Name of the only model, where the engine names none.
        quality: How good the answers are, by your own measure: one figure, or one for each model.
        counters: What to read, for `engine = "generic"`.
        weight_in: What a token that is read weighs, where no times are measured.
        weight_out: What a token that is written weighs, likewise.
        every_s: Time between two readings.
        window_s: Time over which cost and use are counted together.
        timeout_s: Of a whole reading.
        token_file: File with a bearer token.
        token_credential: Name of the systemd credential with that token.
        ca_file: Certificates of an authority of your own, for https.
    """

    name: Name
    url: Annotated[tuple[str, ...], BeforeValidator(_urls)]
    engine: Literal["vllm", "sglang", "tgi", "triton", "torchserve", "kserve", "generic"]
    devices: tuple[Name, ...] = Field(min_length=1, max_length=256)
    share: Share | None = None
    processes: tuple[str, ...] = Field((), max_length=32)
    models: tuple[str, ...] | None = Field(None, min_length=1, max_length=64)
    model: str | None = Field(None, min_length=1, max_length=200)
    quality: Qualities | None = None
    counters: CountersConfig | None = None
    weight_in: float = Field(1.0, ge=0, le=1000, allow_inf_nan=False)
    weight_out: float = Field(4.0, ge=0, le=1000, allow_inf_nan=False)
    every_s: Duration = key("every", 15.0)
    window_s: Duration = key("window", 300.0)
    timeout_s: Duration = key("timeout", 5.0)
    token_file: Path | None = None
    token_credential: Name | None = None
    ca_file: Path | None = None

    @field_validator("url")
    @classmethod
    def _each_once(cls, url: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(url)) < len(url):
            raise ValueError("an address is there twice: its requests would count twice; drop one")
        return url

    @field_validator("devices")
    @classmethod
    def _devices_once(cls, devices: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(devices)) < len(devices):
            raise ValueError("a device is there twice; name each once")
        return devices

    @field_validator("processes")
    @classmethod
    def _named(cls, processes: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"[^\s/\x00]([^/\x00]{0,62})", name) for name in processes):
            raise ValueError('a process is named as in /proc/PID/comm, such as "VLLM::EngineCor"')
        return processes

    @model_validator(mode="after")
    def _keys_go_together(self) -> ServiceConfig:
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
            raise ValueError("weight_in and weight_out are both 0: nothing would bear the cost")
        if self.timeout_s > self.every_s:
            raise ValueError("timeout must not be longer than every, or readings would queue")
        if self.every_s * 2 > self.window_s:
            raise ValueError("window must be at least twice as long as every")
        return self
