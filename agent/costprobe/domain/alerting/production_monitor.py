"""The monitor of production: one detector for each service and model, and events with what changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from costprobe.core.clock_step import ClockStep
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.domain.alerting.drift_causes import RowHistory
from costprobe.domain.alerting.production_causes import demand_causes, efficiency_explanation
from costprobe.domain.alerting.production_events import production_event, reversal_event
from costprobe.domain.costing.comparison.production_change import (
    ProductionChange,
    production_change,
)
from costprobe.domain.detection.causes import UNKNOWN, Cause, Explanation
from costprobe.domain.detection.event_causes import service_annotations_of
from costprobe.domain.detection.production_detector import (
    Periods,
    ProductionDetector,
    ProductionFinding,
)
from costprobe.domain.detection.settings import DetectionConfig, ServingMetric

PRODUCTION_PREFIX = "production "
# A shift older than this is the new normal: the next one is measured from it.
SETTLED_NS = 86_400 * NS_PER_S
# Smallest shift of demand or mix, in log units.
LEAST_DEPARTURE = 0.1
# Divisions among models by which a model has a device time of its own.
OWN_TIME = ("time", "executions")
# Runs of a probe in each period that its control is the median of.
CONTROL_RUNS = 200
# An annotation may precede its effect by this time.
ANNOTATED_NS = 2 * 3600 * NS_PER_S
ANNOTATIONS_MAX = 20

# Service and served model; "" for the whole service.
ServiceKey = tuple[str, str]
Probes = Callable[[], Collection[tuple[str, str]]]


@dataclass(slots=True)
class _Shift:
    """The shift of one monitored series since its last settled level, and as reported, in log units.

    Shifts too small to be reported add up: a change that is found in two steps is one, which began with
    the first at `since_s`.
    """

    log_shift: float = 0.0
    reported: float = 0.0
    moved_ns: int = 0
    since_s: float = 0.0


@dataclass(slots=True)
class _Monitored:
    detector: ProductionDetector
    shifts: dict[ServingMetric, _Shift] = field(default_factory=dict)


class ProductionMonitor:
    """Monitor efficiency, demand and mix of every service, and explain what changed.

    Deterministic: the same rows in the same order give the same events.

    Args:
        settings: Sensitivity of the detectors.
        history: Returns rows of a device's probe, which is the control of a change.
    """

    def __init__(self, settings: DetectionConfig, history: RowHistory) -> None:
        self._settings = settings
        self._history = history
        self._services: dict[ServiceKey, _Monitored] = {}

    def update(self, points: Iterable[Point], probes: Probes) -> list[Event]:
        """Add the rows of one window; return the changes that they complete.

        Args:
            points: Rows of one time; others than of `cost` on the serving basis are skipped.
            probes: Returns device and name of each probe, as controls.
        """
        windows: dict[str, list[Point]] = {}
        for point in points:
            service = point.tags.get("service")
            if point.measurement == "cost" and point.tags.get("basis") == "serving" and service:
                windows.setdefault(service, []).append(point)
        events = []
        for service, rows in windows.items():
            rows.sort(key=lambda row: row.tags.get("served_model", ""))
            if "served_model" not in rows[0].tags:
                events += self._updated((service, ""), rows, probes)
            for row in rows:
                model = row.tags.get("served_model", "")
                if model and row.fields.get("model_split") in OWN_TIME:
                    events += self._updated((service, model), [row], probes)
        return events

    def services(self) -> set[str]:
        """Return the names of the services that have a state."""
        return {
            service
            for (service, model), monitored in self._services.items()
            if not model and monitored.detector.is_trained
        }

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        for monitored in self._services.values():
            monitored.detector.clock_was_stepped(step)
            for shift in monitored.shifts.values():
                shift.moved_ns = step.of_ns(shift.moved_ns)
                shift.since_s = step.of_s(shift.since_s)

    def rewind(self, now_ns: int) -> None:
        """Shift restored states that were saved while the wall clock was ahead of now_ns.

        Args:
            now_ns: Current UTC in ns.
        """
        ahead_ns = max(
            (monitored.detector.ended_ns - now_ns for monitored in self._services.values()),
            default=0,
        )
        if ahead_ns > 0:
            self.clock_was_stepped(ClockStep(-ahead_ns, now_ns))

    def documents(self) -> dict[str, Any]:
        """Return the state of each detector as JSON, by a name that starts with PRODUCTION_PREFIX."""
        return {
            f"{PRODUCTION_PREFIX}{service} {model}".rstrip(): {
                "service": [service, model],
                "window_s": self._settings.serving_window_s,
                "state": monitored.detector.document(),
                "shifts": {
                    metric: [shift.log_shift, shift.reported, shift.moved_ns, shift.since_s]
                    for metric, shift in monitored.shifts.items()
                },
            }
            for (service, model), monitored in list(self._services.items())
            if monitored.detector.is_trained
        }

    def restore(self, documents: Iterable[Any]) -> list[str]:
        """Restore states; those saved under other settings are discarded.

        Returns:
            Problems of damaged states; their detectors are trained again.
        """
        problems = []
        for document in documents:
            try:
                service, model = document["service"]
                if document["window_s"] != self._settings.serving_window_s:
                    continue
                monitored = self._monitored()
                monitored.detector.restore(document["state"])
                for metric, (log_shift, reported, moved_ns, *since_s) in document["shifts"].items():
                    monitored.shifts[metric] = _Shift(
                        float(log_shift), float(reported), int(moved_ns), *map(float, since_s)
                    )
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                problems.append(
                    f"the state of a service's detector is damaged ({error}); it is trained again"
                )
                continue
            self._services[service, model] = monitored
        return problems

    def _monitored(self) -> _Monitored:
        settings = self._settings
        return _Monitored(ProductionDetector(settings.serving_detector, settings.serving_window_s))

    def _updated(self, key: ServiceKey, rows: Sequence[Point], probes: Probes) -> list[Event]:
        monitored = self._services.get(key)
        if monitored is None:
            monitored = self._services[key] = self._monitored()
        return [
            event
            for finding in monitored.detector.update(rows)
            if (event := self._event(key, monitored, finding, probes)) is not None
        ]

    def _event(
        self,
        key: ServiceKey,
        monitored: _Monitored,
        finding: ProductionFinding,
        probes: Probes,
    ) -> Event | None:
        """Return the event of a shift or of its reversal; None for one that changes a known shift little."""
        time_ns = round(finding.time_s * NS_PER_S)
        shift = monitored.shifts.setdefault(finding.metric, _Shift())
        if time_ns - shift.moved_ns > SETTLED_NS:
            shift.log_shift = 0.0
            shift.reported = 0.0
        shift.moved_ns = time_ns
        before = shift.reported
        unreported = shift.log_shift - before
        if finding.change * unreported < 0 and abs(finding.change) > 2 * abs(unreported):
            # Not a part of this change, which would hide it: the level from which it began.
            shift.log_shift = before
        if shift.log_shift == before:
            shift.since_s = finding.since_s
        shift.log_shift += finding.change
        is_efficiency = finding.metric in monitored.detector.efforts
        least = self._settings.serving_effect if is_efficiency else LEAST_DEPARTURE
        if before and abs(shift.log_shift) < least / 2:
            shift.log_shift = shift.reported = 0.0
            return reversal_event(key, finding)
        if abs(shift.log_shift - before) < max(least, abs(before) / 3):
            return None
        finding = replace(finding, since_s=shift.since_s, change=shift.log_shift - before)
        shift.reported = shift.log_shift
        periods = monitored.detector.periods(finding.since_s, finding.time_s)
        change = None if periods is None else self._change(monitored.detector, periods, probes)
        if finding.metric == "demand" and change is not None and change.driver == "efficiency":
            # Fewer tokens of devices that are as busy as before: a drift of `serving_time`.
            return None
        explained = self._explanation(key[0], monitored.detector, finding, change)
        return production_event(key, finding, shift.log_shift, change, explained)

    def _explanation(
        self,
        service: str,
        detector: ProductionDetector,
        finding: ProductionFinding,
        change: ProductionChange | None,
    ) -> Explanation:
        """Return the causes of a change; of demand and mix without the conditions of the devices."""
        if finding.metric in detector.efforts:
            devices = detector.devices
            return efficiency_explanation(detector, finding, service, devices, self._history)
        parts = demand_causes(change) if change and finding.metric == "demand" else []
        name = "replicas" if parts and parts[0].name == "replicas" else UNKNOWN
        return Explanation(name, (*parts, *self._annotations(service, finding)))

    def _annotations(self, service: str, finding: ProductionFinding) -> Sequence[Cause]:
        """Return the annotations before a change; its start is known to a window."""
        since_ns = round(finding.since_s * NS_PER_S)
        window_ns = round(self._settings.serving_window_s * NS_PER_S)
        span_ns = since_ns - ANNOTATED_NS, since_ns + window_ns
        rows = self._history("event", "", "", span_ns, ANNOTATIONS_MAX)
        return service_annotations_of(rows, service, since_ns - window_ns)

    def _change(
        self,
        detector: ProductionDetector,
        periods: Periods,
        probes: Probes,
    ) -> ProductionChange | None:
        try:
            return production_change(
                periods.before,
                periods.after,
                control=self._control(periods, probes),
                log_load=detector.effect_of_load(periods),
            )
        except ValueError:
            return None

    def _control(self, periods: Periods, probes: Probes) -> float | None:
        """Return the probes' time per inference on the same devices, later over earlier."""
        logs = []
        for device, probe in sorted(probes()):
            if device not in periods.after.devices:
                continue
            times = [
                self._inference_s(device, probe, span)
                for span in (periods.before_s, periods.after_s)
            ]
            if times[0] and times[1]:
                logs.append(math.log(times[1] / times[0]))
        return math.exp(fmean(logs)) if logs else None

    def _inference_s(self, device: str, probe: str, span_s: tuple[float, float]) -> float | None:
        since_ns, until_ns = (round(instant_s * NS_PER_S) for instant_s in span_s)
        rows = self._history("probe", device, probe, (since_ns, until_ns + 1), CONTROL_RUNS)
        times = [
            1 / float(value)
            for row in rows
            if isinstance(value := row.fields.get("throughput_per_s"), int | float) and value > 0
        ]
        return median(times) if times else None


def is_production(document: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether a document is the state of a service's detectors."""
    return isinstance(document, dict) and "service" in document
