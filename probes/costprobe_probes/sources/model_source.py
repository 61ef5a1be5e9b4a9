"""The contract of a model source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional, Protocol

import torch
from torch import nn

from costprobe_probes.spec import Spec

# Makes tensors for a batch size on a device.
MakeState = Callable[[int, torch.device], "tuple[torch.Tensor, ...]"]


class SourcedModel(NamedTuple):
    """A model as its source returned it.

    Attributes:
        module: The model, on the host; or on torch's meta device, if `move` makes its weights.
        inputs: Returns one batch of inputs on the host for a batch size: a tensor, a list or a
            tuple of tensors, or a dict of tensors, each with the batch as first dimension.
        weights: "file" or "random"; empty if the model has its own weights.
        files: Files that were read; they are part of the fingerprint.
        move: Moves the module to a device; None for `module.to(device)`.
        min_batch: Smallest batch that the model accepts.
        max_batch: Largest batch that the model accepts; None for any.
        state: Makes the tensors that a pass reads and writes, such as a KV cache, for a batch size
            on a device; they follow the inputs as arguments. None if there are none.
        tokens_in: Prompt tokens that a pass reads for each item; None if it reads none.
        tokens_out: Tokens that a pass generates for each item; None if it generates none.
    """

    module: nn.Module
    inputs: Callable[[int], Any]
    weights: str = ""
    files: tuple[str, ...] = ()
    move: Optional[Callable[[torch.device], nn.Module]] = None  # noqa: UP045 - evaluated on Python 3.9
    min_batch: int = 1
    max_batch: Optional[int] = None  # noqa: UP045 - as above
    state: Optional[MakeState] = None  # noqa: UP045 - as above
    tokens_in: Optional[int] = None  # noqa: UP045 - as above
    tokens_out: Optional[int] = None  # noqa: UP045 - as above


class ModelSource(Protocol):
    """A way to load a model: one function, listed in `registry.SOURCES`.

    Its module is imported when a probe of its kind runs, never earlier.
    """

    def __call__(self, spec: Spec, /) -> SourcedModel:
        """Load the model that a probe names, on the host and without network access.

        The same spec under the same seed of torch's generator returns the same model.

        Raises:
            ProbeConfigError: A package or a file is missing, or does not fit; the text has its
                name and the fix.
        """
