"""The contract of a model source, and inputs by batch.

Batches are made of example rows, or of inputs described in the configuration by shapes and types
of one item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple, Optional, Protocol

import torch
from torch import nn

from costprobe_probes.wire import ProbeConfigError, Spec


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
        ProbeConfigError: It is none of these, is empty, or an entry is no tensor with a row.
    """
    if isinstance(value, torch.Tensor):
        value = (value,)
    if isinstance(value, Mapping):  # a dict, or a tokenizer's BatchEncoding
        inputs = Inputs((), {str(key): x for key, x in value.items()})
        entries = list(inputs.kwargs.items())
    elif isinstance(value, (tuple, list)):
        inputs = Inputs(tuple(value), {})
        entries = [(str(number), x) for number, x in enumerate(value, start=1)]
    else:
        entries = []
    if not entries:
        raise ProbeConfigError(
            f"{name}: example inputs must be a tensor, or a sequence or a dict of tensors, with the"
            " batch as first dimension, or a function of the batch that returns such;"
            f" not{' an empty' if isinstance(value, (Mapping, tuple, list)) else ''} {type(value).__name__}"
        )
    for entry, x in entries:
        check_input(f"{name}: example input {entry}", x)
    return inputs


def check_input(what: str, x: object) -> None:
    """Check that an entry of a model's inputs is a tensor with the batch as first dimension.

    Args:
        what: Model and entry, for the error.
        x: The entry.

    Raises:
        ProbeConfigError: It is not.
    """
    if not isinstance(x, torch.Tensor):
        shown = f" {x}" if x is None or isinstance(x, (bool, int, float)) else ""
        raise ProbeConfigError(
            f"{what} is{shown} of type {type(x).__name__}, not a tensor: set it in the model, such as"
            " by a module whose forward passes it on, and leave it out of the inputs"
        )
    if x.dim() == 0 or len(x) == 0:
        raise ProbeConfigError(
            f"{what} has the shape {tuple(x.shape)}: its first dimension must be the batch, with at"
            " least one row"
        )


def repeat_rows(x: torch.Tensor, batch: int) -> torch.Tensor:
    """Return `batch` rows of a tensor, in its memory format, by repeating its rows."""
    times = -(-batch // len(x))
    return torch.cat([x] * times)[:batch].clone()


FLOATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
INTEGERS = {"int64": torch.int64, "int32": torch.int32}


def described(inputs: Sequence[Mapping[str, Any]]) -> Callable[[int], Any]:
    """Return a function that makes a batch of inputs: a list of tensors, or a dict if they have names.

    Args:
        inputs: For each, `shape` without the batch, `dtype`, `below` for integers, and `name`.
    """
    named_inputs = [description for description in inputs if description.get("name")]

    def make(batch: int) -> Any:  # noqa: ANN401 - a list or a dict of tensors
        if named_inputs:
            return {
                str(description["name"]): _tensor(description, batch)
                for description in named_inputs
            }
        return [_tensor(description, batch) for description in inputs]

    if named_inputs and len(named_inputs) < len(inputs):
        raise ProbeConfigError("inputs: name all of them, or none")
    return make


def image(channels: int, height: int, width: int) -> Callable[[int], torch.Tensor]:
    """Return a function that makes a batch of images of random noise."""
    return lambda batch: torch.randn(batch, channels, height, width)


def _tensor(description: Mapping[str, Any], batch: int) -> torch.Tensor:
    shape, dtype = (batch, *description["shape"]), description.get("dtype", "fp32")
    if dtype in FLOATS:
        return torch.randn(shape).to(FLOATS[dtype])
    if dtype in INTEGERS:
        return torch.randint(0, int(description.get("below", 1000)), shape, dtype=INTEGERS[dtype])
    return torch.ones(shape, dtype=torch.bool)


# Makes tensors for a batch size on a device.
MakeState = Callable[[int, torch.device], "tuple[torch.Tensor, ...]"]


class SourcedModel(NamedTuple):
    """A model with its inputs; its source returns it on the host.

    Attributes:
        module: The model, on the host; or on torch's meta device, if `move` makes its weights.
        inputs: Returns one batch of inputs on the host for a batch size: a tensor, a list or a
            tuple of tensors, or a dict of tensors, each with the batch as first dimension.
        weights: "file" or "random"; empty if the model has its own weights.
        files: Files that were read; they are part of the fingerprint.
        move: Moves the module to a device; None for `module.to(device)`.
        min_batch: Smallest batch that the model accepts.
        max_batch: Largest batch that the model accepts; None for any.
        state: Makes the tensors that a pass reads and writes, such as a KV cache, for a batch size
            on a device; they follow the inputs as arguments. None if there are none.
        tokens_in: Prompt tokens that a pass reads for each item; None if it reads none.
        tokens_out: Tokens that a pass generates for each item; None if it generates none.
    """

    module: nn.Module
    inputs: Callable[[int], Any]
    weights: str = ""
    files: tuple[str, ...] = ()
    move: Optional[Callable[[torch.device], nn.Module]] = None  # noqa: UP045 - evaluated on Python 3.9
    min_batch: int = 1
    max_batch: Optional[int] = None  # noqa: UP045 - as above
    state: Optional[MakeState] = None  # noqa: UP045 - as above
    tokens_in: Optional[int] = None  # noqa: UP045 - as above
    tokens_out: Optional[int] = None  # noqa: UP045 - as above

    def on(self, device: torch.device) -> SourcedModel:
        """Return the same model with its module on a device."""
        module = self.module.to(device) if self.move is None else self.move(device)
        return self._replace(module=module)

    def staged(self, inputs: Inputs, device: torch.device, batch: int) -> Inputs:
        """Return inputs on a device, with the state of a pass of a batch."""
        moved = inputs.map(lambda x: x.to(device))
        state = self.state(batch, device) if self.state is not None else ()
        return moved._replace(args=(*moved.args, *state))

    def forward_pass(self, inputs: Inputs) -> Callable[[], object]:
        """Return one forward pass over inputs on the module's device."""
        module, args, kwargs = self.module, inputs.args, inputs.kwargs
        return lambda: completed(module(*args, **kwargs))


def completed(result: object) -> object:
    """Do what remains of a pass whose result is computed as it is read, and return the result.

    Raises:
        ProbeConfigError: It is asynchronous.
    """
    if isinstance(result, torch.Tensor):
        return result
    if isinstance(result, Iterator):
        deque(result, maxlen=0)
    elif isinstance(result, (Awaitable, AsyncIterable)):
        raise ProbeConfigError(
            f"the model's forward returns {type(result).__name__}, whose work is not done when it"
            " returns: measure a module whose forward returns tensors"
        )
    return result


class ModelSource(Protocol):
    """A way to load a model: one function, listed in `registry.SOURCES`.

    Its module is imported when a probe of its kind runs, never earlier.
    """

    def __call__(self, spec: Spec, /) -> SourcedModel:
        """Load the model that a probe names, on the host and without network access.

        The same spec under the same seed of torch's generator returns the same model.

        Raises:
            ProbeConfigError: A package or a file is missing, or does not fit; the text has its
                name and the fix.
        """
