"""The state of one monitored series of a probe: its detector, and the drift that lasts."""

from __future__ import annotations

from dataclasses import dataclass

from costprobe.core.clock_step import ClockStep
from costprobe.core.records import Event, Point
from costprobe.domain.detection.detector import Detector
from costprobe.domain.detection.findings import Finding

# A run beside other work does not enter the baseline, unless half of the last eight were such runs:
# then it is the normal state of the device, or a lasting neighbour, which is a drift.
RECENT_RUNS = 8
USUAL_RUNS = 4


@dataclass(slots=True)
class MonitoredSeries:
    """The state of one monitored series.

    Attributes:
        detector: Its detector.
        base: Logarithm of the level from which the current drift is measured; None without a drift.
        reported_ns: UTC in ns of the last reported drift.
        reported_shift: Its distance from `base`, in log units.
        since_ns: Start of the current level, which is that of the last drift, UTC in ns; 0 before
            the first.
        began_ns: Start of the current drift, which may have grown since, UTC in ns.
        pending: An anomaly that is a step if the next value confirms it.
        contended: Whether others used the device in each of the last RECENT_RUNS runs.
    """

    detector: Detector
    base: float | None = None
    reported_ns: int = 0
    reported_shift: float = 0.0
    since_ns: int = 0
    began_ns: int = 0
    pending: tuple[Finding, Event] | None = None
    contended: tuple[bool, ...] = ()

    def detector_of(self, point: Point) -> Detector:
        """Return the detector for a row; a copy for one that must not enter the baseline."""
        is_contended = point.fields.get("contended") is True
        self.contended = (*self.contended, is_contended)[-RECENT_RUNS:]
        if not is_contended or sum(self.contended) >= USUAL_RUNS:
            return self.detector
        return Detector.restore(self.detector.state())

    def is_free(self, point: Point) -> bool:
        """Return whether a run had the device for itself, though most of the recent ones had not.

        It is faster than the level, and no anomaly.
        """
        return point.fields.get("contended") is False and sum(self.contended) >= USUAL_RUNS

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        self.detector.clock_was_stepped(step)
        if self.since_ns:
            self.reported_ns = step.of_ns(self.reported_ns)
            self.since_ns = step.of_ns(self.since_ns)
            self.began_ns = step.of_ns(self.began_ns)
