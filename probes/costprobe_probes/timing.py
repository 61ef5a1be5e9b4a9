"""Latency of a batch: warm-up until stable, then timed blocks until the stop rule ends sampling.

A steady-state window is forward passes without a gap for its length.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Optional

import torch

from costprobe_probes.device import Runnable, TorchDevice
from costprobe_probes.stats import (
    READ_S,
    RISE_S,
    ProbeWindow,
    StopRule,
    WindowSettings,
    quantile,
)

WARM_UP_CAP_S = 10.0
WARM_UP_MIN_RUNS = 3
STABLE_SHARE = 0.02
BLOCK_MS = 100.0
MIN_BLOCK_RUNS = 5
SLOW_BLOCK_MS = 1000.0
MAX_BLOCK_RUNS = 500
SEARCH_STEP_MS = 300.0
SEARCH_STEP_MAX_RUNS = 1000
COPIES = 10

OnProgress = Callable[[float], None]


class Sampled(NamedTuple):
    """Timed runs.

    Attributes:
        latencies_ms: One value for each run.
        stop_reason: "runs", "settled" or "time_cap".
        start_ns: CLOCK_MONOTONIC ns before the first run.
        end_ns: CLOCK_MONOTONIC ns after the last.
        rel_err: Relative standard error of mean and median, the larger of the two; None with too
            few blocks.
    """

    latencies_ms: list[float]
    stop_reason: str
    start_ns: int
    end_ns: int
    rel_err: Optional[float]  # noqa: UP045 - evaluated on Python 3.9


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Disable Python's garbage collector during timed runs."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def warm_up(device: TorchDevice, run: Runnable, on_progress: OnProgress) -> float:
    """Run until the medians of two consecutive blocks agree within 2 %, or 10 s have passed.

    The first runs include lazy initialization, autotuning and rising clocks.

    Returns:
        Median latency of the last block in ms.
    """
    started_s = time.monotonic()
    latencies_ms = device.time_block(run, WARM_UP_MIN_RUNS)
    median_ms = quantile(sorted(latencies_ms), 0.5)
    while True:
        elapsed_s = time.monotonic() - started_s
        if elapsed_s >= WARM_UP_CAP_S:
            return median_ms
        on_progress(min(elapsed_s / WARM_UP_CAP_S, 1.0))
        latencies_ms = device.time_block(run, block_runs(median_ms))
        before_ms, median_ms = median_ms, quantile(sorted(latencies_ms), 0.5)
        if abs(median_ms - before_ms) <= STABLE_SHARE * median_ms:
            return median_ms


def block_runs(latency_ms: float) -> int:
    """Return the runs of a block of about 0.1 s; of slow passes five, or as many as fit into 1 s."""
    latency_ms = max(latency_ms, 1e-3)
    least = max(1, min(MIN_BLOCK_RUNS, int(SLOW_BLOCK_MS / latency_ms)))
    return max(least, min(MAX_BLOCK_RUNS, int(BLOCK_MS / latency_ms)))


def search_step_runs(latency_ms: float) -> int:
    """Return the runs of one step of a search: about 0.3 s, of slow passes as many as a block."""
    runs = max(block_runs(latency_ms), int(SEARCH_STEP_MS / max(latency_ms, 1e-3)))
    return min(runs, SEARCH_STEP_MAX_RUNS)


def sample(
    device: TorchDevice,
    run: Runnable,
    *,
    latency_ms: float,
    rule: StopRule,
    min_runs: int,
    on_progress: OnProgress,
    before: Runnable | None = None,
) -> Sampled:
    """Time runs in blocks until the rule ends sampling.

    Args:
        device: Device to run on.
        run: One forward pass.
        latency_ms: Approximate latency of a run; sizes the blocks.
        rule: Decides when sampling ends.
        min_runs: Number of runs that counts as complete progress.
        on_progress: Called with the completed share, from 0 to 1.
        before: Called before each timed run, outside the timed interval.
    """
    runs_a_block = block_runs(latency_ms)
    latencies_ms: list[float] = []
    stop_reason = ""
    with garbage_collection_paused():
        # Within the context: the collection at its start is not part of the runs.
        start_ns = end_ns = time.monotonic_ns()
        while not stop_reason:
            block_ms = device.time_block(run, runs_a_block, before)
            end_ns = time.monotonic_ns()
            latencies_ms += block_ms
            stop_reason = rule.update(block_ms, len(latencies_ms), (end_ns - start_ns) / 1e9)
            on_progress(min(len(latencies_ms) / min_runs, 1.0))
    rel_err = rule.rel_err if math.isfinite(rule.rel_err) else None
    return Sampled(latencies_ms, stop_reason, start_ns, end_ns, rel_err)


def copy_to_device_ms(device: TorchDevice, inputs: list[torch.Tensor]) -> float | None:
    """Return the median time in ms to copy one batch from pinned host memory; None on a CPU.

    Args:
        device: Destination.
        inputs: One batch on the host.
    """
    if device.torch_device.type == "cpu":
        return None
    pinned = [x.pin_memory() for x in inputs]

    def copy() -> object:
        return [x.to(device.torch_device, non_blocking=True) for x in pinned]

    device.time_block(copy, WARM_UP_MIN_RUNS)
    latencies_ms = device.time_block(copy, COPIES)
    return quantile(sorted(latencies_ms), 0.5)


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
