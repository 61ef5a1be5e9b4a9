"""A model on its device, and one forward pass of it in the modes of a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from costprobe_probes.compiled import SHAPES, CompiledModule
from costprobe_probes.device import TorchDevice
from costprobe_probes.errors import ProbeConfigError, describe, kind_of
from costprobe_probes.fingerprint import software
from costprobe_probes.inputs import Inputs
from costprobe_probes.replay import capture
from costprobe_probes.workload import Workload

# Execution modes of a request; each is a tag of the result.
EXECUTION_MODES = ("cold", "compile", "cuda_graph")


class LoadedModel(NamedTuple):
    """A model on the device.

    Attributes:
        workload: The model and its inputs.
        facts: What identifies it.
        compiled: Its module for torch.compile; None if it is not compiled.
    """

    workload: Workload
    facts: dict[str, str]
    compiled: Optional[CompiledModule] = None  # noqa: UP045 - evaluated on Python 3.9

    def software(self, device: TorchDevice, request: dict[str, Any]) -> dict[str, str]:
        """Return what the fingerprint of a run is made of: software, model and execution modes."""
        names = {**software(device.torch_device), **self.facts, **modes_of(request)}
        return names if self.compiled is None else {**names, "compile_shapes": SHAPES}


def modes_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the execution modes of a request that differ from the default, as tags."""
    return {name: "true" for name in EXECUTION_MODES if request.get(name)}


def forward_pass(
    device: TorchDevice, loaded: LoadedModel, batch: int, request: dict[str, Any]
) -> tuple[Callable[[], object], Inputs]:
    """Return a forward pass in the modes of a request over inputs on the device, and those on the host.

    Raises:
        ProbeConfigError: It cannot be compiled or captured.
    """
    workload = loaded.workload
    inputs = workload.inputs(batch)
    staged = workload.staged(inputs, device.torch_device, batch)
    if loaded.compiled is not None:
        workload = workload._replace(module=loaded.compiled.for_batch(batch))
    run = workload.forward_pass(staged)
    if loaded.compiled is not None:
        _compile(run)
    return (capture(device, run) if request.get("cuda_graph") else run), inputs


def _compile(run: Callable[[], object]) -> None:
    """Run a pass once, to compile it.

    Raises:
        ProbeConfigError: It cannot be compiled.
    """
    try:
        run()
    except Exception as error:
        if kind_of(error) in {"oom", "device"}:
            raise
        raise ProbeConfigError(
            f"torch.compile failed ({describe(error, None)}); remove compile from this probe, or"
            " give its interpreter a C++ compiler and, on a GPU, triton"
        ) from error
