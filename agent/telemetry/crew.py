"""Who looks after the devices: one thread for all of them, and more only where a call is slow.

A driver call that hangs must not stop the other devices, and a thread for each device costs a wake
for each of them every second. So one thread goes round all that are due. When a visit lasts too
long another thread takes over the round, and the first stays with its device until it is quick.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from agent.clock import Clock
from agent.model import NS_PER_S
from agent.telemetry.wire import Message
from agent.telemetry.worker import DeviceWorker

# Reading a GPU takes some milliseconds; one that takes so long would make the others late.
PATIENCE_NS: Final = NS_PER_S // 4
# After so many quick visits a device that was slow is looked after on the round again.
QUICK_VISITS: Final = 30


class _Post:
    """A device's place on the round.

    Attributes:
        worker: Owns the device.
        wake_ns: When it has something to do, in CLOCK_MONOTONIC ns.
        is_alone: Whether a thread looks after it alone.
    """

    __slots__ = ("is_alone", "wake_ns", "worker")

    def __init__(self, worker: DeviceWorker) -> None:
        self.worker = worker
        self.wake_ns = 0
        self.is_alone = False


class Crew:
    """Threads that do what devices have due.

    Args:
        clock: CLOCK_MONOTONIC.
        on_rest: Called by each thread before it waits: what the devices said can be passed on.
    """

    def __init__(self, clock: Clock, on_rest: Callable[[], None]) -> None:
        self._clock = clock
        self._on_rest = on_rest
        self._posts: dict[str, _Post] = {}
        self._lock = threading.Lock()
        self._bell: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._shift = 0
        self._visit_since_ns: int | None = None

    def add(self, worker: DeviceWorker) -> None:
        """Looks after one more device, from now on."""
        with self._lock:
            is_first = not self._posts
            self._posts = {**self._posts, worker.sensor.name: _Post(worker)}
        if is_first:
            self._begin_round()
        else:
            self._bell.put(None)

    def offer(self, device: str, command: Message) -> bool:
        """Hands a device a command; False where there is none of the name, or it has too many."""
        post = self._posts.get(device)
        if post is None or not post.worker.offer(command):
            return False
        post.wake_ns = 0
        self._bell.put(None)
        return True

    def relieve(self, patience_ns: int = PATIENCE_NS) -> None:
        """Has another thread take over the round where a visit lasts too long.

        Args:
            patience_ns: How long one may last, in ns.
        """
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            since_ns = self._visit_since_ns
            if since_ns is None or now_ns - since_ns <= patience_ns:
                return
            self._shift += 1
            self._visit_since_ns = None
        self._begin_round()

    def _begin_round(self) -> None:
        threading.Thread(target=self._run, args=(self._shift,), name="round", daemon=True).start()

    def _run(self, shift: int) -> None:
        while True:
            slow = self._round(shift)
            self._on_rest()
            if slow is not None:
                self._stay(slow)
                return
            now_ns = self._clock.monotonic_ns()
            wakes_ns = (post.wake_ns for post in self._posts.values() if not post.is_alone)
            wait_s = (min(wakes_ns, default=now_ns + NS_PER_S) - now_ns) / NS_PER_S
            if wait_s > 0:
                _wait(self._bell, wait_s)

    def _round(self, shift: int) -> _Post | None:
        """Visits all that are due; gives one that took so long that another thread took over."""
        for post in self._posts.values():
            now_ns = self._clock.monotonic_ns()
            if post.is_alone or post.wake_ns > now_ns:
                continue
            with self._lock:
                post.is_alone = True
                self._visit_since_ns = now_ns
            wake_ns = post.worker.work()
            with self._lock:
                if shift != self._shift:
                    return post
                self._visit_since_ns = None
                post.is_alone = False
            # A command that came meanwhile may have been seen or not.
            post.wake_ns = 0 if post.worker.has_commands else wake_ns
        return None

    def _stay(self, post: _Post) -> None:
        """Looks after one device alone until it was quick for a while."""
        quick = 0
        while quick < QUICK_VISITS:
            began_ns = self._clock.monotonic_ns()
            wake_ns = post.worker.work()
            is_quick = self._clock.monotonic_ns() - began_ns <= PATIENCE_NS
            quick = quick + 1 if is_quick else 0
            self._on_rest()
            post.worker.await_command(wake_ns)
        with self._lock:
            post.wake_ns = 0
            post.is_alone = False
        self._bell.put(None)


def _wait(bell: queue.SimpleQueue[Any], wait_s: float) -> None:
    try:
        bell.get(timeout=wait_s)
    except queue.Empty:
        return
