"""Busy time of each process in an interval, summed from the driver's shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from costprobe.core.records import NS_PER_S

MAX_PROCESSES: Final = 256


class ProcessTime:
    """Busy seconds by process and interval; unknown if one sample of the interval is unknown."""

    def __init__(self) -> None:
        self.seen_ns = 0
        self._busy_s: dict[int, float] = {}
        self._is_known = False

    def restart(self, t_ns: int) -> None:
        """Start again at CLOCK_MONOTONIC t_ns; earlier time counts for no process."""
        self.seen_ns = t_ns
        self._busy_s = {}
        self._is_known = True

    def add(self, t_ns: int, util_pct: Mapping[int, float] | None) -> None:
        """Add the shares of the time since the last call.

        Args:
            t_ns: CLOCK_MONOTONIC ns of now.
            util_pct: Share of the time by process, in percent; None if unknown.
        """
        step_s = (t_ns - self.seen_ns) / NS_PER_S
        self.seen_ns = t_ns
        if util_pct is None:
            self._is_known = False
            return
        for pid, pct in util_pct.items():
            if pid in self._busy_s or len(self._busy_s) < MAX_PROCESSES:
                self._busy_s[pid] = self._busy_s.get(pid, 0.0) + step_s * pct / 100
            else:
                # The cost of uncounted time would be allocated to other processes.
                self._is_known = False

    def close(self) -> dict[int, float] | None:
        """End the interval; return its seconds by process, None if unknown."""
        busy_s = self._busy_s if self._is_known else None
        self._busy_s, self._is_known = {}, True
        return busy_s
