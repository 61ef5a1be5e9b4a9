"""The configuration of probes: a model that the probe runs itself, or a server that it asks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from agent.config_fields import (
    IS_BARE_URL,
    Duration,
    Name,
    Pause,
    Quality,
    Region,
    Section,
    Share,
    Size,
    key,
    matching,
)

BUILT_IN = ("transformer", "cnn")
# Kinds that are written with what they load: "torchvision:resnet50", "pt2:/models/ranker.pt2".
SOURCES = ("torchscript", "pt2", "torchvision", "timm", "transformers")
DEFER_AT_MOST_S = 30.0
_MODULE = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
# A neighbour's work below this share of the time is none, by kind of device: an idle GPU does
# nothing at all, an idle host never does nothing.
BUSY_ABOVE = {"gpu": 0.1, "mig": 0.1, "cpu": 0.5}


class _AnyProbeConfig(Section):
    """What all probes have: where, how often, for how long, and beside whom.

    Attributes:
        name: The tag `probe`.
        devices: Devices it runs on, each by itself; of a server, those that it holds, together.
        every_s: Period; runs fall on its multiples of the clock, on every host of a fleet.
        stagger_s: Spreads hosts over so much time, each by a fixed delay.
        deadline_s: A run that takes longer is ended.
        region_s: Length of the steady region that energy is measured over.
        sample_cap_s: Longest time that latency is sampled for.
        energy: Whether energy is measured; without it a run is shorter.
        quality: How good the answers are, by your own measure, for `infercost compare`.
        python: Interpreter that the probe runs under, such as the serving stack's own.
    """

    name: Name
    devices: Literal["all"] | list[Name] = "all"
    every_s: Duration = key("every", 300.0)
    stagger_s: Pause = key("stagger", 0.0)
    deadline_s: Duration = key("deadline", 180.0)
    region_s: Region = key("region", 5.0)
    sample_cap_s: Duration = key("sample_cap", 10.0)
    energy: bool = True
    quality: Quality | None = None
    python: Path | None = None

    @model_validator(mode="after")
    def _ends_in_time(self) -> _AnyProbeConfig:
        if self.deadline_s <= self.region_s:
            raise ValueError("deadline must be longer than region, or no run can end in time")
        return self


class InputConfig(Section):
    """One input of a model, for one item: without the batch dimension.

    Attributes:
        name: The model's name of it, where it takes its inputs by name.
        shape: Lengths of its dimensions.
        dtype: Type of its elements.
        below: Whole numbers are drawn from 0 to this, without it.
    """

    name: str | None = Field(None, max_length=100)
    shape: tuple[Annotated[int, Field(ge=1, le=1 << 24)], ...] = Field(max_length=8)
    dtype: Literal["fp32", "bf16", "fp16", "int64", "int32", "bool"] = "fp32"
    below: int = Field(1000, ge=1)


class ProbeConfig(_AnyProbeConfig):
    """One controlled inference of a model, run again and again.

    Attributes:
        kind: What is run: "transformer", "cnn", "module", or a source with what it loads.
        module: "package.mod:factory", a function that returns (torch module, example inputs).
        weights: File of weights for "torchvision" and "timm"; random ones if absent.
        inputs: The inputs of a model that brings none, or others than its own.
        dtype: Type that model and inputs are brought to.
        batch: Items a pass, or "auto" for the best throughput within `latency_bound`.
        max_batch: Largest batch that the search tries.
        min_samples: Fewest timed passes, unless `sample_cap` ends them.
        latency_bound_s: Slowest pass that the search may choose.
        memory_cap_bytes: Most device memory that a probe may take.
        threads: Intra-op threads on a CPU; as torch has it if absent.
        cold: Whether caches are flushed before every timed pass; then there is no energy.
        compile: Whether the model goes through torch.compile.
        cuda_graph: Whether a pass is recorded once as a CUDA graph and replayed.
        keep_alive: Whether the worker stays between runs; it then keeps its device memory.
        when_busy: What a run does on a device that others use: wait, be left out, or run.
        defer_at_most_s: Longest wait for a quiet device; 30 s, or half of `every` if that is less.
        busy_above: Share of time above which a device is busy; 10 % of a GPU, 50 % of a CPU.
    """

    kind: str = "transformer"
    module: Annotated[str, matching(_MODULE)] | None = None
    weights: Path | None = None
    inputs: tuple[InputConfig, ...] = Field((), max_length=16)
    dtype: Literal["fp32", "bf16", "fp16"] | None = None
    batch: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = "auto"
    max_batch: int = Field(256, ge=1, le=65536)
    min_samples: int = Field(300, ge=30, le=1_000_000)
    latency_bound_s: Duration | None = key("latency_bound", None)
    memory_cap_bytes: Size | None = key("memory_cap", None)
    threads: int | None = Field(None, ge=1, le=4096)
    cold: bool = False
    compile: bool = False
    cuda_graph: bool = False
    keep_alive: bool = False
    when_busy: Literal["run", "skip", "defer"] = "defer"
    defer_at_most_s: Duration | None = key("defer_at_most", None)
    busy_above: Share | None = None

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        source, _, what = kind.partition(":")
        if kind in (*BUILT_IN, "module") or (source in SOURCES and what):
            return kind
        if kind in SOURCES:
            raise ValueError(f'write what to load behind it, such as "{kind}:{_EXAMPLES[kind]}"')
        named = ", ".join(f'"{name}:{_EXAMPLES[name]}"' for name in SOURCES)
        raise ValueError(
            f'no probe kind {kind!r}; there are "transformer", "cnn", "module", {named},'
            ' "openai", "kserve"'
        )

    @model_validator(mode="after")
    def _keys_go_with_the_kind(self) -> ProbeConfig:
        if (self.kind == "module") != (self.module is not None):
            raise ValueError('kind = "module" and module = "package.mod:factory" go together')
        if self.inputs and self.source not in SOURCES:
            raise ValueError(f'inputs are not for kind = "{self.kind}", which brings its own')
        if self.weights is not None and self.source not in ("torchvision", "timm"):
            raise ValueError(f'weights are not for kind = "{self.kind}"')
        if self.dtype is not None and self.source in ("torchscript", "pt2"):
            raise ValueError(f"a {self.source} program runs as it was made; remove dtype")
        if self.compile and self.source in ("torchscript", "pt2"):
            raise ValueError(f"a {self.source} program is compiled already; remove compile")
        if (self.defer_at_most_s or 0.0) > self.every_s:
            raise ValueError("defer_at_most must not be longer than every")
        return self

    @property
    def source(self) -> str:
        """The kind without what it loads."""
        return self.kind.partition(":")[0]

    @property
    def model(self) -> str | None:
        """What a source loads: a name, or a path; None for the kinds that are none."""
        return self.kind.partition(":")[2] or None

    @property
    def identity(self) -> str:
        """What is run, for what is remembered of it."""
        return self.module or self.kind

    @property
    def measured_dtype(self) -> str | None:
        """As configured; else fp32 for a built-in model, and any other as it was made."""
        return self.dtype or ("fp32" if self.kind in BUILT_IN else None)

    @property
    def carries_energy(self) -> bool:
        """Whether a run may have an energy window; a cold one flushes caches all the time."""
        return self.energy and not self.cold

    @property
    def deferral_s(self) -> float:
        """How long a run waits for a quiet device in seconds: half a minute, or half a period."""
        return self.defer_at_most_s or min(DEFER_AT_MOST_S, self.every_s / 2)

    def busy_share(self, device_kind: str) -> float:
        """The share of time above which a device of a kind counts as busy."""
        return BUSY_ABOVE[device_kind] if self.busy_above is None else self.busy_above


_EXAMPLES = {
    "torchscript": "/models/ranker.pt",
    "pt2": "/models/ranker.pt2",
    "torchvision": "resnet50",
    "timm": "vit_base_patch16_224",
    "transformers": "/models/bert-base",
}


class _ServedProbeConfig(_AnyProbeConfig):
    """Requests to a server that runs on this host's devices.

    Attributes:
        url: Address of the server.
        requests: Fewest timed requests of a run.
        warmup_requests: Requests before them, which do not count.
        concurrency: Clients that ask at the same time.
        timeout_s: Of one request.
        token_file: File with a bearer token.
        token_credential: Name of the systemd credential with that token.
        ca_file: Certificates of an authority of your own, for https.
    """

    url: Annotated[str, Field(max_length=500), IS_BARE_URL]
    requests: int = Field(20, ge=1, le=100_000)
    warmup_requests: int = Field(2, ge=0, le=1000)
    concurrency: int = Field(1, ge=1, le=256)
    timeout_s: Duration = key("timeout", 60.0)
    token_file: Path | None = None
    token_credential: Name | None = None
    ca_file: Path | None = None

    @model_validator(mode="after")
    def _one_token(self) -> _ServedProbeConfig:
        if self.token_file and self.token_credential:
            raise ValueError("give token_file or token_credential, not both")
        return self

    @property
    def carries_energy(self) -> bool:
        """Whether a run may have an energy window."""
        return self.energy


class OpenAiProbeConfig(_ServedProbeConfig):
    """A server that speaks OpenAI's protocol, as vLLM, SGLang, TGI, llama.cpp and Triton do.

    Attributes:
        api: Which of the protocol's two ways to ask.
        model: The model's name, as the server knows it.
        prompt: What is asked, the same each time.
        max_tokens: Longest answer in tokens.
    """

    kind: Literal["openai"]
    api: Literal["chat", "completions"] = "chat"
    model: str = Field(min_length=1, max_length=500)
    prompt: str = Field(
        "Explain what a mutex is in three sentences.", min_length=1, max_length=65536
    )
    max_tokens: int = Field(64, ge=1, le=65536)


class TensorConfig(Section):
    """A tensor of the open inference protocol, with its values in row-major order.

    Attributes:
        name: The model's name of it.
        datatype: Type of its elements, by the protocol's name.
        shape: Lengths of its dimensions, the batch included.
        data: All its values; by default `fill` for each.
        fill: Value of every element where `data` is absent.
    """

    name: str = Field(min_length=1, max_length=200)
    datatype: Literal[
        "BOOL",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "FP16",
        "FP32",
        "FP64",
        "BYTES",
    ]
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(max_length=8)
    data: tuple[float | int | bool | str, ...] | None = None
    fill: float | int | bool | str = 0

    @model_validator(mode="after")
    def _values_fill_the_shape(self) -> TensorConfig:
        size = 1
        for length in self.shape:
            size *= length
        if size > MAX_ELEMENTS:
            raise ValueError(f"shape has more than {MAX_ELEMENTS} elements")
        if self.data is not None and len(self.data) != size:
            raise ValueError(f"data has {len(self.data)} values where shape has {size}")
        return self


MAX_ELEMENTS = 4096


class KserveProbeConfig(_ServedProbeConfig):
    """A server that speaks the open inference protocol v2, as Triton and KServe do.

    Attributes:
        model: The model's name, as the server knows it.
        version: Version of the model; the server's choice if absent.
        inputs: The tensors of a request.
    """

    kind: Literal["kserve"]
    model: Annotated[str, Field(min_length=1, max_length=200), matching(r"^[\w.:@+-]+$")]
    version: Annotated[str, Field(max_length=50), matching(r"^[\w.-]+$")] | None = None
    inputs: tuple[TensorConfig, ...] = Field(min_length=1, max_length=16)


ServedProbeConfig = OpenAiProbeConfig | KserveProbeConfig


def _probe_kind(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return str(kind) if kind in ("openai", "kserve") else "[torch]"


AnyProbeConfig = Annotated[
    Annotated[ProbeConfig, Tag("[torch]")]
    | Annotated[OpenAiProbeConfig, Tag("openai")]
    | Annotated[KserveProbeConfig, Tag("kserve")],
    Discriminator(_probe_kind),
]


def listens_on(url: str) -> str:
    """The host and port of a URL, for people."""
    return re.sub(r"^https?://", "", url).partition("/")[0]
