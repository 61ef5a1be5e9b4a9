"""The kinds of model source: a new kind is a function in this folder and a line in SOURCES.

The daemon validates configurations with this table: this module does not import torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from costprobe_probes.decoder_shapes import CONTEXT_TOKENS, MODELS
from costprobe_probes.errors import ProbeConfigError

if TYPE_CHECKING:  # the contract names classes of torch
    from costprobe_probes.sources.model_source import ModelSource


class SourceKind(NamedTuple):
    """A kind of model source, and what a `[[probe]]` of this kind may contain.

    Attributes:
        source: Its ModelSource as module and function, imported on first use.
        example: An example of what to load, which follows the kind and a colon; empty for a kind
            that needs no name.
        is_built_in: True for a model of this package.
        models: The models that exist, where the kind has a fixed list.
        context_tokens: Default of `context_tokens`; 0 for a kind without a context.
        takes_weights: True if `weights` may name a file.
        is_program: True for files that hold a program: it keeps its types, and is compiled already.
    """

    source: str
    example: str = ""
    is_built_in: bool = False
    models: tuple[str, ...] = ()
    context_tokens: int = 0
    takes_weights: bool = False
    is_program: bool = False


SOURCES: Mapping[str, SourceKind] = {
    "transformer": SourceKind("costprobe_probes.sources.builtin:load_builtin", is_built_in=True),
    "cnn": SourceKind("costprobe_probes.sources.builtin:load_builtin", is_built_in=True),
    "decoder": SourceKind(
        "costprobe_probes.sources.decoder:load_decoder",
        "small/decode",
        is_built_in=True,
        models=MODELS,
        context_tokens=CONTEXT_TOKENS,
    ),
    "module": SourceKind("costprobe_probes.sources.factory:load_from_factory"),
    "torchscript": SourceKind(
        "costprobe_probes.sources.torchscript:load_torchscript",
        "/models/ranker.pt",
        is_program=True,
    ),
    "pt2": SourceKind(
        "costprobe_probes.sources.exported:load_exported", "/models/ranker.pt2", is_program=True
    ),
    "torchvision": SourceKind(
        "costprobe_probes.sources.vision:load_torchvision", "resnet50", takes_weights=True
    ),
    "timm": SourceKind(
        "costprobe_probes.sources.timm_models:load_timm", "vit_base_patch16_224", takes_weights=True
    ),
    "transformers": SourceKind(
        "costprobe_probes.sources.hub_folder:load_transformers", "/models/bert-base"
    ),
}


def source_of(kind: str) -> ModelSource:
    """Import and return the model source of a probe kind.

    Raises:
        ProbeConfigError: No such kind.
    """
    if kind not in SOURCES:
        raise ProbeConfigError(f"no probe kind {kind!r}; known kinds: {', '.join(SOURCES)}")
    module, _, function = SOURCES[kind].source.partition(":")
    source: ModelSource = getattr(importlib.import_module(module), function)
    return source
