"""Search for the batch size with the best throughput, by doubling and then bisection, within free memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Optional

LEAST_GAIN = 0.05
REFINEMENTS = 2


class BatchPoint(NamedTuple):
    """Measurement of one batch size.

    Attributes:
        batch: Items per forward pass.
        latency_ms: Median latency of a pass.
        throughput_per_s: Items per second.
        peak_memory_bytes: Peak memory of the process in bytes.
    """

    batch: int
    latency_ms: float
    throughput_per_s: float
    peak_memory_bytes: int


class SearchLimits(NamedTuple):
    """Bounds of a search.

    Attributes:
        base_bytes: Memory of the process with the model loaded, before its first pass.
        max_batch: Largest batch that the model accepts; None for any.
        latency_bound_s: A batch with a higher latency, in s, is not chosen.
        memory_cap_bytes: The operator's bound on peak memory.
        min_batch: Batch to begin with.
    """

    base_bytes: int
    max_batch: Optional[int] = None  # noqa: UP045 - evaluated on Python 3.9
    latency_bound_s: Optional[float] = None  # noqa: UP045 - as above
    memory_cap_bytes: Optional[int] = None  # noqa: UP045 - as above
    min_batch: int = 1


class BatchSearch:
    """Double the batch from the smallest, then bisect between the last two.

    Doubling ends when it gains less than 5 %, exceeds the latency bound, or the next batch may not
    fit into memory. In the first case the search takes a smaller batch between the last two that
    is within 5 % of the best, because its latency is lower; in the other cases it looks for a
    larger batch between the last that fitted and the first that did not.

    Before each step the peak is predicted from the previous steps and compared with the memory
    that is free at that moment. A batch that may not fit is never tried: the memory may be needed
    by a production workload on the same device.

    Args:
        measure: Measures a batch size; returns None if it ran out of memory.
        headroom_bytes: Returns the peak that is allowed now.
        is_over: Returns True when the time limit of the search has passed.
        limits: Bounds of the search.
    """

    def __init__(
        self,
        measure: Callable[[int], BatchPoint | None],
        headroom_bytes: Callable[[], int],
        is_over: Callable[[], bool],
        limits: SearchLimits,
    ) -> None:
        self._measure = measure
        self._headroom_bytes = headroom_bytes
        self._is_over = is_over
        self._limits = limits
        self._curve: list[BatchPoint] = []

    def run(self) -> tuple[int, list[BatchPoint]]:
        """Return the best batch, and every measured point in order of the batch.

        Raises:
            MemoryError: Not even one item fits.
        """
        best = self._measure(self._limits.min_batch)
        if best is None:
            raise MemoryError("one item does not fit into the free memory of the device")
        self._curve = [best]
        most = self._limits.max_batch or math.inf
        while best.batch < most and not self._is_over():
            batch = int(min(best.batch * 2, most))
            point = self._try(batch)
            if point is None:
                best = self._refined(best, batch, _gains)
                break
            if not _gains(point, best):
                highest = max(self._curve, key=lambda point: point.throughput_per_s)
                is_near = lambda point, _, highest=highest: not _gains(highest, point)  # noqa: E731 - short
                best = self._refined(best, best.batch // 2, is_near)
                break
            best = point
        return best.batch, sorted(self._curve)

    def _refined(
        self, best: BatchPoint, other: int, is_better: Callable[[BatchPoint, BatchPoint], bool]
    ) -> BatchPoint:
        """Bisect between the best batch and another one: a smaller one, or one that does not fit."""
        for _ in range(REFINEMENTS):
            batch = (best.batch + other) // 2
            if batch in (best.batch, other) or self._is_over():
                break
            point = self._try(batch)
            if point is not None and is_better(point, best):
                best = point
            else:
                other = batch
        return best

    def _try(self, batch: int) -> BatchPoint | None:
        """Measure a batch; None if it exceeds a limit or runs out of memory."""
        limits, allowed = self._limits, self._headroom_bytes()
        if limits.memory_cap_bytes is not None:
            allowed = min(allowed, limits.memory_cap_bytes)
        if predicted_peak_bytes(limits.base_bytes, self._curve, batch) > allowed:
            return None
        point = self._measure(batch)
        if point is None:
            return None
        self._curve.append(point)
        bound_s = limits.latency_bound_s
        return None if bound_s is not None and point.latency_ms > bound_s * 1000 else point


def _gains(point: BatchPoint, other: BatchPoint) -> bool:
    """Return whether a batch has a higher throughput than another one, by 5 %."""
    return point.throughput_per_s >= other.throughput_per_s * (1 + LEAST_GAIN)


def predicted_peak_bytes(base_bytes: int, curve: list[BatchPoint], batch: int) -> int:
    """Predict the peak memory of a batch by linear extrapolation with the steepest slope so far.

    Args:
        base_bytes: Memory of the process before its first pass: the peak of batch 0.
        curve: Measured points, in any order.
        batch: Batch to predict.
    """
    measured = [(0, base_bytes), *sorted((point.batch, point.peak_memory_bytes) for point in curve)]
    slopes = [
        (later_bytes - earlier_bytes) / (later - earlier)
        for (earlier, earlier_bytes), (later, later_bytes) in zip(measured, measured[1:])
    ]
    last, last_bytes = max((point for point in measured if point[0] <= batch), default=measured[0])
    return int(last_bytes + max(0.0, *slopes) * (batch - last))
