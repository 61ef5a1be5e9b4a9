"""What a detector is told and what it tells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts as a change.

    Attributes:
        least_effect: The smallest lasting change worth a report, as a share of the level.
        warm_up: Values before anything is reported.
        run_length: Mean number of values between false alarms of one sum, in white noise.
        memory: Values over which the level is averaged.
        spike: The smallest jump of a single value that is an anomaly, as a share of the level.
    """

    least_effect: float = 0.02
    warm_up: int = 36
    run_length: float = 4e5
    memory: int = 2000
    spike: float = 0.06


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a series that is not chance.

    Attributes:
        kind: "drift" for a lasting change, "anomaly" for a single value.
        time_s: When it became certain: the time of the value that showed it.
        since_s: When it began.
        before: The level before, at the series' own pattern of that time.
        after: The level after, or the value itself for an anomaly.
        change: ln(after / before).
        level: ln of where the series stands now over where it stood at first: near 0 after a
            return.
    """

    kind: Literal["drift", "anomaly"]
    time_s: float
    since_s: float
    before: float
    after: float
    change: float
    level: float

    @property
    def change_pct(self) -> float:
        """The change in percent of what was before."""
        return math.expm1(self.change) * 100

    @property
    def level_pct(self) -> float:
        """Where the series stands against where it stood at first, in percent."""
        return math.expm1(self.level) * 100
