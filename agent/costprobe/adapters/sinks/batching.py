"""The size of a request, adapted to what the server accepts."""

from __future__ import annotations

from typing import Final

from costprobe.core.outbox import RowBatch

MAX_BATCH_BYTES: Final = 4 << 20
MIN_BATCH_BYTES: Final = 16 << 10
MIN_BATCH_POINTS: Final = 100
# Assumed before the first lines: the size of a row of `device`.
FIRST_LINE_BYTES: Final = 500
# Each accepted request adds this share of the largest batch.
STEP_SHARE: Final = 0.05
# A request that is too large costs a round trip, and a server's limit rarely changes.
ACCEPTED_BEFORE_LARGER: Final = 200


class BatchSize:
    """The size of a request: halved after a failure, increased by a step after each success.

    Additive increase with multiplicative decrease settles at what a server can process, also where
    many clients share it (Chiu and Jain 1989).

    Args:
        max_points: Most points of a request.

    Attributes:
        points: Most points of a request now.
        size_bytes: Most bytes of a request now, before compression.
    """

    def __init__(self, max_points: int) -> None:
        self._max_points = max_points
        self.points = max_points
        self.size_bytes = MAX_BATCH_BYTES
        self._accepted = 0
        self._line_bytes = float(FIRST_LINE_BYTES)

    def limit(self) -> int:
        """Number of points to read, such that they are unlikely to exceed `size_bytes`."""
        return max(1, min(self.points, int(self.size_bytes / self._line_bytes)))

    def fits(self, batch: RowBatch) -> bool:
        """Return whether a batch is sent as it is; a single row always is."""
        return len(batch.lines) <= self.size_bytes or batch.points == 1

    def observe(self, points: int, lines_bytes: int) -> None:
        """Record the size of lines; the next ones are assumed to be as long."""
        self._line_bytes = max(1.0, lines_bytes / points)

    def accepted(self) -> None:
        """Record that a request was acknowledged."""
        step = max(1, int(self._max_points * STEP_SHARE))
        self.points = min(self._max_points, self.points + step)
        if self.size_bytes < MAX_BATCH_BYTES:
            self._accepted += 1
            if self._accepted >= ACCEPTED_BEFORE_LARGER:
                self._accepted = 0
                self.size_bytes = min(MAX_BATCH_BYTES, 2 * self.size_bytes)

    def failed(self) -> None:
        """Record that the server did not respond in time, or was overloaded."""
        least = min(MIN_BATCH_POINTS, self._max_points)
        self.points = max(least, self.points // 2)

    def too_large(self, lines_bytes: int) -> None:
        """Record that a request was refused for its size in bytes."""
        self._accepted = 0
        self.size_bytes = min(self.size_bytes, max(MIN_BATCH_BYTES, lines_bytes // 2))
