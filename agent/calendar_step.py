"""A step of the wall clock, and what is remembered of times before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.model import NS_PER_S

LEAP_NS: Final = 30 * 86_400 * NS_PER_S


@dataclass(frozen=True, slots=True)
class CalendarStep:
    """A step of the wall clock.

    A time that is still to come after it was of a calendar that was ahead: it moves with the step.
    What lies in the past stays where it is, with the rows of its time; a host may have been
    suspended. But no host is for longer than LEAP_NS: a calendar that leaps farther ahead is wrong
    now, or was before, and then all moves, so that what follows seems to come at once.

    Attributes:
        by_ns: How far it went in ns; negative for back.
        now_ns: UTC in ns of now, after it.
    """

    by_ns: int
    now_ns: int

    def moves(self, time_ns: float) -> bool:
        """Whether a remembered UTC ns moves with it."""
        return time_ns > self.now_ns if self.by_ns < 0 else self.by_ns > LEAP_NS

    def of_ns(self, time_ns: int) -> int:
        """Where a remembered UTC ns is now."""
        return time_ns + self.by_ns if self.moves(time_ns) else time_ns

    def of_s(self, time_s: float) -> float:
        """Where a remembered UTC s is now."""
        return time_s + self.by_ns / NS_PER_S if self.moves(time_s * NS_PER_S) else time_s
