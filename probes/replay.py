"""A forward pass as a CUDA graph: recorded once, launched whole."""

from __future__ import annotations

from collections.abc import Callable

import torch

from probes.device import Device
from probes.errors import ConfigError

SIDE_RUNS = 3


def captured(device: Device, run: Callable[[], object]) -> Callable[[], object]:
    """A forward pass that replays what the given one launches, from and to the same memory.

    Args:
        device: Where it runs.
        run: One forward pass over inputs that stay where they are.

    Raises:
        ConfigError: The device is no GPU, or the pass cannot be captured.
    """
    if device.torch_device.type != "cuda":
        raise ConfigError("cuda_graph = true needs a GPU; remove it from this probe")
    # Lazy set-up (workspaces, autotuning) must not fall into the capture (CUDA semantics, torch).
    for _ in range(SIDE_RUNS):
        run()
    device.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except RuntimeError as error:
        raise ConfigError(
            f"the forward pass cannot be captured as a CUDA graph ({error}); remove cuda_graph"
        ) from error
    return graph.replay
