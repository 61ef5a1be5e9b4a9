"""How long each process kept a device busy in an interval, summed from the driver's shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.model import NS_PER_S

MAX_PROCESSES: Final = 256


class ProcessTime:
    """Seconds by process, interval by interval; unknown where one sample did not tell."""

    def __init__(self) -> None:
        self.seen_ns = 0
        self._busy_s: dict[int, float] = {}
        self._is_known = False

    def restart(self, t_ns: int) -> None:
        """Begins anew at CLOCK_MONOTONIC t_ns: what was before is nobody's."""
        self.seen_ns = t_ns
        self._busy_s = {}
        self._is_known = True

    def add(self, t_ns: int, util_pct: Mapping[int, float] | None) -> None:
        """Takes what the driver says of the time since the last call.

        Args:
            t_ns: CLOCK_MONOTONIC ns of now.
            util_pct: Share of the time by process, in percent; None where it is not known.
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
                # Whose time is not counted would be paid for by others.
                self._is_known = False

    def close(self) -> dict[int, float] | None:
        """Ends the interval and gives its seconds by process; None where they are not known."""
        found = self._busy_s if self._is_known else None
        self._busy_s, self._is_known = {}, True
        return found
