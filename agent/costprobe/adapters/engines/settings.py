"""Where a server's counters are read, and which: the keys of an endpoint in the configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from costprobe.adapters.engines.tables import ENGINES, METRICS_PATH
from costprobe.adapters.http.access import (
    UNIX_URL,
    CaFile,
    WithHeaders,
    WithToken,
)
from costprobe.core.config.fields import Duration, Section, has_port, key, matching

MAX_REPLICAS = 64
TIMEOUT_S = 5.0
_URL = re.compile(r"(https?://[^/@\s?#]+)(/[^\s?#]*)?(\?model=[^\s?#&]+)?")
# A metric's name, perhaps with labels that it must have: name{label="value",other="value"}.
_LABEL = r'[A-Za-z_]\w*="[^"{}\\]*"'
SELECTOR = re.compile(rf"([A-Za-z_:][\w:]*)(?:\{{({_LABEL}(?:,{_LABEL})*)\}})?")


def _urls(value: object, info: ValidationInfo) -> object:
    """Parse one URL or several; a URL without a path gets that of the engine, or of the gateway."""
    if value == ():  # of a part of a group of services; a file has no tuples
        return ()
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, list | tuple) or not all(isinstance(url, str) for url in urls):
        raise ValueError('write a URL, "http://127.0.0.1:8000/metrics", or a list of them')
    if not 1 <= len(urls) <= MAX_REPLICAS:
        raise ValueError(f"write 1 to {MAX_REPLICAS} URLs, one for each replica")
    known = info.data or {}
    engine = ENGINES.get(known.get("engine") or known.get("gateway") or "")
    path = METRICS_PATH if engine is None else engine.path
    return tuple(_with_path(url, path) for url in urls)


def _with_path(url: str, path: str) -> str:
    if match := UNIX_URL.fullmatch(url):
        return f"unix:{match[1]}:{match[2] or path}"
    match = _URL.fullmatch(url)
    if match is None or not has_port(url) or len(url) > 500:  # noqa: PLR2004 - no real one is longer
        raise ValueError(
            "a URL is http(s)://host:port/path with a port from 1 to 65535, without user, fragment or"
            " query but ?model=NAME, or unix:/path/of/socket; a token goes into token"
        )
    return f"{match[1]}{path if match[2] in (None, '/') else match[2]}{match[3] or ''}"


def _selector(value: object) -> object:
    if isinstance(value, str) and not SELECTOR.fullmatch(value):
        raise ValueError(
            'write the counter\'s name, or name{label="value"} where only a part of it counts'
        )
    return value


Urls = Annotated[tuple[str, ...], BeforeValidator(_urls)]
Selector = Annotated[str, BeforeValidator(_selector), Field(max_length=500)]


if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[(*ENGINES, "generic")]


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


class _Server(Section):
    """The first keys of an endpoint: those of base classes come before its own, the last base's first."""

    # Before the URL, to which its path is added.
    engine: EngineName = Field(
        description="Serving engine, which defines the names of the counters.", examples=["vllm"]
    )
    url: Urls = Field(
        description=(
            "Address of the metrics of each replica, also on a Unix socket:"
            " unix:/run/vllm.sock:/metrics; without a path, the engine's is added."
        ),
        examples=["http://127.0.0.1:8000"],
    )


class MetricsEndpoint(WithHeaders, WithToken, _Server):
    """The metrics of a server: their addresses, its engine, and what a request needs."""

    counters: CountersConfig | None = Field(
        None,
        description='Which metrics to read, for `engine = "generic"`.',
        examples=[{"requests": "my_requests_total"}],
    )
    ca_file: CaFile = None
    every_s: Duration = key("every", 15.0, description="Time between two scrapes.")

    @field_validator("url")
    @classmethod
    def _each_once(cls, url: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(url)) < len(url):
            raise ValueError("a URL appears twice: its requests would count twice; remove one")
        return url

    @model_validator(mode="after")
    def _counters_match_engine(self) -> MetricsEndpoint:
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
        return self

    @property
    def timeout_s(self) -> float:
        """Longest time of a scrape in s."""
        return min(TIMEOUT_S, self.every_s)
