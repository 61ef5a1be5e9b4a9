"""The kinds of model source, and the names of the built-in decoders.

The daemon validates configurations with this table: this module does not import torch. A new kind
is a function in this folder and a line in SOURCES.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from costprobe_probes.sources.model_source import ModelSource


class DecoderShape(NamedTuple):
    """Sizes of a decoder.

    Attributes:
        vocabulary: Number of tokens that exist.
        width: Channels of a token.
        layers: Number of blocks.
        heads: Query heads.
        kv_heads: Heads of keys and values; each serves heads / kv_heads query heads.
        head: Channels of a head.
        hidden: Channels within the feed-forward network.
        is_tied: True if the output uses the weights of the embedding.
        rope_base: Base of the rotary position embedding.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    hidden: int
    is_tied: bool
    rope_base: float = 500_000.0


# 1B and 8B have the shapes of Llama 3.2 1B and Llama 3.1 8B (config.json of the models): 1.24 and
# 8.03 billion parameters. Their rescaled rotary frequencies are left out: they take the same time.
SHAPES = {
    "small": DecoderShape(4096, 256, 4, 8, 2, 32, 704, is_tied=True),
    "1B": DecoderShape(128_256, 2048, 16, 32, 8, 64, 8192, is_tied=True),
    "8B": DecoderShape(128_256, 4096, 32, 32, 8, 128, 14_336, is_tied=False),
}
PHASES = ("prefill", "decode")
MODELS = tuple(f"{size}/{phase}" for size in SHAPES for phase in PHASES)
CONTEXT_TOKENS = 512


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
        "costprobe_probes.sources.builtin:load_decoder",
        "small/decode",
        is_built_in=True,
        models=MODELS,
        context_tokens=CONTEXT_TOKENS,
    ),
    "module": SourceKind("costprobe_probes.sources.libraries:load_from_factory"),
    "torchscript": SourceKind(
        "costprobe_probes.sources.files:load_torchscript",
        "/models/ranker.pt",
        is_program=True,
    ),
    "pt2": SourceKind(
        "costprobe_probes.sources.files:load_exported", "/models/ranker.pt2", is_program=True
    ),
    "torchvision": SourceKind(
        "costprobe_probes.sources.libraries:load_torchvision", "resnet50", takes_weights=True
    ),
    "timm": SourceKind(
        "costprobe_probes.sources.libraries:load_timm", "vit_base_patch16_224", takes_weights=True
    ),
    "transformers": SourceKind(
        "costprobe_probes.sources.libraries:load_transformers", "/models/bert-base"
    ),
}


def source_of(kind: str) -> ModelSource:
    """Import and return the model source of a probe kind, a key of SOURCES."""
    module, _, function = SOURCES[kind].source.partition(":")
    source: ModelSource = getattr(importlib.import_module(module), function)
    return source
