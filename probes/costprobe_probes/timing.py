"""Latency and throughput of a batch: warm-up, timed blocks, then back-to-back passes.

Warm-up lasts until latency has no slope, sampling until the stop rule ends it. Every run ends with
the same loop of back-to-back passes. A steady-state window continues it for its length.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Optional

import torch

from costprobe_probes.contention import PassDelays
from costprobe_probes.device import Runnable, TorchDevice
from costprobe_probes.stats import (
    LEAST_BATCHES,
    LOOP_CAP_S,
    LOOP_PASSES,
    LOOP_S,
    READ_S,
    WARM_UP_S,
    ProbeWindow,
    StopRule,
    WindowSettings,
    batches,
    change_over,
    has_two_modes,
    is_unsteady,
    quantile,
    rel_interval,
)

WARM_UP_CAP_S = 10.0
WARM_UP_MIN_RUNS = 3
WARM_UP_MIN_BLOCKS = 5
STABLE_SHARE = 0.005
BLOCK_MS = 100.0
MIN_BLOCK_RUNS = 5
SLOW_BLOCK_MS = 1000.0
MAX_BLOCK_RUNS = 500
SEARCH_STEP_MS = 300.0
SEARCH_STEP_MAX_RUNS = 1000
COPIES = 10
DEVICE_PASSES_MS = 300.0
# Fewest passes from which the figures of a contended run are computed.
UNDELAYED_LEAST = 10

OnProgress = Callable[[float], None]


class Sampled(NamedTuple):
    """Timed runs.

    Attributes:
        latencies_ms: One value for each run.
        stop_reason: "runs", "settled" or "time_cap".
        start_ns: CLOCK_MONOTONIC ns before the first run.
        end_ns: CLOCK_MONOTONIC ns after the last.
        rel_err: Half-width of the 95 % interval of mean and median within the run, relative, the
            larger of the two; None with too few blocks.
        unsteady: Whether its first and last third differ, or the latencies have two modes.
        delayed: Whether others delayed each run; empty if unknown.
    """

    latencies_ms: list[float]
    stop_reason: str
    start_ns: int
    end_ns: int
    rel_err: Optional[float]  # noqa: UP045 - evaluated on Python 3.9
    unsteady: bool
    delayed: list[bool]

    def undelayed(self) -> Sampled:
        """Return the runs that others did not delay; all if these are fewer than ten."""
        kept = [ms for ms, is_delayed in zip(self.latencies_ms, self.delayed) if not is_delayed]
        if not UNDELAYED_LEAST <= len(kept) < len(self.latencies_ms):
            return self
        medians = [statistics.median(part) for part in batches(kept, LEAST_BATCHES)]
        return self._replace(
            latencies_ms=kept,
            rel_err=max(rel_interval(kept), rel_interval(medians)),
            unsteady=is_unsteady(kept) or has_two_modes(kept),
            delayed=[False] * len(kept),
        )


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Leave Python's garbage collection to `gc.collect()` between blocks, not within timed runs.

    What exists at the start is exempt from it, so that a collection takes microseconds.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def warm_up(
    device: TorchDevice,
    run: Runnable,
    on_progress: OnProgress,
    least_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Run for at least a second, and until latency has no slope any more, or 10 s have passed.

    The first runs include lazy initialization, autotuning and rising clocks. The slope is that of
    the medians of the later half of the blocks, at least five: it is gone if latency changes by
    less than 0.5 % over them, or by no more than their noise can.

    Args:
        device: Device to run on.
        run: One forward pass.
        on_progress: Called with the completed share, from 0 to 1.
        least_s: Shortest time; None for WARM_UP_S.
        clock: The host's clock in s.

    Returns:
        Median latency of the last block in ms.
    """
    least_s = WARM_UP_S if least_s is None else least_s
    started_s = clock()
    median_ms = quantile(sorted(device.time_block(run, WARM_UP_MIN_RUNS)), 0.5)
    blocks: list[tuple[float, float]] = []
    while (elapsed_s := clock() - started_s) < WARM_UP_CAP_S:
        on_progress(min(elapsed_s / WARM_UP_CAP_S, 1.0))
        median_ms = quantile(sorted(device.time_block(run, block_runs(median_ms))), 0.5)
        blocks.append((clock() - started_s, median_ms))
        now_s = blocks[-1][0]
        recent = blocks[-max(WARM_UP_MIN_BLOCKS, len(blocks) // 2) :]
        if now_s < least_s or len(recent) < WARM_UP_MIN_BLOCKS:
            continue
        change, error = change_over(recent)
        if abs(change) <= max(STABLE_SHARE * median_ms, error):
            break
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


def sample(  # noqa: PLR0913 - what is run, when it ends, what is observed
    device: TorchDevice,
    run: Runnable,
    *,
    latency_ms: float,
    rule: StopRule,
    min_runs: int,
    on_progress: OnProgress,
    before: Runnable | None = None,
    delays: PassDelays | None = None,
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
        delays: Finds the runs that others delayed; None to leave it open.
    """
    runs_a_block = block_runs(latency_ms)
    latencies_ms: list[float] = []
    delayed: list[bool] = []
    watch = None if delays is None else delays.before_pass
    stop_reason = ""
    with garbage_collection_paused():
        # Within the context: the collection at its start is not part of the runs.
        start_ns = end_ns = time.monotonic_ns()
        while not stop_reason:
            gc.collect()
            block_ms = device.time_block(run, runs_a_block, before, watch)
            end_ns = time.monotonic_ns()
            delayed += [] if delays is None else delays.of_block(block_ms)
            latencies_ms += block_ms
            stop_reason = rule.update(block_ms, len(latencies_ms), (end_ns - start_ns) / 1e9)
            on_progress(min(len(latencies_ms) / min_runs, 1.0))
    rel_err = rule.rel_err if math.isfinite(rule.rel_err) else None
    unsteady = is_unsteady(rule.block_medians) or has_two_modes(latencies_ms)
    return Sampled(latencies_ms, stop_reason, start_ns, end_ns, rel_err, unsteady, delayed)


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


def device_time_ms(
    device: TorchDevice, run: Runnable, latency_ms: float, before: Runnable | None = None
) -> float | None:
    """Return the median time in ms that the device itself takes for a pass; None where unknown.

    Args:
        device: Device to run on.
        run: One forward pass.
        latency_ms: Approximate latency of a pass.
        before: Called before each pass, outside the timed interval.
    """
    runs = max(WARM_UP_MIN_RUNS, min(COPIES, int(DEVICE_PASSES_MS / max(latency_ms, 1e-3))))
    with garbage_collection_paused():
        times_ms = device.time_queued(run, runs, latency_ms, before)
    return quantile(sorted(times_ms), 0.5) if times_ms else None


# Longest time of GPU work that is queued ahead, in ms.
QUEUED_MS = 20.0


class Load(NamedTuple):
    """Back-to-back passes at the end of a run.

    Attributes:
        window: Its instants; those of the loop if the run has no energy window.
        passes: Forward passes that completed within the window.
        pass_s: Seconds of a pass in the loop, the first second of the load. This is the one
            definition of throughput: the loop is the same with and without a window after it.
        unsteady: Whether first and last third of the load differ.
    """

    window: ProbeWindow
    passes: int
    pass_s: float
    unsteady: bool


def run_load(
    device: TorchDevice,
    run: Runnable,
    *,
    latency_ms: float,
    settings: WindowSettings | None,
    on_progress: OnProgress,
    loop_s: float = LOOP_S,
) -> Load:
    """Run the loop of back-to-back passes, and continue without a pause into an energy window.

    Args:
        device: Device to run on.
        run: One forward pass.
        latency_ms: Approximate latency of a pass; bounds the work that is queued ahead.
        settings: Length of the window, and its connection to the sensors; None for no window.
        on_progress: Called with the completed share of a window, from 0 to 1.
        loop_s: Shortest length of the loop in seconds.
    """
    passes = _PassLoop(device, run, latency_ms)
    time.sleep(settings.phase_s if settings else 0.0)
    with garbage_collection_paused():
        steady_start_ns = time.monotonic_ns()

        def is_looped() -> bool:
            elapsed_s = (time.monotonic_ns() - steady_start_ns) / 1e9
            is_enough = passes.completed >= LOOP_PASSES or elapsed_s >= LOOP_CAP_S
            return elapsed_s >= loop_s and is_enough

        passes.run_until(is_looped)
        loop_end_ns, completed = time.monotonic_ns(), passes.completed
        window = ProbeWindow(steady_start_ns, steady_start_ns, loop_end_ns, loop_end_ns)
        pass_s = (loop_end_ns - steady_start_ns) / 1e9 / completed
        if settings is not None:
            window, completed = _window(passes, steady_start_ns, settings, on_progress)
    return Load(window, completed, pass_s, is_unsteady(passes.paces))


def _window(
    passes: _PassLoop, steady_start_ns: int, settings: WindowSettings, on_progress: OnProgress
) -> tuple[ProbeWindow, int]:
    """Keep the device busy for `settings.window_s`, and until the sensors have read its end.

    Returns:
        The window, and the number of forward passes that completed within it.
    """
    before, start_ns = passes.completed, time.monotonic_ns()
    settings.on_edge("window_start", start_ns)

    def is_over() -> bool:
        elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
        on_progress(min(elapsed_s / settings.window_s, 1.0))
        return elapsed_s >= settings.window_s

    passes.run_until(is_over)
    completed, end_ns = passes.completed - before, time.monotonic_ns()
    settings.marked.clear()
    settings.on_edge("window_end", end_ns)
    passes.run_until(
        lambda: settings.marked.is_set() or time.monotonic_ns() - end_ns >= settings.tail_s * 1e9
    )
    requested_ns = time.monotonic_ns()
    passes.run_until(lambda: time.monotonic_ns() - requested_ns >= READ_S * 1e9)
    return ProbeWindow(steady_start_ns, start_ns, end_ns, time.monotonic_ns()), completed


class _PassLoop:
    """Back-to-back forward passes with a bounded number queued ahead.

    A GPU's queue never runs empty: while one group of passes runs, the next is launched, and the
    host waits for the group before it. `run_until` drains the queue, so that every pass in
    `completed` has ended when it returns.

    Attributes:
        completed: Passes so far.
        paces: Seconds of a pass in each group.
    """

    def __init__(self, device: TorchDevice, run: Runnable, latency_ms: float) -> None:
        self._device = device
        self._run = run
        self._group = max(1, min(block_runs(latency_ms), int(QUEUED_MS / max(latency_ms, 1e-3))))
        self.completed = 0
        self.paces: list[float] = []

    def run_until(self, is_over: Callable[[], bool]) -> None:
        on_cpu = self._device.torch_device.type == "cpu"
        wait: Callable[[], None] | None = None
        ended_ns = time.monotonic_ns()
        while not is_over():
            for _ in range(self._group):
                self._run()
            self.completed += self._group
            gc.collect()
            if not on_cpu:
                wait_before, wait = wait, self._device.mark()
                if wait_before is None:
                    continue  # the first group is still running
                wait_before()
            now_ns = time.monotonic_ns()
            self.paces.append((now_ns - ended_ns) / 1e9 / self._group)
            ended_ns = now_ns
        self._device.synchronize()
