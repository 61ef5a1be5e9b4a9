"""Programs of torch.export, as torch.export.save writes them (.pt2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from probes.errors import ConfigError
from probes.sources import Sourced
from probes.sources.described import described
from probes.sources.files import checked_file
from probes.spec import Spec

# What torch takes for "no upper bound" is some number of this size.
UNBOUNDED = 1 << 30


def load(spec: Spec) -> Sourced:
    """Loads a program, with the batches that it was exported for.

    Raises:
        ConfigError: The file is none, or neither it nor the operator says what it takes.
    """
    path = checked_file(spec.model, "exported program")
    try:
        program: Any = torch.export.load(str(path))
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ConfigError(
            f"{path}: cannot be loaded as a torch.export program by torch {torch.__version__}"
            f" ({words}); export it again with the torch of the probe's interpreter"
        ) from error
    least, most = _batches(program)
    if spec.inputs:
        inputs = described(spec.inputs)
    elif program.example_inputs is not None:
        args, kwargs = program.example_inputs
        inputs = _repeated(dict(kwargs) if kwargs else list(args))
    else:
        raise ConfigError(f"{path}: does not say what it takes; set inputs")

    def move(device: torch.device) -> nn.Module:
        """A program holds its device in itself, beside its weights."""
        passes: Any = getattr(torch.export, "passes", None)
        if device.type != "cpu" and passes is not None:
            moved: nn.Module = passes.move_to_device_pass(program, device).module()
            return moved
        plain: nn.Module = program.module()
        return plain.to(device)

    return Sourced(program.module(), inputs, "file", (str(path),), move, least, most)


def _batches(program: Any) -> tuple[int, int | None]:  # noqa: ANN401 - torch's own
    """The smallest and the largest batch, by the first dimension of the first input."""
    wanted = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name in wanted and isinstance(value, torch.Tensor):
            first = value.shape[0]
            if isinstance(first, int):
                return first, first
            bounds = program.range_constraints.get(first.node.expr)
            if bounds is None:
                return 1, None
            least, most = int(bounds.lower), bounds.upper
            is_bound = most.is_finite if hasattr(most, "is_finite") else True
            upper = int(most) if is_bound and int(most) < UNBOUNDED else None
            return max(1, least), upper
    return 1, None


def _repeated(examples: Any) -> Any:  # noqa: ANN401 - a list or a dict of tensors
    """The example inputs; rows are repeated to the batch that is wanted."""
    return lambda batch: (
        {name: _rows(x, batch) for name, x in examples.items()}
        if isinstance(examples, dict)
        else [_rows(x, batch) for x in examples]
    )


def _rows(x: torch.Tensor, batch: int) -> torch.Tensor:
    times = -(-batch // len(x))
    return torch.cat([x] * times)[:batch].contiguous()
