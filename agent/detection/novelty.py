"""Which changes are news: not the rest of a ramp, a pattern that comes back, or a false alarm."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.calendar_step import CalendarStep
from agent.detection.normal import NEVER_S, Normal
from agent.detection.profile import DAY_S, HOUR_S

FOLLOW_S = 3 * DAY_S
HOLD_S = 2.5 * DAY_S
WEEK_S = 7 * DAY_S
RETRACT_S = DAY_S
# A series that is known to wander is said to have moved once in so long.
WANDER_TOLD_S = 30 * DAY_S
# ... unless it has gone so many standard deviations of its wander from there.
WANDER_REACH = 5.0
# Before a day's pattern is known, a smaller change may be a part of it.
FIRST_DAY_REPORT = 0.14
AGAIN_SHARE = 0.5
BY_CHANCE = 2.5
WEEKEND = (-0.08, -0.02)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level that a rule found.

    Attributes:
        time_s: When it was found.
        since_s: When it began.
        level: Logarithm of the level after it.
        shift: How far that is from the level before.
        is_sharp: True if it came at once.
    """

    time_s: float
    since_s: float
    level: float
    shift: float
    is_sharp: bool


class Novelty:
    """Remembers what was told and what is held back, and judges a change by it."""

    __slots__ = (
        "follow_sign",
        "follow_until_s",
        "held_level",
        "held_since_s",
        "told_after",
        "told_level",
        "told_s",
    )

    def __init__(self) -> None:
        self.told_s = NEVER_S
        self.told_level = 0.0
        self.told_after = 0.0
        self.follow_until_s = NEVER_S
        self.follow_sign = 0.0
        self.held_level = math.nan
        self.held_since_s = NEVER_S

    def is_new(self, change: Change, normal: Normal) -> bool:
        """True if a change is to be told; the caller follows it in any case."""
        if normal.profile is None and abs(change.shift) < FIRST_DAY_REPORT:
            return False
        if self._is_wandering(change, normal):
            return False
        if self._is_retraction(change, normal) or self._has_gone(change, normal):
            return False
        sign = math.copysign(1.0, change.shift)
        if self.goes_on(change):
            self.follow_until_s = change.time_s + FOLLOW_S
            return False
        if math.isnan(self.held_level) and _is_familiar(change, normal):
            self.held_level, self.held_since_s = normal.level, change.since_s
            return False
        self.follow_until_s, self.follow_sign = change.time_s + FOLLOW_S, sign
        self.told_s, self.told_level = change.time_s, normal.level
        self.told_after = change.level
        return True

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        self.told_s = step.of_s(self.told_s)
        self.follow_until_s = step.of_s(self.follow_until_s - FOLLOW_S) + FOLLOW_S
        self.held_since_s = step.of_s(self.held_since_s)

    def goes_on(self, change: Change) -> bool:
        """True for more of the same ramp."""
        is_same_way = math.copysign(1.0, change.shift) == self.follow_sign
        return is_same_way and not change.is_sharp and change.time_s < self.follow_until_s

    def overdue(self, time_s: float, normal: Normal) -> Change | None:
        """What was held back because it looked familiar, and has not gone as it went before."""
        if math.isnan(self.held_level) or time_s - self.held_since_s < HOLD_S:
            return None
        before, self.held_level = self.held_level, math.nan
        shift = normal.level - before
        if abs(shift) < normal.settings.least_effect / 2:
            return None
        self.told_s, self.told_level, self.told_after = time_s, before, normal.level
        return Change(time_s, self.held_since_s, normal.level, shift, is_sharp=True)

    def _is_wandering(self, change: Change, normal: Normal) -> bool:
        """True for more of what was told lately of a series that wanders."""
        if change.is_sharp or normal.wander < normal.settings.least_effect / 8:
            return False
        is_late = change.time_s - self.told_s > WANDER_TOLD_S
        return not is_late and abs(change.level - self.told_after) < WANDER_REACH * normal.wander

    def _is_retraction(self, change: Change, normal: Normal) -> bool:
        """True for the way back from a small change that was told lately, and was chance."""
        if change.time_s - self.told_s > RETRACT_S:
            return False
        small = max(1.5 * normal.settings.least_effect, 2.5 * normal.sigma_all)
        returns = abs(change.level - self.told_level) < 0.5 * abs(change.shift)
        return abs(change.shift) < small and returns

    def _has_gone(self, change: Change, normal: Normal) -> bool:
        """True for the way back from a change that was held back."""
        if math.isnan(self.held_level):
            return False
        close = 0.4 * abs(change.shift) + normal.settings.least_effect / 4
        if abs(change.level - self.held_level) >= close:
            return False
        self.held_level = math.nan
        return True


def _is_familiar(change: Change, normal: Normal) -> bool:
    """True for a shift that came a day or a week ago too, and a first fall at a day's edge.

    The latter may be a weekend, before a week is known.
    """
    by_chance = BY_CHANCE * math.sqrt(2) * normal.hourly_noise
    for lag_hours in (24, 168):
        earlier = normal.week.shift_before(change.since_s, lag_hours)
        if earlier is None or abs(earlier) < by_chance:
            continue
        if abs(earlier - change.shift) < AGAIN_SHARE * max(abs(change.shift), abs(earlier)):
            return True
    lasted_s = change.since_s - normal.started_s
    # Of UTC, or of whoever began to measure at the beginning of a day of his own.
    edges_s = ((at_s + HOUR_S / 2) % DAY_S for at_s in (change.since_s, lasted_s))
    is_at_edge = any(edge_s < HOUR_S for edge_s in edges_s)
    return is_at_edge and lasted_s < WEEK_S - HOUR_S and WEEKEND[0] < change.shift < WEEKEND[1]
