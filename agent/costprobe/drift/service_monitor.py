"""Monitors the efficiency, demand and mix of services, and explains what changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.drift.causes import UNKNOWN, Explanation, annotations_of
from costprobe.drift.events import production_event, service_reversal_event
from costprobe.drift.findings import SETTLED_NS, ServingMetric
from costprobe.drift.message import (
    FurtherShift,
    RowHistory,
    demand_causes,
    efficiency_explanation,
    saturation,
)
from costprobe.drift.normal import DAY_S
from costprobe.drift.production import Periods, ProductionDetector, ProductionFinding
from costprobe.drift.runs import events_of_service
from costprobe.drift.settings import DetectionConfig
from costprobe.unit_costs.change import ProductionChange, production_change, spend_change

# The load model of the energy learns a new device time for days: so long, a change below this share of that of
# the time is its effect. In the first day it is reported with it.
AFTER_EFFECT_NS, AFTER_EFFECT = 4 * SETTLED_NS, 0.6
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
    the first at `since_s`. The reported shift began at `began_s`.
    """

    log_shift: float = 0.0
    reported: float = 0.0
    moved_ns: int = 0
    since_s: float = 0.0
    began_s: float = 0.0

    def add(self, finding: ProductionFinding) -> float:
        """Add what was found; return the reported shift that had settled before, else 0."""
        time_ns, settled = round(finding.time_s * NS_PER_S), 0.0
        if time_ns - self.moved_ns > SETTLED_NS:
            settled, self.log_shift, self.reported = self.reported, 0.0, 0.0
        self.moved_ns = time_ns
        unreported = self.log_shift - self.reported
        if finding.change * unreported < 0 and abs(finding.change) > 2 * abs(unreported):
            # Not a part of this change, which would hide it: the level from which it began.
            self.log_shift = self.reported
        if self.log_shift == self.reported:
            self.since_s = finding.since_s
        self.log_shift += finding.change
        return settled


@dataclass(slots=True)
class MonitoredService:
    """The state of a service, or of a model of it: its detector, and the shifts that last."""

    detector: ProductionDetector
    shifts: dict[ServingMetric, _Shift] = field(default_factory=dict)

    @property
    def last_ns(self) -> int:
        """UTC in ns of the end of the last block."""
        return self.detector.ended_ns


