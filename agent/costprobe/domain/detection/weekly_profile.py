"""The hour-of-week profile of a series that follows demand, and lasting departures from it.

Demand differs by the hour of the week, and no holiday or launch of a day is a lasting change. A
departure is therefore summed up over hours, beyond a tolerance and up to a limit for each hour (a CUSUM
of Huber's psi); a collapse is reported after some hours.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Any

from costprobe.core.clock_step import ClockStep
from costprobe.core.weekly_hours import HOURS_A_WEEK

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
# A value of a new week enters the profile with at least this weight.
LEAST_GAIN = 0.25
# An hour of one week moves the profile by at most this, in log units.
MOST_MOVE = 0.5
# Departures are judged after a week.
LEARNED_S = 7 * DAY_S
MOST_HOUR = 0.5
# The level follows growth with this time constant, as long as the departure is tolerated.
LEVEL_HOURS = 100.0
# A departure is as large as it was in the last hours.
RECENT_HOURS = 6.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a departure must exceed to be reported.

    Attributes:
        effect: Smallest departure, in log units.
        hours: Hours of the largest departure that counts until it is reported.
        collapse: Departure that is reported at once, in log units.
        collapse_hours: Hours that it must last.
    """

    effect: float
    hours: float
    collapse: float = math.inf
    collapse_hours: float = 3.0


@dataclass(frozen=True, slots=True)
class Departure:
    """A lasting departure from the profile.

    Attributes:
        since_s: Its start, UTC in s.
        change: Departure of the last hours, in log units.
        is_collapse: Whether it was reported for its size.
    """

    since_s: float
    change: float
    is_collapse: bool = False


class WeeklyProfile:
    """The profile of one series, hour by hour: no clock, the same values give the same departures.

    Args:
        tolerance: What is reported.
    """

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self._values = array("d", [math.nan]) * HOURS_A_WEEK
        self._counts = array("d", [0.0]) * HOURS_A_WEEK
        self._started_s = math.nan
        self._offset = 0.0
        # For departures upwards and downwards: sum, start, size of the last hours, hours of collapse.
        self._arms = [[0.0] * 4, [0.0] * 4]

    def update(self, time_s: float, x: float, hours: float) -> Departure | None:
        """Add a value; return the departure that it completes.

        Args:
            time_s: UTC in s of its end.
            x: Logarithm of the value.
            hours: Its length.
        """
        if math.isnan(self._started_s):
            self._started_s = time_s
        slot = int((time_s - hours * HOUR_S / 2) // HOUR_S) % HOURS_A_WEEK
        expected = self._expected(slot)
        found = None
        if expected is not None and time_s - self._started_s >= LEARNED_S:
            departure = x - self._offset - expected
            found = self._judge(time_s, departure, hours)
            if abs(departure) < self._tolerance.effect:
                self._offset += hours / LEVEL_HOURS * departure
        if found is not None:
            self._offset += found.change
            self._arms = [[0.0] * 4, [0.0] * 4]
        self._learn(slot, x - self._offset, hours)
        return found

    def document(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "values": [None if math.isnan(value) else round(value, 5) for value in self._values],
            "counts": list(self._counts),
            "started_s": None if math.isnan(self._started_s) else self._started_s,
            "offset": self._offset,
            "arms": self._arms,
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Replace the state by one that `document` returned.

        Raises:
            KeyError, TypeError, ValueError: It is damaged.
        """
        values = array("d", [math.nan if v is None else float(v) for v in document["values"]])
        counts = array("d", map(float, document["counts"]))
        arms = [[float(number) for number in arm] for arm in document["arms"]]
        if (len(values), len(counts), [len(arm) for arm in arms]) != (
            HOURS_A_WEEK,
            HOURS_A_WEEK,
            [4, 4],
        ):
            raise ValueError("a weekly profile of another size")
        started_s = document["started_s"]
        self._values, self._counts, self._arms = values, counts, arms
        self._started_s = math.nan if started_s is None else float(started_s)
        self._offset = float(document["offset"])

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        self._started_s = step.of_s(self._started_s)
        for arm in self._arms:
            arm[1] = step.of_s(arm[1])

    def _expected(self, slot: int) -> float | None:
        """Return the profile at an hour of the week, with its neighbours where it is unknown."""
        for reach in (0, 1, 2):
            near = [
                self._values[(slot + step) % HOURS_A_WEEK]
                for step in ((0,) if reach == 0 else (-reach, reach))
            ]
            known = [value for value in near if not math.isnan(value)]
            if known:
                return math.fsum(known) / len(known)
        return None

    def _learn(self, slot: int, x: float, hours: float) -> None:
        count = self._counts[slot]
        if count == 0:
            self._values[slot] = x
        else:
            gain = max(LEAST_GAIN * hours, hours / (count + hours))
            move = max(-MOST_MOVE, min(MOST_MOVE, x - self._values[slot]))
            self._values[slot] += min(1.0, gain) * move
        self._counts[slot] = min(count + hours, 1 / LEAST_GAIN)

    def _judge(self, time_s: float, departure: float, hours: float) -> Departure | None:
        tolerance = self._tolerance
        for sign, arm in zip((1.0, -1.0), self._arms, strict=True):
            size = sign * departure
            total, since_s, recent, collapsed = arm
            if total == 0:
                since_s, recent = time_s - hours * HOUR_S, size
            total += (min(size, MOST_HOUR) - tolerance.effect) * hours
            if total <= 0:
                arm[:] = [0.0] * 4
                continue
            recent += min(1.0, hours / RECENT_HOURS) * (size - recent)
            collapsed = collapsed + hours if size > tolerance.collapse else 0.0
            arm[:] = [total, since_s, recent, collapsed]
            is_collapse = collapsed >= tolerance.collapse_hours
            if is_collapse:
                since_s = time_s - collapsed * HOUR_S
            if is_collapse or total > tolerance.hours * (MOST_HOUR - tolerance.effect):
                return Departure(since_s, sign * recent, is_collapse)
        return None
