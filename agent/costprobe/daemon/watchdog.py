"""Liveness of the daemon's parts, reported to systemd's watchdog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from costprobe.app.schedule import Schedule
from costprobe.daemon.sd_notify import SystemdNotifier

logger = logging.getLogger(__name__)

# If no run of a ten-second job has ended for this time, in s, the thread pool or the store hangs.
# A disk that is slow for a minute does not require a restart.
JOBS_SILENT_S: Final = 120.0
# Less frequent jobs may miss one or two runs.
PERIODS_SILENT: Final = 3
# Time in s for a run that waits for a busy device, searches for a batch size or compiles a model;
# its own deadlines end it long before.
LONG_RUN_S: Final = 3600.0
LONG_RUNNING: Final = ("probe ",)


class Watchdog:
    """Notify systemd's watchdog while every part is alive, and log dead parts.

    Without a notification systemd restarts the daemon. Every measurement is in the store.

    Args:
        notifier: Sends notifications to systemd.
        parts: Whether each part is alive, by name.
    """

    def __init__(self, notifier: SystemdNotifier, parts: Callable[[], Mapping[str, bool]]) -> None:
        self._notifier = notifier
        self._parts = parts
        self._dead: tuple[str, ...] = ()

    def beat(self) -> None:
        """Check the parts; notify the watchdog, or log the dead ones."""
        dead = tuple(sorted(name for name, is_alive in self._parts().items() if not is_alive))
        if dead != self._dead:
            self._dead = dead
            if dead:
                logger.error("dead parts: %s; the watchdog is not notified", ", ".join(dead))
                self._notifier.status(f"dead parts: {', '.join(dead)}")
            else:
                logger.info("every part is alive again")
                self._notifier.status("measuring")
        if not dead:
            self._notifier.alive()


def job_liveness(schedule: Schedule) -> dict[str, bool]:
    """Return whether each periodic job ended a run within its own limit, by name."""
    return {
        f"job {name}": not schedule.is_silent(name, longest_silence_s(name, record.every_s))
        for name, record in schedule.records.items()
    }


def longest_silence_s(name: str, every_s: float) -> float:
    """Return the seconds after which a job without an ended run counts as dead.

    Args:
        name: The job's name in the schedule.
        every_s: Its period in seconds.
    """
    own_s = LONG_RUN_S if name.startswith(LONG_RUNNING) else 0.0
    return max(JOBS_SILENT_S, PERIODS_SILENT * every_s) + own_s
