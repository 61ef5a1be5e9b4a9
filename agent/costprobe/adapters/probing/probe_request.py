"""One run of a probe, as its child reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """One run of a probe.

    Attributes:
        probe: Name of the probe.
        document: What the worker reads: the section, each key by its field's name, with numbers in base
            units, and the run's own keys, which replace those of the section.
        gpu_uuid: NVML's identity of the GPU, for CUDA_VISIBLE_DEVICES; None for a CPU or a server.
    """

    probe: str
    document: Mapping[str, Any]
    gpu_uuid: str | None = None

    def to_wire(self) -> str:
        """Return the request as JSON without a line end."""
        return json.dumps({"cmd": "probe", **self.document}, default=os.fspath)
