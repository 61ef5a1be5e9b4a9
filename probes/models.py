"""What is inferred: built-in models without a download, or the operator's own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

SEQUENCE = 128
WIDTH = 256
HEADS = 4
LAYERS = 4
IMAGE = 64
CHANNELS = 32


class ConfigError(Exception):
    """The operator asked for something that is not there; the text says how to mend it."""


class Model(NamedTuple):
    """A module and one batch of example inputs, on the host.

    Attributes:
        module: In evaluation mode, with its dtype.
        inputs: Positional tensors; the first dimension of each is the batch.
    """

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]


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
        """Tokens of shape (batch, SEQUENCE, WIDTH) to the same shape."""
        batch, sequence, _ = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, sequence, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, WIDTH))
        out: torch.Tensor = x + self.mlp(self.norm_mlp(x))
        return out


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut (He 2015)."""

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
        """Images of shape (batch, CHANNELS, height, width) to the same shape."""
        out: torch.Tensor = torch.relu(x + self.body(x))
        return out


def _transformer(batch: int) -> Model:
    module = nn.Sequential(*(EncoderBlock() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
    return Model(module, (torch.randn(batch, SEQUENCE, WIDTH),))


def _cnn(batch: int) -> Model:
    stem = nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1)
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 1000))
    module = nn.Sequential(stem, *(ResidualBlock() for _ in range(LAYERS)), head)
    return Model(module, (torch.randn(batch, 3, IMAGE, IMAGE),))


KINDS: dict[str, Callable[[int], Model]] = {"transformer": _transformer, "cnn": _cnn}


def build(kind: str, module: str | None, dtype: str, batch: int, seed: int) -> Model:
    """A model with seeded weights and inputs, on the host.

    Args:
        kind: A key of KINDS, or "module".
        module: "package.mod:factory" where kind is "module". The factory takes nothing and
            returns (torch module, example inputs): a tensor or a sequence of tensors whose
            first dimension is the batch. Its rows are repeated to the batch that is measured.
        dtype: A key of DTYPES; floating inputs and weights are brought to it.
        batch: Items per forward pass.
        seed: Of torch's generator.

    Raises:
        ConfigError: There is no such kind or factory, or the factory returns something else.
    """
    torch.manual_seed(seed)
    if kind == "module":
        model = _from_factory(str(module), batch)
    elif kind in KINDS:
        model = KINDS[kind](batch)
    else:
        raise ConfigError(f"no probe kind {kind!r}; there are: {', '.join(KINDS)}, module")
    wanted = DTYPES[dtype]
    inputs = tuple(x.to(wanted) if x.is_floating_point() else x for x in model.inputs)
    return Model(model.module.eval().to(wanted), inputs)


def _from_factory(path: str, batch: int) -> Model:
    module_name, _, factory_name = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except ImportError as error:
        raise ConfigError(
            f"{path}: cannot be imported ({error}); install it in the probe's interpreter, or"
            " set python in [[probe]] to the interpreter that has it"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"{path}: {module_name} has no {factory_name}") from error
    return _checked(path, factory(), batch)


def _checked(path: str, made: Any, batch: int) -> Model:  # noqa: ANN401 - an operator's factory
    if not (isinstance(made, (tuple, list)) and len(made) == 2):  # noqa: PLR2004 - a pair
        raise ConfigError(f"{path}: must return (torch module, example inputs)")
    module, inputs = made
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{path}: returned a {type(module).__name__}, not a torch.nn.Module")
    tensors = isinstance(inputs, (tuple, list)) and all(
        isinstance(x, torch.Tensor) and x.dim() > 0 for x in inputs
    )
    if not tensors or not inputs:
        raise ConfigError(f"{path}: example inputs must be tensors with the batch first")
    return Model(module, tuple(_repeated(x, batch) for x in inputs))


def _repeated(x: torch.Tensor, batch: int) -> torch.Tensor:
    times = -(-batch // x.shape[0])
    return torch.cat([x] * times)[:batch].contiguous()
