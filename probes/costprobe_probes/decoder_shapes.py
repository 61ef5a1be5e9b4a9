"""The built-in decoders; the daemon validates with their names: this module does not import torch."""

from __future__ import annotations

from typing import NamedTuple


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
