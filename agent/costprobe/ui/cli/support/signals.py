"""The signals of a command that runs as a service."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costprobe.daemon.main import Service


def handle_signals(process: Service) -> None:
    """Stop on SIGINT or SIGTERM, end the process on a second SIGINT, reload on SIGHUP."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        # A second Ctrl-C ends the process at once, without waiting for any thread. Its children
        # end, too, and the store is durable against any kill.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        process.request_stop()

    def reload(number: int, frame: FrameType | None) -> None:
        del number, frame
        process.request_reload()

    signal.set_wakeup_fd(process.wake_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, reload)
