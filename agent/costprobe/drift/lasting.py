"""A shift of a series that lasts: from the level before it until it reverts, or settles as the new level.

It is reported when it is new or has grown. The same for the series of probes and of services: what a level
is, and when it shifted, is found by their detectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import Literal

from costprobe.core.records import NS_PER_S
from costprobe.drift.findings import SETTLED_NS

# A shift that has grown within a day by more than the error of the means of so many hours, and by this share
# of the least effect, has not settled. It is judged so long after its last report.
STILL_NS, STILL_HOURS = 20 * 3600 * NS_PER_S, 6
STILL_ERRORS, STILL_LEAST = 3.0, 0.125


@dataclass(slots=True, kw_only=True)
class LastingShift:
    """The shift of one series that lasts.

    Attributes:
        base: Logarithm of the level before it, from which it is measured; None before the first, and after
            a reversal.
        reported_ns: UTC in ns of its last report; of its detection before the first.
        reported_shift: Distance from `base` as reported, in log units; 0 while it is too small.
        since_ns: Start of the current level, which is that of the last shift, UTC in ns; 0 before
            the first.
        began_ns: Start of the shift, which may have grown since, UTC in ns.
        before_ns: Start of the level before it, UTC in ns.
    """

    base: float | None = None
    reported_ns: int = 0
    reported_shift: float = 0.0
    since_ns: int = 0
    began_ns: int = 0
    before_ns: int = 0

    def add(
        self, levels: tuple[float, float], since_ns: int, time_ns: int, close: float
    ) -> int | None:
        """Add a found shift: to the one that lasts, or as the first of a new one after the last has settled.

        Args:
            levels: Logarithms of the levels before and after it.
            since_ns: Its start, UTC in ns.
            time_ns: UTC in ns.
            close: A level is the one before a settled shift within this, in log units.

        Returns:
            Start of the settled shift before whose level the series is again; None for another shift.
        """
        before, after = levels
        level_ns, self.since_ns = self.since_ns, since_ns
        is_settled = time_ns - self.reported_ns > SETTLED_NS
        if self.base is not None and not is_settled:
            return None
        left = math.inf if self.base is None else after - self.base
        is_back = self.reported_shift != 0 and abs(left) < close
        former_ns = self.began_ns
        self.base, self.reported_shift = None if is_back else before, 0.0
        self.before_ns, self.began_ns, self.reported_ns = level_ns, since_ns, time_ns
        return former_ns if is_back else None

    def evaluate(
        self, level: float, since_ns: int, time_ns: int, least: float, further: float
    ) -> Literal["", "new", "reverted"]:
        """Return whether to report the shift, as new or larger, or as reverted.

        What is left of a reverted one belongs to the new level; the opposite is a shift of its own.

        Args:
            level: Logarithm of the present level.
            since_ns: Its start if the shift has reverted, UTC in ns.
            time_ns: UTC in ns.
            least: Smallest shift.
            further: Smallest distance from what was reported.
        """
        if self.base is None:
            return ""
        log_shift, reported = level - self.base, self.reported_shift
        reverted = max(least / 2, min(least, abs(reported) / 2))
        if not reported or log_shift * reported >= reverted * abs(reported):
            return "new" if abs(log_shift - reported) >= further else ""
        is_opposite = log_shift * reported < -least * abs(reported)
        self.base = self.base if is_opposite else None
        self.reported_shift = 0.0
        self.since_ns, self.began_ns, self.reported_ns = since_ns, since_ns, time_ns
        return "reverted"

    def is_evaluated_again(self, time_ns: int) -> bool:
        """Return whether to look for growth: before a day without a report, after which a level is normal."""
        is_due = STILL_NS < time_ns - self.reported_ns <= SETTLED_NS
        return bool(self.reported_shift) and is_due

    def has_grown(self, now: Sequence[float], before: Sequence[float], least: float) -> bool:
        """Return whether the values of some hours lie beyond earlier ones in the direction of the shift.

        Args:
            now: Logarithms of the values of the last STILL_HOURS.
            before: Those of as many hours, earlier at the same level.
            least: Smallest shift that is reported.
        """
        if min(len(now), len(before)) < STILL_HOURS:
            return False
        grown = (fmean(now) - fmean(before)) * math.copysign(1.0, self.reported_shift)
        # From their own scatter: a ramp looks like correlated noise to the model of the series.
        error = math.sqrt((pvariance(now) + pvariance(before)) / (STILL_HOURS - 1))
        return grown > max(STILL_LEAST * least, STILL_ERRORS * error)
