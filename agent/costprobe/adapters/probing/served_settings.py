"""The configuration of probes of an inference server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from costprobe.adapters.net.settings import CaFile, TokenCredential, TokenFile
from costprobe.adapters.probing.common_settings import CommonProbeConfig
from costprobe.adapters.probing.load_settings import LoadConfig, SloConfig
from costprobe.core.config.fields import IS_BARE_URL, Duration, Section, key, matching


class _ServedProbeConfig(CommonProbeConfig):
    """Requests to an inference server that runs on this host's devices."""

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
    token_file: TokenFile = None
    token_credential: TokenCredential = None
    ca_file: CaFile = None

    @model_validator(mode="before")
    @classmethod
    def _has_no_interpreter(cls, section: Any) -> Any:  # noqa: ANN401 - not validated yet
        if isinstance(section, dict) and "python" in section:
            raise ValueError(
                "remove python: a probe of a server runs under costprobe's own interpreter"
            )
        return section

    @model_validator(mode="after")
    def _one_token(self) -> _ServedProbeConfig:
        if self.token_file and self.token_credential:
            raise ValueError("give token_file or token_credential, not both")
        return self

    @property
    def load_curve(self) -> LoadConfig:
        """The load curve: as configured, or by default."""
        return self.load or LoadConfig()

    @property
    def carries_energy(self) -> bool:
        """Whether a run may have an energy window."""
        return self.energy


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
    ] = Field(description="Type of its elements, by the protocol's name.", examples=["FP32"])
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
        size = 1
        for length in self.shape:
            size *= length
        if size > MAX_ELEMENTS:
            raise ValueError(f"shape has more than {MAX_ELEMENTS} elements")
        if self.data is not None and len(self.data) != size:
            raise ValueError(
                f"data has {len(self.data)} values where shape has {size}; write {size}"
            )
        return self


MAX_ELEMENTS = 4096


class KserveProbeConfig(_ServedProbeConfig):
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

    @model_validator(mode="after")
    def _has_no_tokens(self) -> KserveProbeConfig:
        load = self.load_curve
        given = (load.tokens_in, load.tokens_out, load.prompts, load.shared_prefix)
        if any(value is not None for value in given):
            raise ValueError("requests have no tokens: remove tokens and prompts from load")
        if self.slo is not None and not all(
            name.startswith("latency") for name in self.slo.bounds_ms
        ):
            raise ValueError("answers are not streamed: give latency bounds in slo")
        return self


ServedProbeConfig = OpenAiProbeConfig | KserveProbeConfig
