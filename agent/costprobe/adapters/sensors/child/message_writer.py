"""The sensor child's output: a queue that any thread fills, and the pipe that one thread writes."""

from __future__ import annotations

import os
import queue
import time
from typing import Any, Final

from costprobe.adapters.sensors.protocol.messages import Message, encode

QUEUE_MAX: Final = 4096
# Devices are sampled at the same instants: messages within this time are sent in one write, so that
# the daemon wakes once and commits their rows in one transaction.
GATHER_S: Final = 0.05


class MessageWriter:
    """A bounded queue of messages, and the pipe to the daemon.

    Args:
        write_fd: File descriptor of the pipe.

    Attributes:
        dropped: Messages that were dropped because the queue was full.
    """

    def __init__(self, write_fd: int) -> None:
        self.dropped = 0
        self._write_fd = write_fd
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def put(self, message: Message) -> None:
        """Queue a message from any thread; drop it if the queue is full, never block."""
        if self._messages.qsize() >= QUEUE_MAX:
            self.dropped += 1
        else:
            self._messages.put(message)

    def gather(self, timeout_s: float) -> list[Message]:
        """Wait for a message, and return it with those that follow within GATHER_S; none at the timeout."""
        try:
            gathered = [self._messages.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        time.sleep(GATHER_S)
        try:
            while True:
                gathered.append(self._messages.get_nowait())
        except queue.Empty:
            return gathered

    def write(self, *messages: dict[str, Any] | Message) -> None:
        """Write messages at once; end the process if the daemon is gone."""
        data = b"".join(encode(message) for message in messages)
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except OSError:
            os._exit(0)
