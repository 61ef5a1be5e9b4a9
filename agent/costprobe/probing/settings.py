"""Configuration of probes: [[probe]] of a model or of an inference server, and the limits of all."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from costprobe_probes.sources.kinds import SOURCES
from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from costprobe.adapters.http.access import CaFile, WithHeaders, WithToken
from costprobe.adapters.load_child.kinds import SERVERS
from costprobe.core.config.fields import (
    IS_BARE_URL,
    Duration,
    Label,
    Labels,
    Name,
    Quality,
    Section,
    Share,
    Size,
    WindowDuration,
    key,
    matching,
)
from costprobe.core.config.slo import SloConfig
from costprobe.probing.load_settings import LoadConfig


class CommonProbeConfig(Section):
    """Options of all probes: device, period, deadline and placement."""

    removed: ClassVar = {
        "busy_above": "a device is busy above 10 % of a GPU, 50 % of a CPU",
        "defer_at_most": "a run waits for 30 s, or half of every if that is less",
        "stagger": "runs start on the multiples of every, on every host",
    }

    name: Name = Field(description="The tag `probe`.", examples=["transformer"])
    devices: Literal["all"] | list[Name] = Field(
        "all",
        description=(
            "Devices to probe, by name or UUID, each separately; for a server the devices that it"
            " uses, together."
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

    @property
    def row_tags(self) -> Mapping[str, str]:
        """Further tags of all rows with its name."""
        return self.labels

    @property
    def carries_energy(self) -> bool:
        """Whether a run may have an energy window."""
        return self.energy


DEFER_AT_MOST_S = 30.0
CONTEXT_TOKENS_MAX = 131_072
# The kinds that need no file and no package.
BUILT_IN_MODELS = tuple(
    f"{kind}:{model}" if model else kind
    for kind, source in SOURCES.items()
    if source.is_built_in
    for model in source.models or ("",)
)
_MODULE = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


class InputConfig(Section):
    """One input of a model, for one item: without the batch dimension."""

    name: str | None = Field(
        None,
        max_length=100,
        description="Name of the input, if the model takes its inputs by name.",
        examples=["input_ids"],
    )
    shape: tuple[Annotated[int, Field(ge=1, le=1 << 24)], ...] = Field(
        max_length=8, description="Lengths of its dimensions.", examples=[[128]]
    )
    dtype: Literal["fp32", "bf16", "fp16", "int64", "int32", "bool"] = Field(
        "fp32", description="Type of its elements.", examples=["int64"]
    )
    below: int = Field(
        1000, ge=1, description="Integers are drawn from 0 up to, but not including, this."
    )


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError(f"write the whole path of {path}, from / on")
    return path


class ProbeConfig(CommonProbeConfig):
    """One controlled inference of a model, repeated on a schedule."""

    kind: str = Field(
        "transformer",
        description=(
            '"transformer", "cnn" and "decoder:SIZE/PHASE" are built in, "module" is your own '
            'model; or a source and what it loads: "torchvision:resnet50", "timm:NAME", '
            '"transformers:/folder", "torchscript:/file", "pt2:/file".'
        ),
        examples=["transformer"],
    )
    module: Annotated[str, matching(_MODULE, "write package.module:function")] | None = Field(
        None,
        description=(
            "Factory that returns (torch module, example inputs), as package.module:function."
        ),
        examples=["shop.models:ranker"],
    )
    path: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        None,
        description="Folder of the module, if it is not on the interpreter's path.",
        examples=["/srv/shop"],
    )
    python: Path | None = Field(
        None,
        description="Python interpreter to run the probe with, such as the serving stack's own.",
        examples=["/opt/serving/bin/python"],
    )
    weights: Path | None = Field(
        None,
        description='File of weights for "torchvision" and "timm"; random weights by default.',
        examples=["/models/resnet50.pt"],
    )
    inputs: tuple[InputConfig, ...] = Field(
        (),
        max_length=16,
        description="Inputs of a model that has no example inputs, or to replace them.",
        examples=[[{"shape": [128], "dtype": "int64"}]],
    )
    dtype: Literal["fp32", "bf16", "fp16"] | None = Field(
        None, description="Type that model and inputs are converted to.", examples=["bf16"]
    )
    context_tokens: int | None = Field(
        None,
        ge=2,
        le=CONTEXT_TOKENS_MAX,
        description=(
            "Tokens of the prompt of a decoder's prefill, or of the context that its decode step "
            f"reads; {SOURCES['decoder'].context_tokens} by default."
        ),
        examples=[2048],
    )
    batch: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = Field(
        "auto",
        description='Items a pass, or "auto" for the best throughput within `latency_bound`.',
        examples=["auto"],
    )
    min_samples: int = Field(
        300, ge=30, le=1_000_000, description="Fewest timed passes, unless `sample_cap` ends them."
    )
    latency_bound_s: Duration | None = key(
        "latency_bound",
        None,
        description="Slowest pass that the search accepts.",
        examples=["50ms"],
    )
    memory_cap_bytes: Size | None = key(
        "memory_cap",
        None,
        description="Most device memory that a probe may use.",
        examples=["4GiB"],
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Intra-op threads on a CPU; by default as torch chooses.",
        examples=[8],
    )
    cold: bool = Field(
        False,
        description=(
            "Whether caches are flushed before every timed pass; energy is then not measured."
        ),
    )
    compile: bool = Field(False, description="Whether the model is compiled with torch.compile.")
    cuda_graph: bool = Field(
        False, description="Whether a pass is captured once as a CUDA graph and replayed."
    )
    autograd: Literal["inference_mode", "no_grad", "enable_grad"] = Field(
        "inference_mode",
        description=(
            "torch's mode in which a pass runs; one that computes gradients needs "
            '"enable_grad", or "no_grad" if it enables them itself.'
        ),
        examples=["enable_grad"],
    )
    keep_alive: bool = Field(
        False,
        description=(
            "Whether the probe process stays between runs; it then keeps its device memory, and an "
            "otherwise idle GPU at a higher clock and power (an H200 at 127 W instead of 81 W)."
        ),
    )
    when_busy: Literal["run", "skip", "defer"] = Field(
        "defer",
        description="What a run does while others use the device: wait, be skipped, or run.",
        examples=["defer"],
    )

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        source, _, model = kind.partition(":")
        if source in SOURCES and bool(model) == bool(SOURCES[source].example):
            known_models = SOURCES[source].models
            if known_models and model not in known_models:
                raise ValueError(f"no {source} {model!r}; write one of {', '.join(known_models)}")
            return kind
        if kind in SOURCES:
            example = SOURCES[kind].example
            raise ValueError(f'add the model to load, such as "{kind}:{example}"')
        kinds = [
            f"{name}:{source.example}" if source.example else name
            for name, source in SOURCES.items()
        ]
        known = ", ".join(f'"{name}"' for name in (*kinds, *SERVERS))
        raise ValueError(f"unknown probe kind {kind!r}; write one of {known}")

    @model_validator(mode="after")
    def _keys_match_kind(self) -> ProbeConfig:
        if (self.kind == "module") != (self.module is not None):
            raise ValueError('kind = "module" and module = "package.mod:factory" go together')
        if self.path is not None and self.module is None:
            raise ValueError(f'remove path: kind = "{self.kind}" loads no module of yours')
        source = SOURCES[self.source]
        if self.inputs and (source.is_built_in or not source.example):
            raise ValueError(f'remove inputs: kind = "{self.kind}" defines its own')
        if self.weights is not None and not source.takes_weights:
            raise ValueError(f'remove weights: kind = "{self.kind}" has none')
        if self.context_tokens is not None and not source.context_tokens:
            raise ValueError(f'remove context_tokens: kind = "{self.kind}" has no context')
        if self.dtype is not None and source.is_program:
            raise ValueError(f"remove dtype: a {self.source} program has a fixed type")
        if self.compile and source.is_program:
            raise ValueError(f"remove compile: a {self.source} program is already compiled")
        return self

    @property
    def source(self) -> str:
        """The kind without the model."""
        return self.kind.partition(":")[0]

    @property
    def model(self) -> str | None:
        """Name or path of the model that a source loads; None for other kinds."""
        return self.kind.partition(":")[2] or None

    @property
    def code(self) -> Path | None:
        """The file of the module in `path`; None for a model without `path`."""
        if self.path is None or self.module is None:
            return None
        *packages, name = self.module.partition(":")[0].split(".")
        return self.path.joinpath(*packages, f"{name}.py")

    @property
    def identity(self) -> str:
        """Identity of the model, for stored results."""
        return self.module or self.kind

    @property
    def measured_dtype(self) -> str | None:
        """The configured type; by default fp32 for a built-in model, and None for other models."""
        return self.dtype or ("fp32" if SOURCES[self.source].is_built_in else None)

    @property
    def carries_energy(self) -> bool:
        """Whether a run may have an energy window; a cold run may not, because it flushes caches."""
        return self.energy and not self.cold

    @property
    def deferral_s(self) -> float:
        """Longest wait for an idle device in seconds: 30 s, or half a period if that is shorter."""
        return min(DEFER_AT_MOST_S, self.every_s / 2)


def section_of(model: str, body: Path | None = None) -> dict[str, str] | None:
    """Return the `[[probe]]` of a model or server that is named by a text; None if it names none.

    Args:
        model: "SOURCE:MODEL", "FILE.py:FUNCTION", "package.module:function", or the URL of a server: of
            OpenAI's API if it ends in /v1; then the section lacks the name of its model.
        body: File with the body of a request to any other server.

    Raises:
        ValueError: The file cannot be used.
    """
    own_name = re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-")[-64:].lstrip("-")
    if model.startswith(("http://", "https://")):
        section = {"name": own_name, "kind": "openai", "url": model}
        if not model.rstrip("/").endswith("/v1"):
            section["kind"] = "http"
            section |= {"method": "GET"} if body is None else {"body_file": str(body.resolve())}
        return section
    kind, _, loaded = model.partition(":")
    source = SOURCES.get(kind)
    if source is not None:
        if loaded and source.example.startswith("/"):
            model = f"{kind}:{Path(loaded).resolve()}"
        return {"name": own_name, "kind": model.rstrip(":")}
    place, _, function = model.rpartition(":")
    section = {"name": own_name, "kind": "module", "module": model}
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            raise ValueError(f"{place}: there is no such file")
        if not file.stem.isidentifier():
            raise ValueError(f"{place}: rename it to letters, digits and _: Python imports it")
        section |= {"module": f"{file.stem}:{function}", "path": str(file.parent)}
    return section if place and function else None


class _ServedProbeConfig(WithHeaders, WithToken, CommonProbeConfig):
    """Requests to an inference server that runs on this host's devices."""

    removed: ClassVar = {"python": "a probe of a server runs under costprobe's own interpreter"}

    url: Annotated[str, Field(max_length=500), IS_BARE_URL] = Field(
        description="Address of the server.", examples=["http://127.0.0.1:8000"]
    )
    requests: int = Field(
        64,
        ge=1,
        le=100_000,
        description=(
            "Fewest timed requests in a run, unless `sample_cap` ends them; 64 give a p90, 662 a p99."
        ),
    )
    warmup_requests: int = Field(
        2, ge=0, le=1000, description="Requests before them, which are not counted."
    )
    concurrency: int = Field(
        1, ge=1, le=256, description="Requests in flight at the same time.", examples=[4]
    )
    timeout_s: Duration = key("timeout", 60.0, description="Timeout of one request.")
    slo: SloConfig | None = Field(
        None,
        description=(
            "Service level: the cheapest point of a load curve that meets it is named, and the"
            " requests that meet it are its goodput."
        ),
        examples=[{"ttft_p90": "500ms", "tpot_p90": "50ms"}],
    )
    load: LoadConfig | None = Field(
        None,
        description="The load curve that `costprobe probe NAME --load` measures.",
        examples=[{"tokens_in": "uniform(64, 512)", "tokens_out": 128}],
    )
    ca_file: CaFile = None

    @property
    def load_curve(self) -> LoadConfig:
        """The load curve: as configured, or by default."""
        return self.load or LoadConfig()


