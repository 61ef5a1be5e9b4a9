"""Programs of torch.export, as torch.export.save writes them (.pt2).

Such a file holds a program and not only weights: it is as trusted as an operator's own factory. Its
tensors are read with weights_only=True all the same.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import nn

from probes.errors import ConfigError, kind_of
from probes.sources import Sourced
from probes.sources.described import described, runs_as_saved
from probes.sources.files import checked_file
from probes.spec import Spec

# What torch takes for "no upper bound" is some number of this size.
UNBOUNDED = 1 << 30
# torch.export.load unpickles what is no tensor, unless this tells torch not to.
TENSORS_ALONE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def load(spec: Spec) -> Sourced:
    """Loads a program, with the batches that it was exported for.

    Raises:
        ConfigError: The file is none, neither it nor the operator says what it takes, or a dtype
            is asked for.
    """
    runs_as_saved(spec)
    path = checked_file(spec.model, "exported program")
    try:
        with _tensors_alone():
            program: Any = torch.export.load(str(path))
    except Exception as error:
        if kind_of(error) != "crash":
            raise  # there was no memory for it
        words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ConfigError(
            f"{path}: cannot be loaded as a torch.export program by torch {torch.__version__}"
            f" ({words}); export it again with the torch of the probe's interpreter"
        ) from error
    least, most = _batches(program)
    if spec.inputs:
        inputs = described(spec.inputs)
    elif program.example_inputs is not None:
        inputs = _repeated(str(path), *program.example_inputs)
    else:
        raise ConfigError(f"{path}: does not say what it takes; set inputs")

    def move(device: torch.device) -> nn.Module:
        """A program holds its device in itself, beside its weights."""
        passes: Any = _passes()
        if device.type != "cpu" and hasattr(passes, "move_to_device_pass"):
            moved: nn.Module = passes.move_to_device_pass(program, device).module()
            return moved
        plain: nn.Module = program.module()
        return plain.to(device)

    return Sourced(program.module(), inputs, "file", (str(path),), move, least, most)


def _passes() -> ModuleType | None:
    """What changes programs; torch.export does not import it, and has it from 2.7 on."""
    try:
        return importlib.import_module("torch.export.passes")
    except ImportError:
        return None


def _batches(program: Any) -> tuple[int, int | None]:  # noqa: ANN401 - torch's own
    """The smallest and the largest batch, by the first dimension of the first input."""
    wanted = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if (
            node.op == "placeholder"
            and node.name in wanted
            and isinstance(value, torch.Tensor)
            and value.dim()
        ):
            first = value.shape[0]
            if isinstance(first, int):
                return first, first
            bounds = program.range_constraints.get(first.node.expr)
            if bounds is None:
                return 1, None
            # An infinity compares as a number does, and is not to be made one.
            upper = int(bounds.upper) if bounds.upper < UNBOUNDED else None
            return max(1, int(bounds.lower)), upper
    return 1, None


def _repeated(path: str, args: Any, kwargs: Any) -> Callable[[int], Any]:  # noqa: ANN401 - as above
    """What makes a batch of the example inputs, by repeating their rows."""
    examples = [*args, *kwargs.values()]
    if (args and kwargs) or not all(
        isinstance(x, torch.Tensor) and x.dim() and len(x) for x in examples
    ):
        raise ConfigError(
            f"{path}: takes more than tensors with a batch; export it with such alone, all of them"
            " by position or all by keyword"
        )

    def make(batch: int) -> Any:  # noqa: ANN401 - a list or a dict of tensors
        if kwargs:
            return {name: _rows(x, batch) for name, x in kwargs.items()}
        return [_rows(x, batch) for x in args]

    return make


def _rows(x: torch.Tensor, batch: int) -> torch.Tensor:
    times = -(-batch // len(x))
    return torch.cat([x] * times)[:batch].contiguous()


@contextmanager
def _tensors_alone() -> Iterator[None]:
    """Keeps torch from unpickling anything else."""
    before = os.environ.get(TENSORS_ALONE)
    os.environ[TENSORS_ALONE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[TENSORS_ALONE]
        else:
            os.environ[TENSORS_ALONE] = before
