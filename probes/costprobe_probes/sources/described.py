"""Inputs described in the configuration: shapes and types of one item."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from costprobe_probes.errors import ProbeConfigError

FLOATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
INTEGERS = {"int64": torch.int64, "int32": torch.int32}


def described(inputs: Sequence[Mapping[str, Any]]) -> Callable[[int], Any]:
    """Return a function that makes a batch of inputs: a list of tensors, or a dict if they have names.

    Args:
        inputs: For each, `shape` without the batch, `dtype`, `below` for integers, and `name`.
    """
    named_inputs = [description for description in inputs if description.get("name")]

    def make(batch: int) -> Any:  # noqa: ANN401 - a list or a dict of tensors
        if named_inputs:
            return {
                str(description["name"]): _tensor(description, batch)
                for description in named_inputs
            }
        return [_tensor(description, batch) for description in inputs]

    if named_inputs and len(named_inputs) < len(inputs):
        raise ProbeConfigError("inputs: name all of them, or none")
    return make


def image(channels: int, height: int, width: int) -> Callable[[int], torch.Tensor]:
    """Return a function that makes a batch of images of random noise."""
    return lambda batch: torch.randn(batch, channels, height, width)


def _tensor(description: Mapping[str, Any], batch: int) -> torch.Tensor:
    shape, dtype = (batch, *description["shape"]), description.get("dtype", "fp32")
    if dtype in FLOATS:
        return torch.randn(shape).to(FLOATS[dtype])
    if dtype in INTEGERS:
        return torch.randint(0, int(description.get("below", 1000)), shape, dtype=INTEGERS[dtype])
    if dtype == "bool":
        return torch.ones(shape, dtype=torch.bool)
    dtypes = ", ".join([*FLOATS, *INTEGERS, "bool"])
    raise ProbeConfigError(f"inputs: no dtype {dtype!r}; known dtypes: {dtypes}")
