"""An operator's own model, `module = "package.mod:factory"`.

The factory is called once, without arguments, and returns a pair: the `torch.nn.Module` and its
example inputs. These are a tensor, a list or tuple of tensors (positional arguments), or a dict of
tensors (keyword arguments), each with the batch as its first dimension; their rows are repeated to
the batch that is measured. Where repetition is wrong, the second of the pair is a function that
takes the batch and returns such inputs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch import nn

from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.inputs import checked_inputs, repeat_rows
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.spec import Spec


def load_from_factory(spec: Spec) -> SourcedModel:
    """Call the operator's factory.

    Raises:
        ProbeConfigError: The factory cannot be imported, or returns something else.
    """
    name = str(spec.module)
    built = _imported(spec.module)()
    if not (isinstance(built, (tuple, list)) and len(built) == 2):  # noqa: PLR2004 - a pair
        raise ProbeConfigError(f"{name}: must return (torch module, example inputs)")
    model, examples = built
    if not isinstance(model, nn.Module):
        raise ProbeConfigError(f"{name}: returned a {type(model).__name__}, not a torch.nn.Module")
    return SourcedModel(model, lambda batch: _batch_of(name, examples, batch))


def _batch_of(name: str, examples: Any, batch: int) -> Any:  # noqa: ANN401 - an operator's factory
    if callable(examples):
        return examples(batch)
    inputs = checked_inputs(name, examples).map(lambda x: repeat_rows(x, batch))
    return inputs.kwargs or inputs.args


def _imported(module: str | None) -> Callable[[], Any]:
    module_name, _, factory_name = (module or "").partition(":")
    if not module_name or not factory_name:
        raise ProbeConfigError(f'module = {module!r}: must be "package.mod:factory"')
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except ImportError as error:
        raise ProbeConfigError(
            f"{module}: cannot be imported ({error}); install it in the probe's interpreter, or"
            " set python in [[probe]] to the interpreter that has it"
        ) from error
    except AttributeError as error:
        raise ProbeConfigError(
            f"{module}: {module_name} has no {factory_name} ({error})"
        ) from error
    if not callable(factory):
        raise ProbeConfigError(f"{module}: is a {type(factory).__name__}, not a function")
    imported: Callable[[], Any] = factory
    return imported
