"""One sensor child from its start to its end, as the daemon hears it."""

from __future__ import annotations

import selectors
import signal
import threading
from collections.abc import Callable
from typing import Final

from agent.clock import Clock
from agent.model import NS_PER_S
from agent.telemetry.process import ChildProcess
from agent.telemetry.wire import Message, SensorSettings, decode

BEAT_MARGIN_S: Final = 12.0


class Conversation:
    """Listens to a child until it ends or misses its deadline.

    The child must say hello within its start-up time, and then something at least each
    `deadline_s` and twelve seconds: it beats about every ten.

    Args:
        process: The child, to which the settings were sent.
        settings: Its deadlines.
        clock: CLOCK_MONOTONIC.
        on_message: Takes each message; raises an AttributeError, KeyError, TypeError or ValueError
            for one that is not as the wire says, which then counts as rubbish.
        wake_fd: Becomes readable when the child is to be told to stop.
        on_pause: Called when all that the child has said so far was taken.
    """

    def __init__(
        self,
        process: ChildProcess,
        settings: SensorSettings,
        clock: Clock,
        on_message: Callable[[Message], None],
        wake_fd: int,
        *,
        on_pause: Callable[[], None],
    ) -> None:
        self.process = process
        self.said_hello = threading.Event()
        self.rubbish_lines = 0
        self._settings = settings
        self._clock = clock
        self._on_message = on_message
        self._wake_fd = wake_fd
        self._on_pause = on_pause
        self._said_bye = False
        self._patience_s = settings.deadline_s + BEAT_MARGIN_S
        first_s = max(settings.startup_s, settings.deadline_s) + BEAT_MARGIN_S
        self._deadline_ns = clock.monotonic_ns() + int(first_s * NS_PER_S)

    def run(self) -> str:
        """Listens to the end.

        Returns:
            How it ended, as a clause; empty where the child took leave and so said why itself.
        """
        with selectors.DefaultSelector() as selector:
            for fd in (self.process.stdout_fd, self.process.stderr_fd, self._wake_fd):
                selector.register(fd, selectors.EVENT_READ)
            while True:
                wait_s = (self._deadline_ns - self._clock.monotonic_ns()) / NS_PER_S
                # What it said meanwhile counts, however late this thread came to read it: a wait
                # that went on while this process was stopped ends without a look.
                found = selector.select(max(0.0, wait_s)) or selector.select(0)
                ready = [key.fd for key, _ in found]
                if not ready and self._clock.monotonic_ns() >= self._deadline_ns:
                    return self._miss()
                if self._wake_fd in ready:
                    selector.unregister(self._wake_fd)
                    self.process.send({"cmd": "stop"})
                if self.process.stderr_fd in ready and not self.process.read_words():
                    selector.unregister(self.process.stderr_fd)
                if self.process.stdout_fd in ready:
                    lines = self.process.read_lines()
                    if lines is None:
                        return "" if self._said_bye else "ended"
                    for line in lines:
                        self._hear(line)
                    self._on_pause()

    def _miss(self) -> str:
        if self.said_hello.is_set():
            return f"said nothing for {self._patience_s:.0f} s and was killed"
        return "did not find the devices in time and was killed"

    def _hear(self, line: bytes) -> None:
        try:
            message = decode(line)
            if message["type"] == "hello":
                self.said_hello.set()
            self._on_message(message)
        except (AttributeError, KeyError, TypeError, ValueError):
            self.rubbish_lines += 1
            return
        if message["type"] == "bye":
            self._said_bye = True
        if self.said_hello.is_set():
            self._deadline_ns = self._clock.monotonic_ns() + int(self._patience_s * NS_PER_S)


def how_it_ended(status: int | None) -> str:
    """An exit status in words, as a clause."""
    if status is None:
        return "hangs in the driver and cannot be killed"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
