"""Settings and results of a detector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """Sensitivity of a detector.

    Attributes:
        least_effect: Smallest persistent shift that is reported, as a share of the level.
        warm_up: Number of values before the first report.
        run_length: Mean number of values between false alarms of one sum, in white noise.
        memory: Values over which the level is averaged.
        spike: Smallest deviation of a single value that is an anomaly, as a share of the level.
    """

    least_effect: float
    warm_up: int
    run_length: float = 4e5
    memory: int = 2000
    spike: float = 0.06


@dataclass(frozen=True, slots=True)
class Finding:
    """A detected drift or anomaly.

    Attributes:
        kind: "drift" for a persistent shift, "anomaly" for a single outlier.
        time_s: Time of the value that completed the detection.
        since_s: Estimated start of the change.
        before: Level before, including the daily pattern at that time.
        after: Level after, or the value itself for an anomaly.
        change: ln(after / before).
    """

    kind: Literal["drift", "anomaly"]
    time_s: float
    since_s: float
    before: float
    after: float
    change: float

    @property
    def change_pct(self) -> float:
        """Relative change in percent."""
        return math.expm1(self.change) * 100
