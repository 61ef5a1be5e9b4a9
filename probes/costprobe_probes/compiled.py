"""A module compiled by torch.compile, for the shapes of one batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# Part of the fingerprint: kernels for any batch and kernels for one batch differ in speed.
SHAPES = "static"


class CompiledModule:
    """Compiles a module anew for each batch, with static shapes.

    Left to itself torch.compile makes kernels for the first batch, and for any batch as soon as it
    sees a second one: a search would measure other kernels than a later run of the batch it found.
    It also stops compiling after eight shapes (torch._dynamo.config.recompile_limit).

    Args:
        module: The module, on its device.
        compiler: As torch.compile.
    """

    def __init__(self, module: nn.Module, compiler: Callable[..., Any] = torch.compile) -> None:
        self._module = module
        self._compiler = compiler
        self._batch: int | None = None
        self._compiled: Any = None

    def for_batch(self, batch: int) -> nn.Module:
        """Return the module that compiles for a batch at its first pass; the same for the same batch."""
        if batch != self._batch:
            _forget_kernels()
            self._compiled, self._batch = self._compiler(self._module, dynamic=False), batch
        compiled: nn.Module = self._compiled
        return compiled


def _forget_kernels() -> None:
    # torch.compiler is newer than torch 2.0.
    compiler: Any = getattr(torch, "compiler", None) or torch._dynamo  # noqa: SLF001 - its only name there
    compiler.reset()
