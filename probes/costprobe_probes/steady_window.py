"""Forward passes without a gap for the length of a steady-state window."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from costprobe_probes.device import Runnable, TorchDevice
from costprobe_probes.timing import OnProgress, block_runs, garbage_collection_paused
from costprobe_probes.window import READ_S, RISE_S, ProbeWindow, WindowSettings

# Longest time of GPU work that is queued ahead, in ms.
QUEUED_MS = 20.0


def run_steady_window(
    device: TorchDevice,
    run: Runnable,
    *,
    latency_ms: float,
    settings: WindowSettings,
    on_progress: OnProgress,
) -> tuple[ProbeWindow, int]:
    """Keep the device busy for at least `settings.window_s`.

    Args:
        device: Device to run on.
        run: One forward pass.
        latency_ms: Approximate latency of a pass; bounds the work that is queued ahead.
        settings: Length of the window, and its connection to the sensors.
        on_progress: Called with the completed share, from 0 to 1.

    Returns:
        The window, and the number of forward passes that completed within it.
    """
    passes = _PassLoop(device, run, latency_ms)
    time.sleep(settings.phase_s)
    with garbage_collection_paused():
        steady_start_ns = time.monotonic_ns()
        passes.run_until(lambda: time.monotonic_ns() - steady_start_ns >= RISE_S * 1e9)
        passes.completed = 0
        start_ns = time.monotonic_ns()
        settings.on_edge("window_start", start_ns)

        def is_over() -> bool:
            elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
            on_progress(min(elapsed_s / settings.window_s, 1.0))
            return elapsed_s >= settings.window_s

        passes.run_until(is_over)
        completed, end_ns = passes.completed, time.monotonic_ns()
        settings.marked.clear()
        settings.on_edge("window_end", end_ns)
        passes.run_until(
            lambda: (
                settings.marked.is_set() or time.monotonic_ns() - end_ns >= settings.tail_s * 1e9
            )
        )
        requested_ns = time.monotonic_ns()
        passes.run_until(lambda: time.monotonic_ns() - requested_ns >= READ_S * 1e9)
        steady_end_ns = time.monotonic_ns()
    return ProbeWindow(steady_start_ns, start_ns, end_ns, steady_end_ns), completed


class _PassLoop:
    """Back-to-back forward passes with a bounded number queued ahead.

    A GPU's queue never runs empty: while one group of passes runs, the next is launched, and the
    host waits for the group before it. `run_until` drains the queue, so that every pass in
    `completed` has ended when it returns.
    """

    def __init__(self, device: TorchDevice, run: Runnable, latency_ms: float) -> None:
        self._device = device
        self._run = run
        self._group = max(1, min(block_runs(latency_ms), int(QUEUED_MS / max(latency_ms, 1e-3))))
        self.completed = 0

    def run_until(self, is_over: Callable[[], bool]) -> None:
        if self._device.torch_device.type == "cpu":
            while not is_over():
                self._run()
                self.completed += 1
            return
        before = None
        while not is_over():
            for _ in range(self._group):
                self._run()
            self.completed += self._group
            done = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch does not type it
            done.record()
            if before is not None:
                before.synchronize()
            before = done
        self._device.synchronize()
