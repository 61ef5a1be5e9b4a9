"""Programs of torch.export, written by torch.export.save (.pt2).

Such a file contains a program, not only weights, and is trusted in the same way as an operator's
factory. Its tensors are still read with weights_only=True.
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

from costprobe_probes.errors import ProbeConfigError, kind_of
from costprobe_probes.inputs import repeat_rows
from costprobe_probes.sources.described import described
from costprobe_probes.sources.files import checked_file
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.spec import Spec

# torch represents "no upper bound" by a number of this size.
UNBOUNDED = 1 << 30
# torch.export.load unpickles arbitrary objects unless this variable is set.
TENSORS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def load_exported(spec: Spec) -> SourcedModel:
    """Load a program, with the batch sizes that it was exported for.

    Raises:
        ProbeConfigError: The file is not a program, or no inputs are known.
    """
    path = checked_file(spec.model, "exported program")
    try:
        with _tensors_only():
            program: Any = torch.export.load(str(path))
    except Exception as error:
        if kind_of(error) != "crash":
            raise  # out of memory
        words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ProbeConfigError(
            f"{path}: cannot be loaded as a torch.export program by torch {torch.__version__}"
            f" ({words}); export it again with the torch of the probe's interpreter"
        ) from error
    least, most = _batch_range(program)
    if spec.inputs:
        inputs = described(spec.inputs)
    elif program.example_inputs is not None:
        inputs = _batches_of(str(path), *program.example_inputs)
    else:
        raise ProbeConfigError(f"{path}: has no example inputs; set inputs")

    def move(device: torch.device) -> nn.Module:
        """Move a program, which stores its device with its weights."""
        passes: Any = _passes()
        if device.type != "cpu" and hasattr(passes, "move_to_device_pass"):
            moved: nn.Module = passes.move_to_device_pass(program, device).module()
            return moved
        plain: nn.Module = program.module()
        return plain.to(device)

    return SourcedModel(program.module(), inputs, "file", (str(path),), move, least, most)


def _passes() -> ModuleType | None:
    """Import torch.export.passes, which exists from torch 2.7 on."""
    try:
        return importlib.import_module("torch.export.passes")
    except ImportError:
        return None


def _batch_range(program: Any) -> tuple[int, int | None]:  # noqa: ANN401 - torch's own
    """Return the smallest and the largest batch, from the first dimension of the first input."""
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
            # The bound may be an infinity of sympy, which int() does not accept.
            upper = int(bounds.upper) if bounds.upper < UNBOUNDED else None
            return max(1, int(bounds.lower)), upper
    return 1, None


def _batches_of(path: str, args: Any, kwargs: Any) -> Callable[[int], Any]:  # noqa: ANN401 - as above
    """Return a function that makes a batch by repeating the rows of the example inputs."""
    examples = [*args, *kwargs.values()]
    if (args and kwargs) or not all(
        isinstance(x, torch.Tensor) and x.dim() and len(x) for x in examples
    ):
        raise ProbeConfigError(
            f"{path}: needs arguments other than tensors with a batch; export it with such tensors only, all"
            " by position or all by keyword"
        )

    def make(batch: int) -> Any:  # noqa: ANN401 - a list or a dict of tensors
        if kwargs:
            return {name: repeat_rows(x, batch) for name, x in kwargs.items()}
        return [repeat_rows(x, batch) for x in args]

    return make


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Prevent torch from unpickling other objects."""
    before = os.environ.get(TENSORS_ONLY)
    os.environ[TENSORS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[TENSORS_ONLY]
        else:
            os.environ[TENSORS_ONLY] = before
