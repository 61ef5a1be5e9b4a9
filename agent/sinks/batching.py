"""How much goes at once, and how fast: both found by asking the server, never by stopping it."""

from __future__ import annotations

from typing import Final

MAX_BATCH_BYTES: Final = 4 << 20
MIN_BATCH_BYTES: Final = 16 << 10
MIN_BATCH_POINTS: Final = 100
# Of a device's row, until some were seen.
FIRST_LINE_BYTES: Final = 500
# A share of the largest batch that each one that was taken adds.
STEP_SHARE: Final = 0.05
# A refusal for its size costs a request, and the limit behind it rarely moves.
TAKEN_BEFORE_LARGER: Final = 200


class BatchSize:
    """The size of a request: half of it after a failure, a step more after each success.

    Additive increase and multiplicative decrease settle at what a server can take, also where
    many clients share it (Chiu and Jain 1989).

    Args:
        max_points: Most points of a request.

    Attributes:
        points: How many a request may hold now.
        size_bytes: How many bytes it may have now.
    """

    def __init__(self, max_points: int) -> None:
        self._max_points = max_points
        self.points = max_points
        self.size_bytes = MAX_BATCH_BYTES
        self._taken = 0
        self._line_bytes = float(FIRST_LINE_BYTES)

    @property
    def is_whole(self) -> bool:
        """Whether a request may be as large as ever."""
        return self.points == self._max_points and self.size_bytes == MAX_BATCH_BYTES

    def limit(self) -> int:
        """How many points to ask for, so that they will not be too many bytes."""
        return max(1, min(self.points, int(self.size_bytes / self._line_bytes)))

    def saw(self, points: int, lines_bytes: int) -> None:
        """Lines were made ready: those to come will be about as long."""
        self._line_bytes = max(1.0, lines_bytes / points)

    def taken(self) -> None:
        """A request was acknowledged."""
        step = max(1, int(self._max_points * STEP_SHARE))
        self.points = min(self._max_points, self.points + step)
        if self.size_bytes < MAX_BATCH_BYTES:
            self._taken += 1
            if self._taken >= TAKEN_BEFORE_LARGER:
                self._taken = 0
                self.size_bytes = min(MAX_BATCH_BYTES, 2 * self.size_bytes)

    def failed(self) -> None:
        """A request got no answer in time, or the server was too busy for it."""
        least = min(MIN_BATCH_POINTS, self._max_points)
        self.points = max(least, self.points // 2)

    def too_large(self, request_bytes: int) -> None:
        """A request was refused for its size in bytes."""
        self._taken = 0
        self.size_bytes = min(self.size_bytes, max(MIN_BATCH_BYTES, request_bytes // 2))


class Pace:
    """Bounds how fast a backlog leaves: a bucket that a second fills.

    Args:
        points_per_s: The rate.
        now_s: Seconds of a clock that is never set.
    """

    def __init__(self, points_per_s: int, now_s: float) -> None:
        self._per_s = points_per_s
        self._free = float(points_per_s)
        self._filled_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until some may go; 0 if they may now."""
        self._free = min(self._per_s, self._free + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        return max(0.0, -self._free / self._per_s)

    def take(self, points: int) -> None:
        """Counts points that went; a batch may overdraw what there is, and is waited for."""
        self._free -= points