class ProductionMonitor:
    """Monitor efficiency, demand and mix of every service, and explain what changed.

    Deterministic: the same rows in the same order give the same events.

    Args:
        settings: Sensitivity of the detectors.
        history: Returns rows of a device's probe, which is the control of a change.

    Attributes:
        services: The state of each service and model.
    """

    def __init__(self, settings: DetectionConfig, history: RowHistory) -> None:
        self._settings = settings
        self._history = history
        self.services: dict[ServiceKey, MonitoredService] = {}

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

    def _updated(self, key: ServiceKey, rows: Sequence[Point], probes: Probes) -> list[Event]:
        monitored, settings = self.services.get(key), self._settings
        if monitored is None:
            detector = ProductionDetector(settings.serving_shift, settings.serving_window_s)
            monitored = self.services[key] = MonitoredService(detector)
        return [
            event
            for finding in monitored.detector.update(rows)
            for event in self._events(key, monitored, finding, probes)
        ]

    def _events(
        self,
        key: ServiceKey,
        monitored: MonitoredService,
        finding: ProductionFinding,
        probes: Probes,
    ) -> list[Event]:
        """Return the events of a shift or of its reversal; none for one that changes a known shift little."""
        shift = monitored.shifts.setdefault(finding.metric, _Shift())
        if finding.metric == "serving_energy" and _is_after_effect(finding, monitored.shifts):
            return []
        settled = shift.add(finding)
        before, former_ns = shift.reported, round(shift.began_s * NS_PER_S)
        is_efficiency = finding.metric in monitored.detector.efforts
        least = self._settings.serving_effect if is_efficiency else LEAST_DEPARTURE
        events = []
        if before and shift.log_shift * before < least / 2 * abs(before):
            events.append(service_reversal_event(key, finding))
            if shift.log_shift * before > -least * abs(before):
                shift.log_shift = shift.reported = 0.0
                return events
            # The opposite is a change of its own.
            before, shift.since_s = 0.0, finding.since_s
        if abs(shift.log_shift - before) < max(least, abs(before) / 3):
            return events
        if not before:
            shift.began_s = shift.since_s
        is_back = settled * finding.change < 0 and abs(settled + finding.change) < least / 2
        event = self._report(
            key,
            monitored,
            replace(finding, since_s=shift.began_s, change=shift.log_shift),
            probes,
            further=FurtherShift(shift.log_shift - before, round(shift.since_s * NS_PER_S))
            if before
            else None,
            back_to_ns=former_ns if is_back else None,
        )
        shift.reported = shift.log_shift
        if is_back:
            shift.log_shift = shift.reported = 0.0
        # Two events of a series need two times.
        return [*events, replace(event, time_ns=event.time_ns + len(events))] if event else events

    def _report(
        self,
        key: ServiceKey,
        monitored: MonitoredService,
        finding: ProductionFinding,
        probes: Probes,
        *,
        further: FurtherShift | None,
        back_to_ns: int | None,
    ) -> Event | None:
        """Return the event of all of a change; None for one of demand that is one of efficiency."""
        detector = monitored.detector
        latest_s = finding.since_s if further is None else further.since_ns / NS_PER_S
        periods = detector.periods(latest_s, finding.time_s)
        change = None if periods is None else self._change(detector, periods, probes)
        if change is not None:
            spend_per_s = spend_since(detector, finding.since_s, finding.time_s)
            change = replace(change, spend_per_s=spend_per_s)
        if finding.metric == "demand" and change is not None and change.driver == "efficiency":
            # Fewer tokens of devices that are as busy as before: a drift of `serving_time`.
            return None
        explained = self._explanation(key[0], detector, finding, change)
        return production_event(
            key, finding, change, explained, further=further, back_to_ns=back_to_ns
        )

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
            found = efficiency_explanation(detector, finding, service, devices, self._history)
            saturated = saturation(finding, service, self._history)
            name = "saturation" if saturated and found.name == UNKNOWN else found.name
            return replace(found, name=name, causes=(*found.causes, *saturated))
        parts = demand_causes(change) if change and finding.metric == "demand" else []
        name = "replicas" if parts and parts[0].name == "replicas" else UNKNOWN
        # The start of the change is known to a window.
        since_ns = round(finding.since_s * NS_PER_S)
        window_ns = round(self._settings.serving_window_s * NS_PER_S)
        span_ns = since_ns - ANNOTATED_NS, since_ns + window_ns
        rows = self._history("event", "", "", span_ns, ANNOTATIONS_MAX)
        near = events_of_service(rows, service, detector.devices)
        return Explanation(name, (*parts, *annotations_of(near, since_ns - window_ns)))

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


def spend_since(detector: ProductionDetector, since_s: float, until_s: float) -> float | None:
    """Return the change of what is spent on a service since an instant, currency per s; None without one.

    The later half of the time is compared with that just before, and with the same hours of a day and of the
    week before: devices that were added earlier, or follow the hour, are no change. The smallest counts.

    Args:
        detector: The service's detector.
        since_s: UTC in s.
        until_s: UTC in s.
    """
    middle_s, days = (since_s + until_s) / 2, math.ceil((until_s - since_s) / DAY_S)
    lags_s = until_s - since_s, days * DAY_S, max(days, 7) * DAY_S
    after = detector.sums(middle_s, until_s)
    before = [detector.sums(middle_s - lag_s, until_s - lag_s) for lag_s in lags_s]
    changes = [spend_change(sums, after) or 0.0 for sums in before if sums and after]
    if not changes or min(changes) * max(changes) <= 0:
        return None
    return min(changes, key=abs)


def _is_after_effect(finding: ProductionFinding, shifts: Mapping[ServingMetric, _Shift]) -> bool:
    """Return whether a change of the energy is what one of the device time left, after its first day."""
    time, energy = (shifts.get(name, _Shift()) for name in ("serving_time", "serving_energy"))
    time_ns = round(finding.time_s * NS_PER_S)
    is_its_own = energy.reported and time_ns - energy.moved_ns <= SETTLED_NS
    is_small = abs(finding.change) < AFTER_EFFECT * abs(time.reported)
    is_recent = SETTLED_NS < time_ns - time.moved_ns < AFTER_EFFECT_NS
    return is_recent and is_small and not is_its_own
