"""An event that a signal handler may set."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Event
from typing import Final

# CPython's `SimpleQueue.get` recomputes the remaining time after a spurious wake-up. With a shorter
# timeout the remainder may be negative, which means to wait indefinitely (seen with 3.11).
LEAST_WAIT_S: Final = 0.001


class SignalFlag(Event):
    """A `threading.Event` without a lock.

    A signal handler runs in the main thread between two bytecodes, also while that thread is inside
    `Event.wait` and holds the lock that `Event.set` takes: a deadlock. `SimpleQueue.put` is
    reentrant, by Python's documentation of `queue.SimpleQueue`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._queue: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """True if it was set and not cleared since."""
        return self._is_set

    def set(self) -> None:
        """Set it and wake waiting threads; safe in a signal handler."""
        self._is_set = True
        self._queue.put(None)

    def clear(self) -> None:
        """Clear it; a `set` during this call is kept."""
        self._is_set = False
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            return

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` s; return whether it is set."""
        if self._is_set:
            return True
        try:
            self._queue.get(timeout=timeout if timeout is None else max(timeout, LEAST_WAIT_S))
        except Empty:
            return self._is_set
        self._queue.put(None)  # for other waiting threads
        return self._is_set
