"""The built-in models and decoders, by their names: no download, seeded weights.

A pass of a built-in model takes a few ms on two cores. A decoder has two kinds of pass, prefill
and decode of one model. It is a decoder-only transformer with a KV cache: RMSNorm (Zhang and
Sennrich 2019) before each part, rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020),
grouped-query attention (Ainslie et al. 2023): the architecture of Llama 3.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from costprobe_probes.sources.kinds import CONTEXT_TOKENS, MODELS, SHAPES, DecoderShape
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.wire import ProbeConfigError, Spec

# Part of the fingerprint: another version of a built-in model is another model.
THIS_FILE = (__file__,)
EPSILON = 1e-5
# Standard deviation of the weights, as models of this kind are initialized.
WEIGHT_STD = 0.02


class RmsNorm(nn.Module):
    """Division by the root mean square of the channels, computed in fp32; fused from torch 2.4 on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x of shape (..., width), normalized."""
        if hasattr(nn.functional, "rms_norm"):
            return nn.functional.rms_norm(x, self.weight.shape, self.weight, EPSILON)
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return scaled.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Causal grouped-query attention over a KV cache."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        # One product for queries, keys and values, in this order of the heads.
        heads = shape.heads + 2 * shape.kv_heads
        self.qkv = nn.Linear(shape.width, heads * shape.head, bias=False)
        self.out = nn.Linear(shape.heads * shape.head, shape.width, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        cache: torch.Tensor,
        start: int,
    ) -> torch.Tensor:
        """Attend from new tokens to themselves and all tokens before them.

        Args:
            x: New tokens (batch, tokens, width): one, or any number with start 0.
            rotation: Of their positions, as of `rotated`.
            cache: Keys and values of the layer (2, batch, kv_heads, context, head); those of the
                new tokens are written.
            start: Position of the first new token.
        """
        shape, (batch, tokens, _) = self.shape, x.shape
        qkv = self.qkv(x).view(batch, tokens, -1, shape.head).transpose(1, 2)
        qk, v = torch.split(qkv, [shape.heads + shape.kv_heads, shape.kv_heads], dim=1)
        q, k = torch.split(rotated(qk, rotation), [shape.heads, shape.kv_heads], dim=1)
        end, group = start + tokens, shape.heads // shape.kv_heads
        cache[0, :, :, start:end] = k
        cache[1, :, :, start:end] = v
        keys, values = cache[0, :, :, :end], cache[1, :, :, :end]
        if tokens == 1:
            # The query heads of a group are queries to the same keys: nothing is copied, and no
            # mask is needed, because a new token sees the whole cache.
            q = q.reshape(batch, shape.kv_heads, group, shape.head)
            mixed = nn.functional.scaled_dot_product_attention(q, keys, values)
        else:
            keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
            mixed = nn.functional.scaled_dot_product_attention(q, keys, values, is_causal=True)
        mixed = mixed.reshape(batch, shape.heads, tokens, shape.head).transpose(1, 2)
        out: torch.Tensor = self.out(mixed.reshape(batch, tokens, shape.heads * shape.head))
        return out


class DecoderBlock(nn.Module):
    """Attention and a SwiGLU feed-forward network, each normalized before and with a residual."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.norm_attention = RmsNorm(shape.width)
        self.attention = Attention(shape)
        self.norm_mlp = RmsNorm(shape.width)
        self.gate_up = nn.Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        cache: torch.Tensor,
        start: int,
    ) -> torch.Tensor:
        """Map new tokens to the same shape; arguments as of Attention."""
        x = x + self.attention(self.norm_attention(x), rotation, cache, start)
        gate, up = self.gate_up(self.norm_mlp(x)).chunk(2, dim=-1)
        out: torch.Tensor = x + self.down(nn.functional.silu(gate) * up)
        return out


