"""The memory that a model needs at least, compared with what is free before it is taken."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch

from costprobe_probes.device import GIB, TorchDevice
from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.workload import Workload


def check_memory(
    workload: Workload,
    device: TorchDevice,
    name: str,
    batch: int,
    memory_cap_bytes: int | None = None,
) -> None:
    """Check that the weights, and the state of one batch, fit into the free memory of a device.

    The reserve for other processes counts as taken. Weights that are in the host's memory already
    count only for another device.

    Args:
        workload: The model, before it is moved to the device.
        device: The device.
        name: The model, for the error.
        batch: Items of the smallest pass that will run.
        memory_cap_bytes: The operator's bound.

    Raises:
        ProbeConfigError: They do not fit; the text has what is needed, what is free, and the fix.
    """
    module, kind = workload.module, device.torch_device.type
    weights_bytes = _bytes(
        x for x in chain(module.parameters(), module.buffers()) if x.device.type != kind
    )
    made = workload.state(batch, torch.device("meta")) if workload.state is not None else ()
    state_bytes = _bytes(made)
    need_bytes, allowed_bytes = weights_bytes + state_bytes, device.headroom_bytes()
    free = f"{_gib(allowed_bytes)} are free beside the reserve for other processes"
    if memory_cap_bytes is not None and memory_cap_bytes < allowed_bytes:
        allowed_bytes, free = memory_cap_bytes, f"memory_cap is {_gib(memory_cap_bytes)}"
    if need_bytes <= allowed_bytes:
        return
    parts = f"{_gib(weights_bytes)} of weights"
    if made:
        parts += f" and {_gib(state_bytes)} of KV cache at batch {batch}"
    smaller = ", fewer context_tokens, a smaller batch" if made else ""
    raise ProbeConfigError(
        f'{name}: needs at least {parts}, and {free}: use dtype = "bf16"{smaller} or a smaller model'
    )


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)


def _gib(size: int) -> str:
    return f"{max(size, 0) / GIB:.2f} GiB"
