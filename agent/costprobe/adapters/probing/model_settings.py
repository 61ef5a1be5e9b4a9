"""The configuration of probes of a model that the probe runs itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from costprobe_probes.sources.registry import SOURCES
from pydantic import Field, field_validator, model_validator

from costprobe.adapters.load_child.kinds import SERVERS
from costprobe.adapters.probing.common_settings import CommonProbeConfig
from costprobe.core.config.fields import Duration, Section, Share, Size, key, matching
from costprobe.core.device_kinds import DEVICE_KINDS, DeviceKind

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
    max_batch: int = Field(256, ge=1, le=65536, description="Largest batch that the search tries.")
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
    defer_at_most_s: Duration | None = key(
        "defer_at_most",
        None,
        description=(
            "Longest wait for an idle device; by default 30 s, or half of `every` if that is less."
        ),
        examples=["10s"],
    )
    busy_above: Share | None = Field(
        None,
        description=(
            "Utilization above which a device counts as busy; by default 10 % of a GPU, "
            "50 % of a CPU."
        ),
        examples=["20%"],
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
        if (self.defer_at_most_s or 0.0) > self.every_s:
            raise ValueError("defer_at_most must not be longer than every")
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
        return self.defer_at_most_s or min(DEFER_AT_MOST_S, self.every_s / 2)

    def busy_share(self, device_kind: DeviceKind) -> float:
        """Return the share of time above which a device of a kind counts as busy."""
        return DEVICE_KINDS[device_kind].busy_share if self.busy_above is None else self.busy_above