class OpenAiProbeConfig(_ServedProbeConfig):
    """A server with the OpenAI API, such as vLLM, SGLang, TGI, llama.cpp or Triton."""

    kind: Literal["openai"] = Field(description="Kind of probe.", examples=["openai"])
    api: Literal["chat", "completions"] = Field(
        "chat", description="Endpoint: /v1/chat/completions or /v1/completions."
    )
    model: str = Field(
        min_length=1,
        max_length=500,
        description="Name of the model on the server.",
        examples=["llama"],
    )
    prompt: str = Field(
        "Explain what a mutex is in three sentences.",
        min_length=1,
        max_length=65536,
        description="The prompt.",
    )
    vary_prompt: bool = Field(
        True,
        description=(
            "Whether each prompt begins with random digits, so that a prefix cache does not answer it."
        ),
    )
    max_tokens: int = Field(64, ge=1, le=65536, description="Longest completion in tokens.")


class TensorConfig(Section):
    """A tensor of the Open Inference Protocol, with its values in row-major order."""

    name: str = Field(
        min_length=1,
        max_length=200,
        description="Name of the tensor in the model.",
        examples=["INPUT0"],
    )
    datatype: Annotated[
        str,
        matching(
            r"BOOL|U?INT(8|16|32|64)|FP(16|32|64)|BYTES",
            "a type is BOOL, INT8 to INT64, UINT8 to UINT64, FP16 to FP64, or BYTES",
        ),
    ] = Field(
        description="Type of its elements: BOOL, INT8 to INT64, UINT8 to UINT64, FP16 to FP64, or BYTES.",
        examples=["FP32"],
    )
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        max_length=8,
        description="Lengths of its dimensions, including the batch.",
        examples=[[1, 16]],
    )
    data: tuple[float | int | bool | str, ...] | None = Field(
        None, description="All its values; by default `fill` for each.", examples=[[1, 2, 3]]
    )
    fill: float | int | bool | str = Field(
        0, description="Value of every element if `data` is absent."
    )

    @model_validator(mode="after")
    def _values_fill_the_shape(self) -> TensorConfig:
        size = math.prod(self.shape)
        if size > MAX_ELEMENTS:
            raise ValueError(f"shape has more than {MAX_ELEMENTS} elements")
        if self.data is not None and len(self.data) != size:
            raise ValueError(
                f"data has {len(self.data)} values where shape has {size}; write {size}"
            )
        return self


