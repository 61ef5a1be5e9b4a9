"""An alarm that is put off again and again, and so rings only where somebody stays away too long."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType


class Alarm:
    """Rings once when it was not put off for a while; to be made in the main thread.

    The kernel's timer of this process, setitimer(2): putting it off wakes no thread, where one that
    waited so long and looked would be woken each time.

    Args:
        after_s: How long, in s.
        ring: Called in the main thread, between any two of its steps.
    """

    def __init__(self, after_s: float, ring: Callable[[], None]) -> None:
        self._after_s = after_s
        self._ring = ring
        signal.signal(signal.SIGALRM, self._rung)

    def put_off(self) -> None:
        """Lets it ring so long from now; from any thread."""
        signal.setitimer(signal.ITIMER_REAL, self._after_s)

    @staticmethod
    def spare_this_thread() -> None:
        """Keeps it from the thread that calls: each but the main one has to.

        A wait that the signal cuts short in such a thread goes on without an end where its time is
        over by then: `queue.SimpleQueue.get` reckons with less than nothing, which means for ever.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})

    def _rung(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._ring()
