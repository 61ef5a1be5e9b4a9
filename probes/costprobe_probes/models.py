"""The built-in models: no download, seeded weights, a few ms for a pass on two cores."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

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
