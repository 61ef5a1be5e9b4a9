"""What stands before the store: a disk that is full stops nothing and loses little."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from agent.model import Point
from agent.storage.errors import StoreError

logger = logging.getLogger(__name__)

MAX_POINTS = 50_000
POINTS_A_COMMIT = 5000


class PointWriter(Protocol):
    """What the buffer stands before."""

    def append(self, points: Sequence[Point]) -> None:
        """Commits points, or raises StoreError and keeps none."""
        ...


class BufferedWriter:
    """Keeps points in memory, within bounds, while the store cannot take them.

    Args:
        writer: The store.
        max_points: Most points to keep; the oldest go first, and are counted.
    """

    def __init__(self, writer: PointWriter, max_points: int = MAX_POINTS) -> None:
        self._writer = writer
        self._waiting: deque[Point] = deque()
        self._max_points = max_points
        self._lock = Lock()
        self._fault: str | None = None
        self._dropped_points = 0

    @property
    def fault(self) -> str | None:
        """Why points wait in memory; None if they do not."""
        return self._fault

    @property
    def waiting_points(self) -> int:
        """Points that wait in memory."""
        return len(self._waiting)

    @property
    def dropped_points(self) -> int:
        """Points that were lost because memory was bounded, too."""
        return self._dropped_points

    def append(self, points: Sequence[Point]) -> None:
        """Commits points behind those that wait, or lets them wait too; never raises for it."""
        with self._lock:
            self._waiting.extend(points)
            self._write()

    def flush(self) -> None:
        """Tries again to commit what waits."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting[i] for i in range(min(POINTS_A_COMMIT, len(self._waiting)))]
                self._writer.append(batch)
                for _ in batch:
                    self._waiting.popleft()
        except StoreError as error:
            if self._fault is None:
                logger.error("%s; points wait in memory", error)  # noqa: TRY400 - the text says it all
            self._fault = str(error)
        else:
            if self._fault is not None:
                logger.info("the store takes points again")
            self._fault = None
        while len(self._waiting) > self._max_points:
            self._waiting.popleft()
            self._dropped_points += 1
