"""The workload of a probe: a model in evaluation mode, and its inputs at any batch size."""

from __future__ import annotations

from collections.abc import Callable

import torch

from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.inputs import Inputs, checked_inputs
from costprobe_probes.sources.described import FLOATS
from costprobe_probes.sources.files import digest_of
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.sources.registry import source_of
from costprobe_probes.spec import Spec


class Workload(SourcedModel):
    """A model ready to run: in evaluation mode, with the requested dtype; `inputs` returns `Inputs`."""

    __slots__ = ()

    @property
    def digest(self) -> str:
        """Hash of the files that were read; empty if there are none. It reads them again."""
        return digest_of(self.files) if self.files else ""

    def on(self, device: torch.device) -> Workload:
        """Return the same workload with its module on a device."""
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
        if kwargs:
            return lambda: module(*args, **kwargs)
        return lambda: module(*args)


def load(spec: Spec, seed: int) -> Workload:
    """Load a model and its inputs, on the host.

    Args:
        spec: The model and its inputs.
        seed: Seed of torch's generator, for weights and inputs.

    Raises:
        ProbeConfigError: No such kind, dtype, model or factory, or it cannot be loaded.
    """
    if spec.dtype is not None and spec.dtype not in FLOATS:
        raise ProbeConfigError(f"no dtype {spec.dtype!r}; known dtypes: {', '.join(FLOATS)}")
    dtype = None if spec.dtype is None else FLOATS[spec.dtype]
    torch.manual_seed(seed)
    sourced = source_of(spec.kind)(spec)
    if sourced.move is None:
        # A torch.export program has no training mode, and its eval() raises.
        sourced.module.eval()
    if dtype is not None:
        sourced.module.to(dtype)

    def inputs(batch: int) -> Inputs:
        torch.manual_seed(seed)
        found = checked_inputs(spec.name, sourced.inputs(batch))
        return found.map(
            lambda x: x.to(dtype) if dtype is not None and x.is_floating_point() else x
        )

    inputs(sourced.min_batch)
    return Workload(*sourced._replace(inputs=inputs))
