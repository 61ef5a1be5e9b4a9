"""A linear layer of a configured width."""

from __future__ import annotations

import torch
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.wire import ProbeConfigError, Spec
from torch import nn


def load_linear(spec: Spec) -> SourcedModel:
    """Build the layer with random weights.

    Raises:
        ProbeConfigError: The width is not a positive integer.
    """
    text = spec.model or ""
    if not text.isdecimal() or int(text) < 1:
        raise ProbeConfigError(f"linear: width {text!r} is not a positive integer; set linear:512")
    width = int(text)
    return SourcedModel(
        nn.Linear(width, width), lambda batch: torch.randn(batch, width), weights="random"
    )
