"""Who looks after the devices: one thread for all of them, and more only where a call is slow.

A driver call that hangs must not stop the other devices, and a thread for each device costs a wake
for each of them every second. So one thread goes round all that are due. When a visit lasts too
long another thread takes over the round, and the first stays with its device until it is quick.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from agent.clock import Clock
from agent.model import NS_PER_S
from agent.telemetry.wire import Message
from agent.telemetry.worker import DeviceWorker
from agent.waits import LEAST_WAIT_S

# Reading a GPU takes some milliseconds; one that takes so long would make the others late.
PATIENCE_NS: Final = NS_PER_S // 4
# After so many quick visits a device that was slow is looked after on the round again.
QUICK_VISITS: Final = 30


class _Post:
    """A device's place on the round.

    Attributes:
        worker: Owns the device.
        wake_ns: When it has something to do, in CLOCK_MONOTONIC ns.
    """

    __slots__ = ("wake_ns", "worker")

    def __init__(self, worker: DeviceWorker) -> None:
        self.worker = worker
        self.wake_ns = 0


class _Round:
    """One thread's going round.

    Attributes:
        visit_since_ns: Since when it is with a device, in CLOCK_MONOTONIC ns.
    """

    __slots__ = ("visit_since_ns",)

    def __init__(self) -> None:
        self.visit_since_ns: int | None = None


class Crew:
    """Threads that do what devices have due.

    Who visits a device has taken its post from those that are free, which only one can do. A round
    that was taken over notices after its visit, or after one more: it keeps that device's post.

    Args:
        clock: CLOCK_MONOTONIC.
        on_rest: Called by each thread before it waits: what the devices said can be passed on.
        on_round: Called before each round: what looks after hangs can be put off.
        on_thread: Called at the beginning of each thread.
    """

    def __init__(
        self,
        clock: Clock,
        on_rest: Callable[[], None],
        on_round: Callable[[], None],
        on_thread: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._on_rest = on_rest
        self._on_round = on_round
        self._on_thread = on_thread
        self._workers: dict[str, DeviceWorker] = {}
        self._free: deque[_Post] = deque()
        self._bell: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._round = _Round()
        # Those that were taken over, until their threads have done with their devices.
        self._relieved: set[_Round] = set()

    @property
    def rests(self) -> bool:
        """Whether no thread is with a device now, or stays with one."""
        return self._round.visit_since_ns is None and not self._relieved

    def add(self, worker: DeviceWorker) -> None:
        """Looks after one more device, from now on."""
        is_first = not self._workers
        self._workers[worker.sensor.name] = worker
        self._free.append(_Post(worker))
        if is_first:
            self._begin(self._round)
        else:
            self._bell.put(None)

    def offer(self, device: str, command: Message) -> bool:
        """Hands a device a command; False where there is none of the name, or it has too many."""
        worker = self._workers.get(device)
        if worker is None or not worker.offer(command):
            return False
        self._bell.put(None)
        return True

    def relieve(self, patience_ns: int = PATIENCE_NS) -> None:
        """Has another thread take over the round where a visit lasts too long.

        Args:
            patience_ns: How long one may last, in ns.
        """
        since_ns = self._round.visit_since_ns
        if since_ns is not None and self._clock.monotonic_ns() - since_ns > patience_ns:
            self._relieved.add(self._round)
            self._round = _Round()
            self._begin(self._round)

    def rouse(self) -> None:
        """Has the round look at once what is due."""
        self._bell.put(None)

    def _begin(self, mine: _Round) -> None:
        threading.Thread(target=self._run, args=(mine,), name="round", daemon=True).start()

    def _run(self, mine: _Round) -> None:
        self._on_thread()
        while True:
            self._on_round()
            slow, wake_ns = self._visit_all(mine)
            self._on_rest()
            if slow is not None:
                self._stay(slow)
                self._relieved.discard(mine)
                return
            wait_s = (wake_ns - self._clock.monotonic_ns()) / NS_PER_S
            if wait_s > 0:
                _wait(self._bell, wait_s)

    def _visit_all(self, mine: _Round) -> tuple[_Post | None, int]:
        """Visits all that are due, and says when the next one is, in CLOCK_MONOTONIC ns.

        Returns:
            With it the post of one that took so long that another thread took over.
        """
        free, monotonic_ns = self._free, self._clock.monotonic_ns
        next_ns = monotonic_ns() + NS_PER_S
        for _ in range(len(free)):
            try:
                post = free.popleft()
            except IndexError:  # one that goes round for the last time has it
                break
            now_ns = monotonic_ns()
            if post.wake_ns <= now_ns or post.worker.has_commands:
                mine.visit_since_ns = now_ns
                post.wake_ns = post.worker.work()
                mine.visit_since_ns = None
                if mine is not self._round:
                    return post, now_ns
            free.append(post)
            next_ns = min(next_ns, post.wake_ns)
        return None, next_ns

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
        post.wake_ns = 0
        self._free.append(post)
        self._bell.put(None)


def _wait(bell: queue.SimpleQueue[Any], wait_s: float) -> None:
    try:
        bell.get(timeout=max(wait_s, LEAST_WAIT_S))
    except queue.Empty:
        return
