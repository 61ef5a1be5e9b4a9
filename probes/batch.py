"""The optimum batch: doubling, then halving what lies between, within what memory is free."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Optional

LEAST_GAIN = 0.05
REFINEMENTS = 2


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


class Limits(NamedTuple):
    """What a search keeps to.

    Attributes:
        base_bytes: What the process holds with the model loaded, before its first pass.
        max_batch: Largest batch to try.
        latency_bound_ms: A batch slower than this is not chosen.
        memory_cap_bytes: The operator's own bound on the peak.
        min_batch: The batch to begin with.
    """

    base_bytes: int
    max_batch: int
    latency_bound_ms: Optional[float] = None  # noqa: UP045 - evaluated on Python 3.9
    memory_cap_bytes: Optional[int] = None  # noqa: UP045 - as above
    min_batch: int = 1


class Search:
    """Doubles the batch from the smallest, then halves what lies between.

    Doubling ends where it brings less than 5 %, where the latency bound is passed, or where the
    next batch may not fit. In the first case a batch between the last two that is within 5 % of
    the best is taken instead, for it answers sooner; in the others a larger one is looked for
    between the last that fitted and the first that did not.

    Before each step the peak is predicted from the steps before, and held against what is free
    at that moment: a batch that may not fit is never tried, for the memory that it would take
    may be a production neighbour's.

    Args:
        measure: Measures a batch size; None if memory ran out all the same.
        headroom_bytes: The peak that is allowed now.
        over: True when the search has taken its time.
        limits: What it keeps to.
    """

    def __init__(
        self,
        measure: Callable[[int], BatchPoint | None],
        headroom_bytes: Callable[[], int],
        over: Callable[[], bool],
        limits: Limits,
    ) -> None:
        self._measure = measure
        self._headroom_bytes = headroom_bytes
        self._over = over
        self._limits = limits
        self._curve: list[BatchPoint] = []

    def run(self) -> tuple[int, list[BatchPoint]]:
        """The best batch, and every point that was measured, in order of the batch.

        Raises:
            MemoryError: Not even one item fits.
        """
        best = self._measure(self._limits.min_batch)
        if best is None:
            raise MemoryError("one item does not fit beside what else uses the device")
        self._curve = [best]
        best, beyond = self._doubled(best)
        if beyond is not None:
            best = self._larger(best, beyond) if beyond.is_barred else self._smaller(best)
        return best.batch, sorted(self._curve)

    def _doubled(self, best: BatchPoint) -> tuple[BatchPoint, _Beyond | None]:
        """The last that doubling led to, and what ended it; None where nothing but the limit did."""
        while best.batch < self._limits.max_batch and not self._over():
            batch = min(best.batch * 2, self._limits.max_batch)
            point = self._tried(batch)
            if point is None:
                return best, _Beyond(batch, is_barred=True)
            if point.throughput_per_s < best.throughput_per_s * (1 + LEAST_GAIN):
                return best, _Beyond(batch, is_barred=False)
            best = point
        return best, None

    def _larger(self, best: BatchPoint, beyond: _Beyond) -> BatchPoint:
        """A larger batch that may be run and brings 5 % more, below one that may not."""
        barred = beyond.batch
        for _ in range(REFINEMENTS):
            batch = (best.batch + barred) // 2
            if batch <= best.batch or self._over():
                break
            point = self._tried(batch)
            if point is None or point.throughput_per_s < best.throughput_per_s * (1 + LEAST_GAIN):
                barred = batch
            else:
                best = point
        return best

    def _smaller(self, best: BatchPoint) -> BatchPoint:
        """A smaller batch that is within 5 % of the best, above the half that is not."""
        enough = max(point.throughput_per_s for point in self._curve) / (1 + LEAST_GAIN)
        too_small = best.batch // 2
        for _ in range(REFINEMENTS):
            batch = (too_small + best.batch) // 2
            if batch <= too_small or self._over():
                break
            point = self._tried(batch)
            if point is None or point.throughput_per_s <= enough:
                too_small = batch
            else:
                best = point
        return best

    def _tried(self, batch: int) -> BatchPoint | None:
        """The point of a batch; None where it may not be run, or ran out of memory."""
        limits, allowed = self._limits, self._headroom_bytes()
        if limits.memory_cap_bytes is not None:
            allowed = min(allowed, limits.memory_cap_bytes)
        if predicted_peak_bytes(limits.base_bytes, self._curve, batch) > allowed:
            return None
        point = self._measure(batch)
        if point is None:
            return None
        self._curve.append(point)
        bound_ms = limits.latency_bound_ms
        return None if bound_ms is not None and point.latency_ms > bound_ms else point


class _Beyond(NamedTuple):
    """The batch that ended the doubling, and whether it may not be run at all."""

    batch: int
    is_barred: bool


def predicted_peak_bytes(base_bytes: int, curve: list[BatchPoint], batch: int) -> int:
    """The peak to expect of a batch: linear in the batch, by the steepest stretch so far.

    Args:
        base_bytes: What the process holds before its first pass: the peak of batch 0.
        curve: The points so far, in any order.
        batch: The batch to come.
    """
    known = [(0, base_bytes), *sorted((point.batch, point.peak_bytes) for point in curve)]
    slopes = [
        (later_bytes - earlier_bytes) / (later - earlier)
        for (earlier, earlier_bytes), (later, later_bytes) in zip(known, known[1:])
    ]
    last, last_bytes = max((point for point in known if point[0] <= batch), default=known[0])
    return int(last_bytes + max(0.0, *slopes) * (batch - last))