MAX_ELEMENTS = 4096


class _WithoutTokens(_ServedProbeConfig):
    """A server whose requests have no tokens, and whose answers are not streamed."""

    @field_validator("load")
    @classmethod
    def _load_has_no_tokens(cls, load: LoadConfig | None) -> LoadConfig | None:
        for name in ("tokens_in", "tokens_out", "prompts", "shared_prefix"):
            if load is not None and getattr(load, name) is not None:
                raise ValueError(f"remove {name}: requests have no tokens")
        return load

    @field_validator("slo")
    @classmethod
    def _slo_has_latencies(cls, slo: SloConfig | None) -> SloConfig | None:
        if slo is not None and not all(name.startswith("latency") for name in slo.bounds_ms):
            raise ValueError("give latency bounds: answers are not streamed")
        return slo


class KserveProbeConfig(_WithoutTokens):
    """A server with the Open Inference Protocol v2, such as Triton or KServe."""

    kind: Literal["kserve"] = Field(description="Kind of probe.", examples=["kserve"])
    model: Annotated[
        str,
        Field(min_length=1, max_length=200),
        matching(r"[\w.:@+-]+", "a model's name has letters, digits and _ . : @ + -"),
    ] = Field(description="Name of the model on the server.", examples=["ranker"])
    version: (
        Annotated[
            str,
            Field(max_length=50),
            matching(r"[\w.-]+", "a version has letters, digits and _ . -"),
        ]
        | None
    ) = Field(
        None, description="Version of the model; by default the server chooses.", examples=["1"]
    )
    inputs: tuple[TensorConfig, ...] = Field(
        min_length=1,
        max_length=16,
        description="Tensors of a request.",
        examples=[[{"name": "INPUT0", "datatype": "FP32", "shape": [1, 16]}]],
    )


