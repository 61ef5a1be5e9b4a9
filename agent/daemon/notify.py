"""What the daemon tells systemd: that it is ready, reloads, stops, and still lives (sd_notify(3))."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final

from agent.clock import Clock
from agent.model import NS_PER_S

logger = logging.getLogger(__name__)

STATUS_CHARS_MAX: Final = 200
# The interval within which systemd wants to hear of us is used up by no more than a third.
FEEDS_PER_INTERVAL: Final = 3


class Notifier:
    """Sends to the socket that systemd named; to nobody where it named none.

    Args:
        address: Path of the socket, or its abstract name after "@"; empty for none.
        watchdog_s: Interval in seconds within which systemd wants to hear that we live; None for
            no watchdog.
        clock: CLOCK_MONOTONIC.
    """

    def __init__(self, address: str, watchdog_s: float | None, clock: Clock) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._clock = clock
        self._fed_ns: int | None = None
        self._has_failed = False

    @classmethod
    def taken_from(cls, environ: MutableMapping[str, str], clock: Clock) -> Notifier:
        """The notifier that the environment names; children are not to inherit it.

        Args:
            environ: The environment; what systemd put there for us is taken out.
            clock: CLOCK_MONOTONIC.
        """
        address = environ.pop("NOTIFY_SOCKET", "")
        interval_us, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_ours = pid in ("", str(os.getpid()))
        watchdog_s = int(interval_us) / 1e6 if interval_us.isdigit() and is_ours else None
        return cls(address, watchdog_s or None, clock)

    def ready(self, status: str) -> None:
        """Says that the daemon works, at its start or after a reload."""
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def reloading(self) -> None:
        """Says that the configuration is read again; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={self._clock.monotonic_ns() // 1000}")

    def status(self, status: str) -> None:
        """Sets the line that `systemctl status` shows."""
        self._send(f"STATUS={_line(status)}")

    def stopping(self) -> None:
        """Says that the daemon ends."""
        self._send("STOPPING=1")

    @property
    def feed_every_s(self) -> float | None:
        """How often the watchdog needs to be fed, in s; None where there is none."""
        return None if self._watchdog_s is None else self._watchdog_s / FEEDS_PER_INTERVAL

    def alive(self) -> None:
        """Feeds the watchdog, as often as it needs."""
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
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.connect(self._address)
                out.send(message.encode())
        except OSError as error:
            if not self._has_failed:
                logger.warning("systemd cannot be told: %s", error)
            self._has_failed = True


def _line(text: str) -> str:
    """One line of bounded length."""
    return " ".join(text.split())[:STATUS_CHARS_MAX]
