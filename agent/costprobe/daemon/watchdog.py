"""Liveness of the daemon's parts, which feeds systemd's watchdog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from costprobe.app.schedule import Schedule
from costprobe.daemon.sd_notify import SystemdNotifier

logger = logging.getLogger(__name__)

# If a job that runs every ten seconds has not ended for this long, in s, the thread pool or the store
# hangs. A disk that is slow for a minute is no reason for a restart.
JOBS_SILENT_S: Final = 120.0
# Rarer jobs may miss a run or two.
PERIODS_SILENT: Final = 3
# Time in s for a run that waits for a busy device, searches for a batch size or compiles a model;
# its own deadlines end it long before.
LONG_RUN_S: Final = 3600.0
LONG_RUNNING: Final = ("probe ",)


class Watchdog:
    """Feed systemd's watchdog while every part is alive, and log the parts that are not.

    systemd then restarts the daemon, which repairs a dead part. Nothing is lost: every measurement
    is in the store.

    Args:
        notifier: Sends notifications to systemd.
        parts: Whether each part is alive, by name.
    """

    def __init__(self, notifier: SystemdNotifier, parts: Callable[[], Mapping[str, bool]]) -> None:
        self._notifier = notifier
        self._parts = parts
        self._dead: tuple[str, ...] = ()

    def beat(self) -> None:
        """Check the parts; feed the watchdog, or log the dead ones."""
        dead = tuple(sorted(name for name, lives in self._parts().items() if not lives))
        if dead != self._dead:
            self._dead = dead
            if dead:
                logger.error("dead parts: %s; the watchdog is not fed", ", ".join(dead))
                self._notifier.status(f"dead parts: {', '.join(dead)}")
            else:
                logger.info("every part is alive again")
                self._notifier.status("measuring")
        if not dead:
            self._notifier.alive()


def job_lives(schedule: Schedule) -> dict[str, bool]:
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
