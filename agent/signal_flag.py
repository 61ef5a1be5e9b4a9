"""A flag that a signal handler may set."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Event

from agent.waits import LEAST_WAIT_S


class SignalFlag(Event):
    """A `threading.Event` without its lock.

    A handler runs in the main thread between two of its steps, also while that thread is inside
    `Event.wait` and holds the lock which `Event.set` takes: it would wait for itself for ever.
    `SimpleQueue.put` is reentrant (Python's documentation of `queue.SimpleQueue` says so).
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_up = False
        self._news: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Whether it was set and not cleared since."""
        return self._is_up

    def set(self) -> None:
        """Sets it and wakes who waits; safe in a signal handler."""
        self._is_up = True
        self._news.put(None)

    def clear(self) -> None:
        """Takes it back; what is set while this runs stays set."""
        self._is_up = False
        try:
            while True:
                self._news.get_nowait()
        except Empty:
            return

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, at most `timeout` seconds; whether it is set."""
        if self._is_up:
            return True
        try:
            self._news.get(timeout=timeout if timeout is None else max(timeout, LEAST_WAIT_S))
        except Empty:
            return self._is_up
        self._news.put(None)  # for others who wait
        return self._is_up
