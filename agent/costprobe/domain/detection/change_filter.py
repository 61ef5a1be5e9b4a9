"""Filter of detected changes: suppresses continued ramps, recurring patterns and false alarms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from costprobe.core.clock_step import ClockStep
from costprobe.domain.detection.normal import NEVER_S, SeriesModel
from costprobe.domain.detection.profile import DAY_S, HOUR_S

FOLLOW_S = 3 * DAY_S
HOLD_S = 2.5 * DAY_S
WEEK_S = 7 * DAY_S
RETRACT_S = DAY_S
# Shortest time between two reports of a wandering series.
WANDER_REPORT_S = 30 * DAY_S
# Distance in standard deviations of its wander that is reported earlier.
WANDER_REACH = 5.0
# Smallest change reported before the daily pattern is known.
FIRST_DAY_REPORT = 0.14
# Smallest step in the first day that is reported at its end, in least effects.
LASTING_REPORT = 1.25
# Number of values from which a level of the first day is estimated, and the distance of two of them in
# standard errors that is a change.
EARLY_VALUES = 12
EARLY_ERRORS = 6.0
AGAIN_SHARE = 0.5
BY_CHANCE = 2.5
WEEKEND = (-0.08, -0.02)


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A detected change of level.

    Attributes:
        time_s: Time of detection.
        since_s: Start.
        level: Logarithm of the level after it.
        shift: Difference from the level before.
        is_sharp: True for a step, False for a ramp.
    """

    time_s: float
    since_s: float
    level: float
    shift: float
    is_sharp: bool


class ChangeFilter:
    """Decide whether a change is reported, from earlier changes that were reported or suppressed."""

    __slots__ = (
        "follow_sign",
        "follow_until_s",
        "held_level",
        "held_since_s",
        "reported_after",
        "reported_level",
        "reported_s",
    )

    def __init__(self) -> None:
        self.reported_s = NEVER_S
        self.reported_level = 0.0
        self.reported_after = 0.0
        self.follow_until_s = NEVER_S
        self.follow_sign = 0.0
        self.held_level = math.nan
        self.held_since_s = NEVER_S

    def is_new(self, change: LevelChange, normal: SeriesModel) -> bool:
        """Return whether to report a change; the caller adopts the new level in any case."""
        if normal.profile is None and abs(change.shift) < FIRST_DAY_REPORT:
            return False
        if self._is_wandering(change, normal):
            return False
        if self.is_retraction(change, normal) or self._has_reverted(change, normal):
            return False
        sign = math.copysign(1.0, change.shift)
        if self.continues_ramp(change):
            self.follow_until_s = change.time_s + FOLLOW_S
            return False
        if math.isnan(self.held_level) and _is_recurring(change, normal):
            self.held_level, self.held_since_s = normal.level, change.since_s
            return False
        self.follow_until_s, self.follow_sign = change.time_s + FOLLOW_S, sign
        self.reported_s, self.reported_level = change.time_s, normal.level
        self.reported_after = change.level
        return True

    def unreported_before(self, step: LevelChange, normal: SeriesModel) -> float | None:
        """Return the level before the first day's step; None if it is small or was reported.

        Args:
            step: The step, at the end of the first day.
            normal: The model of the series, at the level after it.
        """
        before, smallest = step.level - step.shift, LASTING_REPORT * normal.settings.least_effect
        if self.reported_s > NEVER_S:
            # Large steps were reported when they began, with a level that follows a daily pattern.
            before, error = self.reported_after, normal.long_run / math.sqrt(EARLY_VALUES)
            smallest = max(FIRST_DAY_REPORT, EARLY_ERRORS * error)
        if step.shift == 0 or abs(step.level - before) < smallest:
            return None
        self.reported_s, self.reported_level = step.time_s, before
        self.reported_after = step.level
        return before

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        self.reported_s = step.of_s(self.reported_s)
        self.follow_until_s = step.of_s(self.follow_until_s - FOLLOW_S) + FOLLOW_S
        self.held_since_s = step.of_s(self.held_since_s)

    def continues_ramp(self, change: LevelChange) -> bool:
        """Return whether a change continues a reported ramp."""
        is_same_way = math.copysign(1.0, change.shift) == self.follow_sign
        return is_same_way and not change.is_sharp and change.time_s < self.follow_until_s

    def overdue(self, time_s: float, normal: SeriesModel) -> LevelChange | None:
        """Return a change that was suppressed as recurring and has not reverted in time."""
        if math.isnan(self.held_level) or time_s - self.held_since_s < HOLD_S:
            return None
        before, self.held_level = self.held_level, math.nan
        shift = normal.level - before
        if abs(shift) < normal.settings.least_effect / 2:
            return None
        self.reported_s, self.reported_level, self.reported_after = time_s, before, normal.level
        return LevelChange(time_s, self.held_since_s, normal.level, shift, is_sharp=True)

    def _is_wandering(self, change: LevelChange, normal: SeriesModel) -> bool:
        """Return whether a change of a wandering series is close to the last report."""
        if change.is_sharp or normal.wander < normal.settings.least_effect / 8:
            return False
        is_late = change.time_s - self.reported_s > WANDER_REPORT_S
        return (
            not is_late and abs(change.level - self.reported_after) < WANDER_REACH * normal.wander
        )

    def is_retraction(self, change: LevelChange, normal: SeriesModel) -> bool:
        """Return whether a change reverts a small recent report, which was a false alarm."""
        if change.time_s - self.reported_s > RETRACT_S:
            return False
        small = max(1.5 * normal.settings.least_effect, 2.5 * normal.sigma_all)
        returns = abs(change.level - self.reported_level) < 0.5 * abs(change.shift)
        return abs(change.shift) < small and returns

    def _has_reverted(self, change: LevelChange, normal: SeriesModel) -> bool:
        """Return whether a change reverts one that was suppressed."""
        if math.isnan(self.held_level):
            return False
        close = 0.4 * abs(change.shift) + normal.settings.least_effect / 4
        if abs(change.level - self.held_level) >= close:
            return False
        self.held_level = math.nan
        return True


def _is_recurring(change: LevelChange, normal: SeriesModel) -> bool:
    """Return whether a shift also occurred a day or a week before, or may be a first weekend.

    A fall at the edge of a day counts as a weekend until a week is known.
    """
    by_chance = BY_CHANCE * math.sqrt(2) * normal.hourly_noise
    for lag_hours in (24, 168):
        earlier = normal.week.shift_before(change.since_s, lag_hours)
        if earlier is None or abs(earlier) < by_chance:
            continue
        if abs(earlier - change.shift) < AGAIN_SHARE * max(abs(change.shift), abs(earlier)):
            return True
    lasted_s = change.since_s - normal.started_s
    # Edges of days in UTC, or relative to the first value.
    edges_s = ((at_s + HOUR_S / 2) % DAY_S for at_s in (change.since_s, lasted_s))
    is_at_edge = any(edge_s < HOUR_S for edge_s in edges_s)
    return is_at_edge and lasted_s < WEEK_S - HOUR_S and WEEKEND[0] < change.shift < WEEKEND[1]
