"""Arguments of a forward pass, and batches made of example rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from costprobe_probes.errors import ProbeConfigError


class Inputs(NamedTuple):
    """Arguments of a forward pass, positional and by name."""

    args: tuple[torch.Tensor, ...]
    kwargs: dict[str, torch.Tensor]

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
        """Return the same arguments with a function applied to each tensor."""
        return Inputs(
            tuple(function(x) for x in self.args), {k: function(x) for k, x in self.kwargs.items()}
        )

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors."""
        return [*self.args, *self.kwargs.values()]


def checked_inputs(name: str, value: Any) -> Inputs:  # noqa: ANN401 - the result of a factory
    """Return a tensor, a sequence or a dict of tensors as arguments.

    Args:
        name: The model, for errors.
        value: Result of a model source or of an operator's factory.

    Raises:
        ProbeConfigError: It is none of these, is empty, or contains a tensor without a row.
    """
    if isinstance(value, torch.Tensor):
        value = (value,)
    if isinstance(value, dict):
        inputs = Inputs((), {str(key): x for key, x in value.items()})
    elif isinstance(value, (tuple, list)):
        inputs = Inputs(tuple(value), {})
    else:
        inputs = Inputs((), {})
    valid = [isinstance(x, torch.Tensor) and x.dim() > 0 and len(x) > 0 for x in inputs.tensors()]
    if not valid or not all(valid):
        raise ProbeConfigError(
            f"{name}: example inputs must be a tensor, a sequence or a dict of tensors, with the"
            " batch as first dimension and at least one row, or a function of the batch that"
            f" returns such; not {type(value).__name__}"
        )
    return inputs


def repeat_rows(x: torch.Tensor, batch: int) -> torch.Tensor:
    """Return `batch` rows of a tensor by repeating its rows."""
    times = -(-batch // len(x))
    return torch.cat([x] * times)[:batch].contiguous()
