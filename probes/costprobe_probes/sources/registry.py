"""The kinds of model source: a new kind is a module in this folder and a line in SOURCES."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.sources.model_source import ModelSource

# Probe kind -> module that implements ModelSource, imported on first use.
SOURCES: Mapping[str, str] = {
    "transformer": "costprobe_probes.sources.builtin",
    "cnn": "costprobe_probes.sources.builtin",
    "module": "costprobe_probes.sources.factory",
    "torchscript": "costprobe_probes.sources.torchscript",
    "pt2": "costprobe_probes.sources.exported",
    "torchvision": "costprobe_probes.sources.vision",
    "timm": "costprobe_probes.sources.timm_models",
    "transformers": "costprobe_probes.sources.hub_folder",
}


def source_of(kind: str) -> ModelSource:
    """Import the model source of a probe kind.

    Raises:
        ProbeConfigError: No such kind.
    """
    if kind not in SOURCES:
        raise ProbeConfigError(f"no probe kind {kind!r}; known kinds: {', '.join(SOURCES)}")
    source: Any = importlib.import_module(SOURCES[kind])
    found: ModelSource = source
    return found
