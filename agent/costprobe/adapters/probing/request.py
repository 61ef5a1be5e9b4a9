"""Requests to a probe child."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """One run of a probe, as the worker reads it.

    Attributes:
        probe: Name of the probe.
        kind: A built-in model's name, "module", or a source such as "torchvision".
        module: "package.mod:factory" where kind is "module".
        model: What a source loads: a name, or a path.
        weights: A file with the model's weights; None for random ones.
        inputs: Inputs of one item, for a source that does not define them.
        torch_device: Torch's name of the device.
        gpu_uuid: NVML's identity of the GPU, for CUDA_VISIBLE_DEVICES.
        dtype: "fp32", "bf16" or "fp16"; None leaves the module's own.
        batch: Items per pass, or "auto" for a search.
        known_batch: Batch size that an earlier search found.
        known_fingerprint: Fingerprint of that search; other software needs a new search.
        max_batch: Largest batch that a search tries.
        latency_bound_ms: Slowest pass that a search chooses.
        memory_cap_bytes: Largest peak that a search may reach.
        threads: Intra-op threads on a CPU; None for torch's default.
        min_runs: Least number of timed passes.
        sample_cap_s: Longest sampling in seconds.
        energy: True to extend the steady-state window for an energy measurement.
        window_s: Its least length in seconds.
        tail_s: Longest time in seconds for which the load continues after it.
        seed: Of weights and inputs.
        cold: True to flush the device's cache before each timed pass.
        compile: True to run the model through torch.compile.
        cuda_graph: True to replay the pass as a CUDA graph.
    """

    probe: str
    kind: str
    torch_device: str
    dtype: str | None
    batch: int | Literal["auto"]
    energy: bool
    module: str | None = None
    model: str | None = None
    weights: str | None = None
    inputs: tuple[Mapping[str, Any], ...] = ()
    gpu_uuid: str | None = None
    known_batch: int | None = None
    known_fingerprint: str | None = None
    max_batch: int = 256
    latency_bound_ms: float | None = None
    memory_cap_bytes: int | None = None
    threads: int | None = None
    min_runs: int = 300
    sample_cap_s: float = 10.0
    window_s: float = 5.0
    tail_s: float = 2.0
    seed: int = 0
    cold: bool = False
    compile: bool = False
    cuda_graph: bool = False

    def to_wire(self) -> str:
        """Return the request as JSON without a line end."""
        return json.dumps({"cmd": "probe", **asdict(self)})


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One run of a probe of a server, as the worker reads it.

    Attributes:
        probe: Name of the probe.
        kind: "openai" or "kserve".
        url: The server's base address.
        model: Name of the served model.
        requests: Least number of timed requests.
        warmup_requests: Requests before them.
        concurrency: Requests at the same time.
        timeout_s: Longest time of a request in seconds.
        energy: True to extend the steady-state window for an energy measurement.
        window_s: Its least length in seconds.
        sample_cap_s: Longest timing in seconds.
        tail_s: Longest time in seconds for which the load continues after the window.
        api: "chat" or "completions" where kind is "openai".
        prompt: The prompt.
        vary_prompt: Whether each prompt begins with other digits.
        max_tokens: Longest answer in tokens.
        version: The served model's version where kind is "kserve"; None for the server's choice.
        inputs: Tensors of a request where kind is "kserve".
        token_path: File that holds the bearer token.
        ca_file: CA certificates for the server's certificate; None for the system's.
        seed: Of the server's sampling.
    """

    probe: str
    kind: str
    url: str
    model: str
    requests: int
    warmup_requests: int
    concurrency: int
    timeout_s: float
    energy: bool
    window_s: float
    sample_cap_s: float
    tail_s: float = 2.0
    api: str | None = None
    prompt: str | None = None
    vary_prompt: bool | None = None
    max_tokens: int | None = None
    version: str | None = None
    inputs: tuple[Mapping[str, Any], ...] = ()
    token_path: str | None = None
    ca_file: str | None = None
    seed: int = 0

    @property
    def gpu_uuid(self) -> None:
        """None: the server uses the devices, the worker does not."""
        return

    def to_wire(self) -> str:
        """Return the request as JSON without a line end."""
        return json.dumps({"cmd": "probe", **asdict(self)})
