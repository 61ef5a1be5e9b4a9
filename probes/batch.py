"""The optimum batch: doubling until it brings nothing more, within what memory is free."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

LEAST_GAIN = 0.05


class BatchPoint(NamedTuple):
    """What one batch size came to.

    Attributes:
        batch: Items per forward pass.
        latency_ms: Median latency of a pass.
        throughput_per_s: Items per second.
        peak_bytes: The process's peak memory.
    """

    batch: int
    latency_ms: float
    throughput_per_s: float
    peak_bytes: int


def search(
    measure: Callable[[int], BatchPoint | None],
    headroom_bytes: Callable[[], int],
    over: Callable[[], bool],
    *,
    base_bytes: int,
    max_batch: int,
    latency_bound_ms: float | None,
    memory_cap_bytes: int | None,
) -> tuple[int, list[BatchPoint]]:
    """Doubles the batch from 1 and returns the best, with the curve.

    Before each step the peak is predicted from the steps before, and held against what is free
    at that moment: a batch that may not fit is never tried, for the memory that it would take
    may be a production neighbour's.

    Args:
        measure: Measures a batch size; None if memory ran out all the same, which ends the
            search with what was found before.
        headroom_bytes: The peak that is allowed now.
        over: True when the search has taken its time.
        base_bytes: What the process holds with the model loaded, before its first pass.
        max_batch: Largest batch to try.
        latency_bound_ms: A batch slower than this is not chosen.
        memory_cap_bytes: The operator's own bound on the peak.

    Raises:
        MemoryError: Not even one item fits.
    """
    best = measure(1)
    if best is None:
        raise MemoryError("one item does not fit beside what else uses the device")
    curve = [best]
    while curve[-1].batch * 2 <= max_batch and not over():
        batch = curve[-1].batch * 2
        allowed = headroom_bytes()
        if memory_cap_bytes is not None:
            allowed = min(allowed, memory_cap_bytes)
        if predicted_peak_bytes(base_bytes, curve, batch) > allowed:
            break
        point = measure(batch)
        if point is None:
            break
        curve.append(point)
        if latency_bound_ms is not None and point.latency_ms > latency_bound_ms:
            break
        if point.throughput_per_s < best.throughput_per_s * (1 + LEAST_GAIN):
            break
        best = point
    return best.batch, curve


def predicted_peak_bytes(base_bytes: int, curve: list[BatchPoint], batch: int) -> int:
    """The peak to expect of a batch: linear in the batch, by the steepest stretch so far.

    Args:
        base_bytes: What the process holds before its first pass: the peak of batch 0.
        curve: The points so far.
        batch: The batch to come.
    """
    known = [(0, base_bytes), *((point.batch, point.peak_bytes) for point in curve)]
    slopes = [
        (later_bytes - earlier_bytes) / (later - earlier)
        for (earlier, earlier_bytes), (later, later_bytes) in zip(known, known[1:])
    ]
    last, last_bytes = known[-1]
    return int(last_bytes + max(0.0, *slopes) * (batch - last))
