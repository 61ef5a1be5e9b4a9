"""A bounded place in memory for points that the store cannot take just now."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from threading import Lock

from agent.model import Point
from agent.storage.errors import StoreError
from agent.storage.rows import Row, rendered
from agent.storage.writer import Store

# A device row takes about 0.5 KB: 10,000 are three and a half hours of eight GPUs.
CAPACITY_POINTS = 10_000
_ROWS_PER_WRITE = 1000


class BufferedWriter:
    """Stands before the store, so that a full, locked or read-only disk never stops measuring.

    Points go through at once while the store takes them. While it does not they wait here, the
    oldest first, and every append and flush tries again; beyond the capacity the oldest are
    dropped and counted. Any thread may call any method.

    Args:
        store: The one writer.
        capacity_points: The most points that wait in memory.
    """

    def __init__(self, store: Store, capacity_points: int = CAPACITY_POINTS) -> None:
        self._store = store
        self._capacity_points = capacity_points
        self._rows: deque[Row] = deque()
        self._lock = Lock()
        self._dropped_points = 0
        self._dropped_recorded = 0
        self._fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Why points wait, and what to do about it; None while they do not."""
        return self._fault

    @property
    def waiting_points(self) -> int:
        """Points that wait in memory."""
        return len(self._rows)

    @property
    def dropped_points(self) -> int:
        """Points lost for want of room since this process started."""
        return self._dropped_points

    def append(self, points: Sequence[Point]) -> None:
        """Stores points, or keeps them in memory until the store takes them.

        Raises:
            ValueError: A point without a measurement or with a time that 64 bits do not hold.
        """
        rows = rendered(points)
        with self._lock:
            self._rows.extend(rows)
            self._write()
            while len(self._rows) > self._capacity_points:
                self._rows.popleft()
                self._dropped_points += 1

    def flush(self) -> bool:
        """Tries to store what waits; True if nothing waits any more."""
        with self._lock:
            self._write()
            return not self._rows

    def _write(self) -> None:
        try:
            while self._rows or self._dropped_points > self._dropped_recorded:
                batch = list(islice(self._rows, _ROWS_PER_WRITE))
                dropped = self._dropped_points
                self._store.write(batch, dropped_before=dropped - self._dropped_recorded)
                self._dropped_recorded = dropped
                for _ in batch:
                    self._rows.popleft()
        except StoreError as error:
            self._fault = str(error)
        else:
            self._fault = None
