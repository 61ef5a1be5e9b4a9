"""What the sensor child has to say: from any thread to the one that writes, and from it out."""

from __future__ import annotations

import os
import queue
from typing import Any, Final

from agent.clock import Clock
from agent.model import NS_PER_S
from agent.telemetry.wire import Message, encode
from agent.waits import LEAST_WAIT_S

OUTBOX_MAX: Final = 4096


class Outlet:
    """A bounded queue of messages, and the pipe that they leave by.

    Args:
        clock: CLOCK_MONOTONIC.
        write_fd: File descriptor of the daemon's ear.

    Attributes:
        dropped: Messages for which there was no room.
    """

    def __init__(self, clock: Clock, write_fd: int) -> None:
        self.dropped = 0
        self._clock = clock
        self._write_fd = write_fd
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._bell: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._unsent: list[bytes] = []

    def emit(self, message: Message) -> None:
        """Takes a message from any thread; the oldest news is worth more than a blocked sensor."""
        if self._messages.qsize() >= OUTBOX_MAX:
            self.dropped += 1
        else:
            self._messages.put(message)

    def ring(self) -> None:
        """Wakes the thread that writes, where there is something for it."""
        if not self._messages.empty():
            self._bell.put(None)

    def next(self, until_ns: int) -> Message | None:
        """The next message of any thread, or None once it is that late (CLOCK_MONOTONIC ns)."""
        while True:
            try:
                return self._messages.get_nowait()
            except queue.Empty:
                wait_s = (until_ns - self._clock.monotonic_ns()) / NS_PER_S
            if wait_s <= 0:
                return None
            try:
                self._bell.get(timeout=max(wait_s, LEAST_WAIT_S))
            except queue.Empty:
                continue

    @property
    def has_unsent(self) -> bool:
        """Whether something was added that has not left."""
        return bool(self._unsent)

    def add(self, message: Message) -> None:
        """Has a message leave with the next `send`."""
        self._unsent.append(encode(message))

    def send(self) -> None:
        """Writes what was added, at once and together; ends the process where nobody reads it."""
        data = b"".join(self._unsent)
        self._unsent = []
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except OSError:
            os._exit(0)  # the daemon is gone
