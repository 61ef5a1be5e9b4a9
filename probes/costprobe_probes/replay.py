"""A forward pass as a CUDA graph: captured once, replayed in one launch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from costprobe_probes.device import TorchDevice
from costprobe_probes.errors import ProbeConfigError

SIDE_RUNS = 3


def capture(device: TorchDevice, run: Callable[[], object]) -> Callable[[], object]:
    """Capture a forward pass; the result replays it on the same memory.

    Args:
        device: Device to run on.
        run: One forward pass over inputs at fixed addresses.

    Raises:
        ProbeConfigError: The device is not a GPU, or the pass cannot be captured.
    """
    if device.torch_device.type != "cuda":
        raise ProbeConfigError("cuda_graph = true needs a GPU; remove it from this probe")
    # Lazy initialization (workspaces, autotuning) must happen before the capture (torch, CUDA semantics).
    for _ in range(SIDE_RUNS):
        run()
    device.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except RuntimeError as error:
        raise ProbeConfigError(
            f"the forward pass cannot be captured as a CUDA graph ({error}); remove cuda_graph"
        ) from error
    return graph.replay
