"""What a detector is asked to find, and what it finds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from costprobe.core.records import NS_PER_S

# Start of the names of the stored states of detectors of probes.
STATE_PREFIX: Final = "detector "
# A shift older than this is the new normal: the next one is measured from it.
SETTLED_NS: Final = 86_400 * NS_PER_S


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


# Smallest change of a load curve: a smaller one of the median point is within the noise of windows of
# some 20 s.
CHANGE_MIN: Final = 0.05
# A new level of a load curve that lasted so long is the one that later curves are compared with.
ACCEPTED_AFTER_S: Final = 7 * 86_400.0
# The monitored series of a probe.
Metric = Literal["cost", "latency", "energy", "throughput"]
# The series of a probe's runs beside a neighbour: what they cost more.
CONTENTION: Final = "contention"
# The detector's smallest shift as a share of the smallest reported one: it takes noise to be at least a
# quarter of its smallest shift.
SERVING_DETECTED = 0.6
# The monitored series of a service.
ServingMetric = Literal["serving_time", "serving_energy", "serving_tpot", "demand", "mix"]
