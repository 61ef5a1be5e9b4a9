"""What is inferred: a module, and its inputs at whatever batch is asked for.

An operator's factory, `module = "package.mod:factory"`, is called without arguments, once, and
returns a pair: the `torch.nn.Module`, and its example inputs. These are a tensor, a list or tuple
of tensors (positional arguments), or a dict of tensors (keyword arguments), each with the batch
as its first dimension; rows are repeated to the batch that is measured. Where that is not right,
the second of the pair is a function that takes the batch and returns such inputs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import nn

from probes.errors import ConfigError
from probes.models import KINDS
from probes.sources import SOURCES, Sourced
from probes.sources.files import digest_of
from probes.spec import Spec

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Inputs(NamedTuple):
    """Arguments of a forward pass."""

    args: tuple[torch.Tensor, ...]
    kwargs: dict[str, torch.Tensor]

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
        """The same arguments, each changed."""
        return Inputs(
            tuple(change(x) for x in self.args), {k: change(x) for k, x in self.kwargs.items()}
        )

    def tensors(self) -> list[torch.Tensor]:
        """All of them."""
        return [*self.args, *self.kwargs.values()]


class Workload(NamedTuple):
    """What a probe runs.

    Attributes:
        module: In evaluation mode, with the dtype that was asked for.
        inputs: Takes the batch; makes one batch of inputs on the host, the same in each process.
        weights: "file" or "random" for a model of a source; empty for any other.
        digest: Hash of the files that it was read from; empty where there is none.
        move: Moves a module that has a way of its own to a device.
        min_batch: Smallest batch it takes.
        max_batch: Largest batch it takes; None for any.
    """

    module: nn.Module
    inputs: Callable[[int], Inputs]
    weights: str = ""
    digest: str = ""
    move: Optional[Callable[[torch.device], nn.Module]] = None  # noqa: UP045 - evaluated on Python 3.9
    min_batch: int = 1
    max_batch: Optional[int] = None  # noqa: UP045 - as above

    def on(self, device: torch.device) -> Workload:
        """The same with its module on a device."""
        module = self.module.to(device) if self.move is None else self.move(device)
        return self._replace(module=module)

    def forward_pass(self, inputs: Inputs) -> Callable[[], object]:
        """One forward pass over inputs that lie where the module does."""
        module, args, kwargs = self.module, inputs.args, inputs.kwargs
        if kwargs:
            return lambda: module(*args, **kwargs)
        return lambda: module(*args)


def load(spec: Spec, seed: int) -> Workload:
    """Makes a model with its weights, or seeded ones, and its inputs, on the host.

    Args:
        spec: What to load.
        seed: Of torch's generator.

    Raises:
        ConfigError: There is no such kind, model or factory, or it cannot be loaded.
    """
    if spec.dtype is not None and spec.dtype not in DTYPES:
        raise ConfigError(f"no dtype {spec.dtype!r}; there are: {', '.join(DTYPES)}")
    wanted = None if spec.dtype is None else DTYPES[spec.dtype]
    torch.manual_seed(seed)
    sourced = _sourced(spec)
    model, examples = sourced.module, sourced.inputs
    if sourced.move is None:
        # A program of torch.export runs as it was exported, and refuses to be told to.
        model.eval()
    if wanted is not None:
        model.to(wanted)

    def inputs(batch: int) -> Inputs:
        torch.manual_seed(seed)
        found = _checked(spec.name, examples(batch))
        return found.each(
            lambda x: x.to(wanted) if wanted is not None and x.is_floating_point() else x
        )

    inputs(sourced.min_batch)
    return Workload(
        model,
        inputs,
        sourced.weights,
        digest_of(sourced.files) if sourced.files else "",
        sourced.move,
        sourced.min_batch,
        sourced.max_batch,
    )


def _sourced(spec: Spec) -> Sourced:
    """The model from wherever it comes."""
    if spec.kind in SOURCES:
        source: Any = importlib.import_module(SOURCES[spec.kind])
        found: Sourced = source.load(spec)
        return found
    name, factory = _factory(spec.kind, spec.module)
    made = factory()
    if not (isinstance(made, (tuple, list)) and len(made) == 2):  # noqa: PLR2004 - a pair
        raise ConfigError(f"{name}: must return (torch module, example inputs)")
    model, examples = made
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{name}: returned a {type(model).__name__}, not a torch.nn.Module")
    return Sourced(model, lambda batch: _examples_of(name, examples, batch), "")


def _examples_of(name: str, examples: Any, batch: int) -> Any:  # noqa: ANN401 - an operator's factory
    """A batch of an operator's example inputs; their rows are repeated where they are tensors."""
    if callable(examples):
        return examples(batch)
    found = _checked(name, examples).each(lambda x: _repeated(x, batch))
    return found.kwargs or found.args


def _factory(kind: str, module: str | None) -> tuple[str, Callable[[], Any]]:
    if kind in KINDS:
        return kind, KINDS[kind]
    if kind != "module":
        known = ", ".join([*KINDS, "module", *SOURCES])
        raise ConfigError(f"no probe kind {kind!r}; there are: {known}")
    module_name, _, factory_name = (module or "").partition(":")
    if not module_name or not factory_name:
        raise ConfigError(f'module = {module!r}: must be "package.mod:factory"')
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except ImportError as error:
        raise ConfigError(
            f"{module}: cannot be imported ({error}); install it in the probe's interpreter, or"
            " set python in [[probe]] to the interpreter that has it"
        ) from error
    except AttributeError as error:
        raise ConfigError(
            f"{module}: {module_name} cannot give {factory_name} ({error})"
        ) from error
    if not callable(factory):
        raise ConfigError(f"{module}: is a {type(factory).__name__}, not a function")
    return str(module), factory


def _checked(name: str, found: Any) -> Inputs:  # noqa: ANN401 - an operator's factory
    if isinstance(found, torch.Tensor):
        found = (found,)
    if isinstance(found, dict):
        inputs = Inputs((), {str(key): value for key, value in found.items()})
    elif isinstance(found, (tuple, list)):
        inputs = Inputs(tuple(found), {})
    else:
        inputs = Inputs((), {})
    good = [isinstance(x, torch.Tensor) and x.dim() > 0 and len(x) > 0 for x in inputs.tensors()]
    if not good or not all(good):
        raise ConfigError(
            f"{name}: example inputs must be a tensor, a sequence or a dict of tensors, with the"
            " batch as first dimension and at least one row, or a function of the batch that"
            f" returns such; not {type(found).__name__}"
        )
    return inputs


def _repeated(x: torch.Tensor, batch: int) -> torch.Tensor:
    times = -(-batch // len(x))
    return torch.cat([x] * times)[:batch].contiguous()
