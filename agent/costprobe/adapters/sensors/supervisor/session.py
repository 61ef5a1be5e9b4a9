"""Reading of one sensor child, from its start to its end."""

from __future__ import annotations

import selectors
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Final

from costprobe.adapters.sensors.protocol.messages import Message, SensorSettings, decode
from costprobe.adapters.sensors.supervisor.process import ChildProcess
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

# A child without a message for its deadline plus this margin, in s, is killed; it sends a heartbeat
# every 10 s.
HEARTBEAT_MARGIN_S: Final = 12.0
# A wait is at most this long, in s, so that one that ends later by LATE_S is noticed.
WAIT_MAX_S: Final = 5.0
LATE_S: Final = 2.0


class SensorSession:
    """Reads a child until it ends or misses its deadline.

    The child must write its handshake within its start-up time, and then a message at least each
    `deadline_s` and the margin.

    Args:
        process: The child, to which the settings were sent.
        settings: Its deadlines.
        clock: CLOCK_MONOTONIC.
        on_messages: Receives the messages that arrived together; returns the number of malformed ones.
        wake_fd: Becomes readable when the child is to be stopped.
        margin_s: Time beyond its deadline in which the child must write something, in s.

    Attributes:
        has_handshake: Set once the child wrote its handshake.
        malformed_lines: Number of lines that do not follow the protocol.
    """

    def __init__(
        self,
        process: ChildProcess,
        settings: SensorSettings,
        clock: Clock,
        on_messages: Callable[[Sequence[Message]], int],
        wake_fd: int,
        margin_s: float = HEARTBEAT_MARGIN_S,
    ) -> None:
        self.process = process
        self.has_handshake = threading.Event()
        self.malformed_lines = 0
        self._clock = clock
        self._on_messages = on_messages
        self._wake_fd = wake_fd
        self._has_exit_message = False
        self._patience_s = settings.deadline_s + margin_s
        first_s = max(settings.startup_s, settings.deadline_s) + margin_s
        self._deadline_ns = clock.monotonic_ns() + int(first_s * NS_PER_S)

    def run(self) -> str:
        """Read to the end.

        Returns:
            How the child ended, as a clause; empty if it wrote the reason itself.
        """
        with selectors.DefaultSelector() as selector:
            for fd in (self.process.stdout_fd, self.process.stderr_fd, self._wake_fd):
                selector.register(fd, selectors.EVENT_READ)
            while True:
                ready = self._wait(selector)
                if not ready and self._clock.monotonic_ns() >= self._deadline_ns:
                    return self._missed_deadline()
                if self._wake_fd in ready:
                    selector.unregister(self._wake_fd)
                    self.process.send({"cmd": "stop"})
                if self.process.stderr_fd in ready and not self.process.read_stderr():
                    selector.unregister(self.process.stderr_fd)
                if self.process.stdout_fd in ready:
                    lines = self.process.read_lines()
                    if lines is None:
                        return "" if self._has_exit_message else "ended"
                    self._take(lines)

    def _wait(self, selector: selectors.BaseSelector) -> list[int]:
        """Return the readable descriptors; none at the deadline, or after a while.

        A wait that ends late means that this process was stopped, and the child perhaps with it: its
        time begins again.
        """
        began_ns = self._clock.monotonic_ns()
        wait_s = min(WAIT_MAX_S, max(0.0, (self._deadline_ns - began_ns) / NS_PER_S))
        events = selector.select(wait_s)
        now_ns = self._clock.monotonic_ns()
        if now_ns - began_ns > (wait_s + LATE_S) * NS_PER_S:
            renewed_ns = now_ns + int(self._patience_s * NS_PER_S)
            self._deadline_ns = max(self._deadline_ns, renewed_ns)
        return [key.fd for key, _ in events or selector.select(0)]

    def _missed_deadline(self) -> str:
        if self.has_handshake.is_set():
            return f"sent no message for {self._patience_s:.0f} s and was killed"
        return "did not find the devices in time and was killed"

    def _take(self, lines: Sequence[bytes]) -> None:
        messages: list[Message] = []
        for line in lines:
            try:
                messages.append(decode(line))
            except ValueError:
                self.malformed_lines += 1
        types = {message.get("type") for message in messages}
        if "handshake" in types:
            self.has_handshake.set()
        self._has_exit_message |= "exit" in types
        malformed = self._on_messages(messages)
        self.malformed_lines += malformed
        if self.has_handshake.is_set() and len(messages) > malformed:
            self._deadline_ns = self._clock.monotonic_ns() + int(self._patience_s * NS_PER_S)


def describe_end(status: int | None) -> str:
    """Describe an exit status as a clause; None for a child that could not be killed."""
    if status is None:
        return "hangs in the driver and cannot be killed"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
