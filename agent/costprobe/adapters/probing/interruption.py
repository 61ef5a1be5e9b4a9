"""Interruptions of a probe run: this process or the probe was stopped, or the host was suspended."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from costprobe.core.clock import Clock, suspended_ns
from costprobe.core.records import NS_PER_S

# A wait that ends later than it should by this, in s, followed a stop of this process.
LATE_S: Final = 2.0
# States of a stopped and of a traced process (proc(5)).
STOPPED: Final = frozenset("Tt")


class Interruptions:
    """Counts the time in which a run did not run.

    Args:
        clock: The host's clocks.
        proc: Root of the proc file system.
    """

    def __init__(self, clock: Clock, proc: Path = Path("/proc")) -> None:
        self._clock = clock
        self._proc = proc
        self._suspended_ns = suspended_ns(clock)
        self._stopped_s = 0.0

    def add_wait(self, lasted_s: float, longest_s: float, pids: Iterable[int]) -> float:
        """Add a wait for the probe; return how much of it was an interruption, in s.

        Args:
            lasted_s: How long it lasted.
            longest_s: How long it should have lasted at most.
            pids: The processes of the probe.
        """
        stopped_s = 0.0
        if lasted_s > longest_s + LATE_S:
            stopped_s = lasted_s - longest_s
        elif any(self._is_stopped(pid) for pid in pids):
            stopped_s = lasted_s
        self._stopped_s += stopped_s
        return stopped_s

    def total_s(self) -> float:
        """Return the length of all interruptions so far, in s."""
        asleep_s = (suspended_ns(self._clock) - self._suspended_ns) / NS_PER_S
        return self._stopped_s + (asleep_s if asleep_s > LATE_S else 0.0)

    def _is_stopped(self, pid: int) -> bool:
        with suppress(OSError, IndexError):
            stat = (self._proc / str(pid) / "stat").read_text()
            return stat.rpartition(")")[2].split()[0] in STOPPED
        return False
