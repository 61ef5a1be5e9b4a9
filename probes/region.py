"""The steady-state region: load without a gap, whose energy the sensors can tell.

The load begins before the region, so that power has risen when it starts, and goes on after it
until the sensors have read their edge: both edge readings fall into steady load, and no reading
depends on how fast power falls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import NamedTuple

import torch

from probes.device import Device, Runnable
from probes.timing import OnProgress, block_runs, quiet_collector

RISE_S = 0.5
# From the sensors' being asked to their having read: a pipe, a thread, a driver call of some ms,
# and the 0.1 s by which a counter may lag.
READ_S = 0.3
FLIGHT_MS = 20.0


class Region(NamedTuple):
    """When the region ran and what it held; times are CLOCK_MONOTONIC ns.

    Attributes:
        steady_start_ns: From here on the load was steady.
        start_ns: The region's start.
        end_ns: The region's end.
        steady_end_ns: Until here the load went on.
        runs: Forward passes within the region.
    """

    steady_start_ns: int
    start_ns: int
    end_ns: int
    steady_end_ns: int
    runs: int


class Edges(NamedTuple):
    """How the region and the sensors find each other.

    Attributes:
        region_s: Least length of the region in seconds.
        tail_s: Longest time in seconds that the load goes on behind it.
        marked: Set once the sensors have been asked to read the edge behind the region.
        on_edge: Told "region_start" and "region_end" with their instants, while load goes on.
    """

    region_s: float
    tail_s: float
    marked: Event
    on_edge: Callable[[str, int], None]


def steady_region(
    device: Device, run: Runnable, *, latency_ms: float, edges: Edges, on_progress: OnProgress
) -> Region:
    """Keeps the device busy for a region of at least `edges.region_s` and counts the passes in it.

    Args:
        device: Where.
        run: One forward pass.
        latency_ms: About how long a pass takes; bounds what is in flight.
        edges: How long, and who is told.
        on_progress: Told the share that is done.
    """
    load = _Load(device, run, latency_ms)
    with quiet_collector():
        steady_start_ns = time.monotonic_ns()
        load.until(lambda: time.monotonic_ns() - steady_start_ns >= RISE_S * 1e9)
        load.runs = 0
        start_ns = time.monotonic_ns()
        edges.on_edge("region_start", start_ns)

        def over() -> bool:
            elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
            on_progress(min(elapsed_s / edges.region_s, 1.0))
            return elapsed_s >= edges.region_s

        load.until(over)
        runs, end_ns = load.runs, time.monotonic_ns()
        edges.marked.clear()
        edges.on_edge("region_end", end_ns)
        load.until(
            lambda: edges.marked.is_set() or time.monotonic_ns() - end_ns >= edges.tail_s * 1e9
        )
        asked_ns = time.monotonic_ns()
        load.until(lambda: time.monotonic_ns() - asked_ns >= READ_S * 1e9)
        steady_end_ns = time.monotonic_ns()
    return Region(steady_start_ns, start_ns, end_ns, steady_end_ns, runs)


class _Load:
    """Forward passes one behind the other, with a bounded number in flight.

    A GPU's queue is kept fed: while one group of passes runs, the next is launched, and the
    host waits for the group before it. `until` drains the queue, so that every pass it counts
    has ended when it returns.
    """

    def __init__(self, device: Device, run: Runnable, latency_ms: float) -> None:
        self._device = device
        self._run = run
        self._group = max(1, min(block_runs(latency_ms), int(FLIGHT_MS / max(latency_ms, 1e-3))))
        self.runs = 0

    def until(self, over: Callable[[], bool]) -> None:
        if self._device.torch_device.type == "cpu":
            while not over():
                self._run()
                self.runs += 1
            return
        before = None
        while not over():
            for _ in range(self._group):
                self._run()
            self.runs += self._group
            done = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch does not type it
            done.record()
            if before is not None:
                before.synchronize()
            before = done
        self._device.synchronize()
