"""Where models come from besides the built-in ones and an operator's own factory.

A source is a module with `load(spec) -> Sourced`; a new one is a file here and a line in SOURCES.
Nothing is fetched from a network, and weights are tensors: no other object is unpickled from them.
What a file holds of a program, as those of torchscript and pt2 do, is trusted as a factory is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import nn

# Kinds of probes and the modules that load them, imported when they are asked for.
SOURCES = {
    "torchscript": "probes.sources.torchscript",
    "pt2": "probes.sources.exported",
    "torchvision": "probes.sources.vision",
    "timm": "probes.sources.timm_models",
    "transformers": "probes.sources.hub_folder",
}


class Sourced(NamedTuple):
    """A model as a source gave it.

    Attributes:
        module: On the host.
        inputs: Takes the batch; makes one batch of inputs on the host.
        weights: "file", or "random" where the source was given none.
        files: What was read, for the fingerprint.
        move: Moves the module to a device; None for the usual way.
        min_batch: Smallest batch it takes.
        max_batch: Largest batch it takes; None for any.
    """

    module: nn.Module
    inputs: Callable[[int], Any]
    weights: str
    files: tuple[str, ...] = ()
    move: Optional[Callable[[torch.device], nn.Module]] = None  # noqa: UP045 - evaluated on Python 3.9
    min_batch: int = 1
    max_batch: Optional[int] = None  # noqa: UP045 - as above
