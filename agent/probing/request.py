"""What a probe child is asked to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """One run of a probe, as the worker reads it.

    Attributes:
        probe: Name of the probe.
        kind: A built-in model's name, or "module".
        module: "package.mod:factory" where kind is "module".
        torch_device: Torch's name of the device.
        gpu_uuid: NVML's identity of the GPU, which is how the child is shown that one alone.
        dtype: "fp32", "bf16" or "fp16"; None leaves an operator's module as it was made.
        batch: Items per pass, or "auto" for a search.
        known_batch: What an earlier search found.
        known_fingerprint: What that search measured; other software is searched anew.
        max_batch: Largest batch that a search tries.
        latency_bound_ms: Slowest pass that a search chooses.
        memory_cap_bytes: Largest peak that a search may reach.
        threads: Intra-op threads on a CPU; None leaves torch's own choice.
        min_runs: Least number of timed passes.
        sample_cap_s: Longest sampling in seconds.
        energy: True to keep a steady-state region for an energy figure.
        region_s: Its least length in seconds.
        tail_s: How long the load goes on behind it, at most, in seconds.
        seed: Of weights and inputs.
    """

    probe: str
    kind: str
    torch_device: str
    dtype: str | None
    batch: int | Literal["auto"]
    energy: bool
    module: str | None = None
    gpu_uuid: str | None = None
    known_batch: int | None = None
    known_fingerprint: str | None = None
    max_batch: int = 256
    latency_bound_ms: float | None = None
    memory_cap_bytes: int | None = None
    threads: int | None = None
    min_runs: int = 300
    sample_cap_s: float = 10.0
    region_s: float = 5.0
    tail_s: float = 2.0
    seed: int = 0

    def to_wire(self) -> str:
        """The request as a line of JSON, without its line end."""
        return json.dumps({"cmd": "probe", **asdict(self)})
