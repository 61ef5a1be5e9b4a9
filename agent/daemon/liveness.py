"""Whether every part of the daemon lives: what feeds systemd's watchdog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from agent.daemon.notify import Notifier
from agent.daemon.schedule import Schedule

logger = logging.getLogger(__name__)

# A job that runs every ten seconds and has not ended for so long, in s, says that the pool of the
# jobs, or the store that it writes to, hangs. A disk that is slow for a minute is no reason to die.
JOBS_SILENT_S: Final = 120.0
# Rarer jobs may miss a run or two.
PERIODS_SILENT: Final = 3
# What waits for a busy device, searches for a batch or compiles a model takes its time, in s; its
# own deadlines end it long before.
LONG_RUN_S: Final = 3600.0
LONG_RUNNING: Final = ("probe ",)


class Heart:
    """Feeds the watchdog while every part is alive, and names those that are not.

    A dead part that the daemon cannot revive is mended by its restart: nothing is lost by that, for
    all that was measured is in the store.

    Args:
        notifier: Tells systemd.
        parts: For each part whether it lives.
    """

    def __init__(self, notifier: Notifier, parts: Callable[[], Mapping[str, bool]]) -> None:
        self._notifier = notifier
        self._parts = parts
        self._dead: tuple[str, ...] = ()

    @property
    def dead(self) -> tuple[str, ...]:
        """The parts that did not live at the last beat."""
        return self._dead

    def beat(self) -> None:
        """Looks at the parts, and feeds the watchdog or says which of them is dead."""
        dead = tuple(sorted(name for name, lives in self._parts().items() if not lives))
        if dead != self._dead:
            self._dead = dead
            if dead:
                logger.error("dead parts: %s; the watchdog is not fed", ", ".join(dead))
                self._notifier.status(f"dead parts: {', '.join(dead)}")
            else:
                logger.info("every part lives again")
                self._notifier.status("measuring")
        if not dead:
            self._notifier.alive()


def job_lives(schedule: Schedule) -> dict[str, bool]:
    """For each periodic job whether it ended within its own bound, by its name."""
    return {
        f"job {name}": not schedule.is_silent(name, longest_silence_s(name, record.every_s))
        for name, record in schedule.records.items()
    }


def longest_silence_s(name: str, every_s: float) -> float:
    """Seconds after which a job that has not ended must be dead.

    Args:
        name: The job's name in the schedule.
        every_s: Its period in seconds.
    """
    own_s = LONG_RUN_S if name.startswith(LONG_RUNNING) else 0.0
    return max(JOBS_SILENT_S, PERIODS_SILENT * every_s) + own_s