class HttpProbeConfig(_WithoutTokens):
    """Any HTTP server: the same request each time."""

    kind: Literal["http"] = Field(description="Kind of probe.", examples=["http"])
    method: Literal["POST", "GET", "PUT"] = Field("POST", description="Method of the request.")
    body_file: Path | None = Field(
        None, description="File with the body of the request.", examples=["/srv/ranker/body.json"]
    )
    content_type: Label = Field("application/json", description="Type of the body.")
    status: int = Field(200, ge=100, le=599, description="Status of a valid response.")
    items: Annotated[str, matching(r"(/[^/]*)+", "a JSON pointer such as /predictions")] | None = (
        Field(
            None,
            description=(
                "Where in the JSON response its items are, as a list or a number; each is an"
                " inference. By default a request is one."
            ),
            examples=["/predictions"],
        )
    )


ServedProbeConfig = OpenAiProbeConfig | KserveProbeConfig | HttpProbeConfig


class ProbingConfig(Section):
    """Limits of all probes together."""

    duty: Share = Field(
        0.01,
        description="Largest share of a device's time spent on probes, on average.",
        examples=["1%"],
    )


def _probe_kind(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) and kind in SERVERS else "[torch]"


AnyProbeConfig = Annotated[
    Annotated[ProbeConfig, Tag("[torch]")]
    | Annotated[OpenAiProbeConfig, Tag("openai")]
    | Annotated[KserveProbeConfig, Tag("kserve")]
    | Annotated[HttpProbeConfig, Tag("http")],
    Discriminator(_probe_kind),
]