class Decoder(nn.Module):
    """A decoder whose pass is either a prefill or a decode step at the end of its context.

    Args:
        shape: Its sizes.
        context: Tokens of the prompt of a prefill, or tokens that a decode step attends to, the
            new one included.
        is_prefill: Which of the two a pass is.
    """

    cosines: torch.Tensor
    sines: torch.Tensor

    def __init__(self, shape: DecoderShape, context: int, *, is_prefill: bool) -> None:
        super().__init__()
        self.shape = shape
        self.context = context
        self.start = 0 if is_prefill else context - 1
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(DecoderBlock(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.is_tied:
            self.head.weight = self.embedding.weight
        for name in ("cosines", "sines"):
            self.register_buffer(name, torch.empty(context, shape.head), persistent=False)

    def fill(self, seed: int) -> None:
        """Fill weights and position tables in place, on the device where they are."""
        generator = torch.Generator(self.embedding.weight.device).manual_seed(seed)
        for parameter in self.parameters():
            if parameter.dim() == 1:
                nn.init.ones_(parameter)
            else:
                nn.init.normal_(parameter, std=WEIGHT_STD, generator=generator)
        shape, device = self.shape, self.cosines.device
        even = torch.arange(0, shape.head, 2, device=device, dtype=torch.float32)
        frequencies = shape.rope_base ** (-even / shape.head)
        angles = torch.outer(
            torch.arange(self.context, device=device, dtype=torch.float32), frequencies
        )
        angles = torch.cat([angles, angles], dim=-1)
        self.cosines.copy_(angles.cos())
        # With the sign of the channel that each sine is multiplied by.
        self.sines.copy_(angles.sin())
        self.sines[:, : shape.head // 2].neg_()

    def cache_shape(self, batch: int) -> tuple[int, ...]:
        """Return the shape of the KV cache: layers, key and value, batch, heads, context, channels."""
        shape = self.shape
        return (shape.layers, 2, batch, shape.kv_heads, self.context, shape.head)

    def forward(self, tokens: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        """Return the logits (batch, vocabulary) of the token after the last one.

        Args:
            tokens: Ids (batch, context) of a prefill, (batch, 1) of a decode step.
            cache: Of `cache_shape`; keys and values of these tokens are written.
        """
        return self.at(tokens, cache, self.start)

    def at(self, tokens: torch.Tensor, cache: torch.Tensor, start: int) -> torch.Tensor:
        """Return the logits as `forward`, for tokens whose first is at a position."""
        end = start + tokens.shape[1]
        rotation = self.cosines[start:end], self.sines[start:end]
        x = self.embedding(tokens)
        for index, block in enumerate(self.blocks):
            x = block(x, rotation, cache[index], start)
        logits: torch.Tensor = self.head(self.norm(x[:, -1]))
        return logits


def rotated(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotate each pair of channels (i, i + head / 2) by the angle of its position.

    Args:
        x: (batch, heads, tokens, head).
        rotation: Cosines and sines (tokens, head), the sines of the first half of the head negated.
    """
    cosines, sines = rotation
    return torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, -1), sines)


SEQUENCE = 128
WIDTH = 256
HEADS = 4
LAYERS = 4
IMAGE = 64
CHANNELS = 32

# A module, and a function that returns its input for a batch size.
Made = tuple[nn.Module, Callable[[int], torch.Tensor]]


class EncoderBlock(nn.Module):
    """A pre-norm transformer encoder block (Vaswani 2017; pre-norm as in Xiong 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm_mlp = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map tokens of shape (batch, SEQUENCE, WIDTH) to the same shape."""
        batch, sequence, _ = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, sequence, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, WIDTH))
        out: torch.Tensor = x + self.mlp(self.norm_mlp(x))
        return out


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a residual connection (He 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS),
            nn.ReLU(),
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images of shape (batch, CHANNELS, height, width) to the same shape."""
        out: torch.Tensor = torch.relu(x + self.body(x))
        return out


def _transformer() -> Made:
    module = nn.Sequential(*(EncoderBlock() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
    return module, lambda batch: torch.randn(batch, SEQUENCE, WIDTH)


def _cnn() -> Made:
    stem = nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1)
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 1000))
    module = nn.Sequential(stem, *(ResidualBlock() for _ in range(LAYERS)), head)
    return module, lambda batch: torch.randn(batch, 3, IMAGE, IMAGE)


KINDS: dict[str, Callable[[], Made]] = {"transformer": _transformer, "cnn": _cnn}


def load_builtin(spec: Spec) -> SourcedModel:
    """Build a built-in model with seeded weights."""
    module, inputs = KINDS[spec.kind]()
    return SourcedModel(module, inputs, files=THIS_FILE)


def load_decoder(spec: Spec) -> SourcedModel:
    """Return a decoder without weights; they are made on the device, without a copy on the host.

    Raises:
        ProbeConfigError: No such size or phase.
    """
    if spec.model not in MODELS:
        raise ProbeConfigError(
            f"no decoder {spec.model!r}; write one of {', '.join(MODELS)} after decoder:"
        )
    size, phase = str(spec.model).split("/")
    is_prefill = phase == "prefill"
    shape, context = SHAPES[size], spec.context_tokens or CONTEXT_TOKENS
    seed = torch.initial_seed()
    with torch.device("meta"):
        module = Decoder(shape, context, is_prefill=is_prefill)
    tokens = context if is_prefill else 1

    def made_on(device: torch.device) -> nn.Module:
        module.to_empty(device=device)
        # to_empty allocates a shared tensor once for each of its names.
        if shape.is_tied:
            module.head.weight = module.embedding.weight
        module.fill(seed)
        return module.eval()

    def cache(batch: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        dtype = module.embedding.weight.dtype
        # Of random numbers: a board needs less power for zeros.
        generator = None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
        size = module.cache_shape(batch)
        return (torch.empty(size, dtype=dtype, device=device).normal_(generator=generator),)

    return SourcedModel(
        module,
        lambda batch: torch.randint(0, shape.vocabulary, (batch, tokens)),
        files=THIS_FILE,
        move=made_on,
        state=cache,
        tokens_in=context if is_prefill else None,
        tokens_out=None if is_prefill else 1,
    )
