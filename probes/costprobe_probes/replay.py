"""A forward pass as a CUDA graph: captured once, replayed in one launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from costprobe_probes.device import TorchDevice
from costprobe_probes.errors import CaptureError, ProbeConfigError, kind_of

SIDE_RUNS = 3


def capture(
    device: TorchDevice,
    run: Callable[[], object],
    cuda: Any = torch.cuda,  # noqa: ANN401 - torch's module of that name, or a stand-in
) -> Callable[[], object]:
    """Capture a forward pass; the result replays it on the same memory.

    Args:
        device: Device to run on.
        run: One forward pass over inputs at fixed addresses.
        cuda: Captures the pass.

    Raises:
        ProbeConfigError: The device is not a GPU.
        CaptureError: The pass cannot be captured.
        RuntimeError: Memory is exhausted.
    """
    if device.torch_device.type != "cuda":
        raise ProbeConfigError("cuda_graph = true needs a GPU; remove it from this probe")
    # Lazy initialization (workspaces, autotuning) must happen before the capture (torch, CUDA semantics).
    for _ in range(SIDE_RUNS):
        run()
    device.synchronize()
    graph = cuda.CUDAGraph()
    try:
        with cuda.graph(graph):
            run()
    except RuntimeError as error:
        if kind_of(error) == "oom":
            raise
        raise CaptureError(
            f"the forward pass cannot be captured as a CUDA graph ({error}); remove cuda_graph,"
            " or set a smaller batch"
        ) from error
    # With the pass: a replay reads and writes the memory of its inputs, which must not be freed.
    return partial(_replay, graph, run)


def _replay(graph: Any, _: Callable[[], object]) -> None:  # noqa: ANN401 - as above
    graph.replay()
