"""Notifications to systemd: ready, reloading, stopping, and the watchdog (sd_notify(3))."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final

from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

logger = logging.getLogger(__name__)

STATUS_CHARS_MAX: Final = 200
# The watchdog is notified at least three times in its interval.
FEEDS_PER_INTERVAL: Final = 3


class SystemdNotifier:
    """Send notifications to systemd's socket; do nothing without one.

    Args:
        address: Path of the socket, or its abstract name after "@"; empty for none.
        watchdog_s: The watchdog's interval in seconds; None for no watchdog.
        clock: CLOCK_MONOTONIC.
    """

    def __init__(self, address: str, watchdog_s: float | None, clock: Clock) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._clock = clock
        self._fed_ns: int | None = None
        self._has_failed = False

    @classmethod
    def taken_from(cls, environ: MutableMapping[str, str], clock: Clock) -> SystemdNotifier:
        """Return the notifier for the environment's socket, and remove it from the environment.

        Children must not inherit the socket.

        Args:
            environ: The environment; systemd's variables are removed.
            clock: CLOCK_MONOTONIC.
        """
        address = environ.pop("NOTIFY_SOCKET", "")
        interval_us, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_ours = pid in ("", str(os.getpid()))
        watchdog_s = int(interval_us) / 1e6 if interval_us.isdigit() and is_ours else None
        return cls(address, watchdog_s or None, clock)

    def ready(self, status: str) -> None:
        """Report that the daemon is ready, after its start or a reload."""
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def reloading(self) -> None:
        """Report the start of a reload; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={self._clock.monotonic_ns() // 1000}")

    def status(self, status: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(f"STATUS={_line(status)}")

    def stopping(self) -> None:
        """Report that the daemon stops."""
        self._send("STOPPING=1")

    @property
    def feed_every_s(self) -> float | None:
        """Interval at which the watchdog must be fed, in s; None for no watchdog."""
        return None if self._watchdog_s is None else self._watchdog_s / FEEDS_PER_INTERVAL

    def alive(self) -> None:
        """Feed the watchdog, if it is due."""
        now_ns, every_s = self._clock.monotonic_ns(), self.feed_every_s
        if every_s is None:
            return
        if self._fed_ns is None or now_ns - self._fed_ns >= every_s * NS_PER_S:
            self._fed_ns = now_ns
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.connect(self._address)
                sender.send(message.encode())
        except OSError as error:
            if not self._has_failed:
                logger.warning("no notification to systemd: %s", error)
            self._has_failed = True


def _line(text: str) -> str:
    """Return the text as one line of bounded length."""
    return " ".join(text.split())[:STATUS_CHARS_MAX]
