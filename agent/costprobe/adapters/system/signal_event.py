"""Events that a signal handler may set."""

from __future__ import annotations

import os
import select
from contextlib import suppress
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
        """Return whether it was set and not cleared since."""
        return self._is_set

    def set(self) -> None:
        """Set it and wake waiting threads; safe in a signal handler."""
        self._is_set = True
        self._queue.put(None)

    def clear(self) -> None:
        """Clear it; a `set` during this call is not lost."""
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


class SignalWakeUp:
    """Ends the main thread's wait, also at a signal that arrives just before the wait.

    CPython calls a signal's handler between two bytecodes. A signal that arrives between the last of
    them and a wait is handled after the wait; the interpreter itself writes to `fd` at once.

    Attributes:
        fd: For `signal.set_wakeup_fd`.
    """

    def __init__(self) -> None:
        self._ends, self.fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._ends, select.POLLIN)

    def set(self) -> None:
        """End the present or next wait; safe in a signal handler."""
        with suppress(BlockingIOError):  # a full pipe ends the wait, too
            os.write(self.fd, b"\0")

    def wait(self, timeout_s: float) -> None:
        """Wait for `set` or a signal, at most `timeout_s`."""
        self._poll.poll(timeout_s * 1000)
        with suppress(BlockingIOError):
            os.read(self._ends, select.PIPE_BUF)
