"""The drift monitor: one detector for each series of a probe, and events with the cause of a drift.

It passes the rows of services to the monitor of production (`production_monitor`).
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from costprobe.core.clock_step import ClockStep
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.domain.alerting.change_message import ChangeFacts
from costprobe.domain.alerting.drift_causes import Key, RowHistory, change_of
from costprobe.domain.alerting.drift_events import (
    anomaly_event,
    drift_event,
    further_shift_event,
    reversal_event,
)
from costprobe.domain.alerting.monitored_series import MonitoredSeries
from costprobe.domain.alerting.production_monitor import (
    PRODUCTION_PREFIX,
    ProductionMonitor,
    is_production,
)
from costprobe.domain.detection.detector import Detector
from costprobe.domain.detection.findings import Finding
from costprobe.domain.detection.settings import DetectionConfig, Metric

STATE_PREFIX = "detector "
STATE_PREFIXES = (STATE_PREFIX, PRODUCTION_PREFIX)
# A drift older than this is the new normal: the next one is measured from it.
SETTLED_NS = 86_400 * NS_PER_S
# A smaller drift of the energy alone, without a cause, is not reported, in least effects: power sensors
# drift by themselves, with the temperature and between calibrations.
ENERGY_ALONE = 1.5


class DriftMonitor:
    """Monitor cost, latency, energy and throughput of every probe, and explain drifts.

    Deterministic: the same rows in the same order give the same events.

    Args:
        settings: Sensitivity of the detectors.
        history: Returns rows of a device's probe; called only to explain a drift.
    """

    def __init__(self, settings: DetectionConfig, history: RowHistory) -> None:
        self._settings = settings.detector
        self._is_enabled = settings.enabled
        self._history = history
        self._series: dict[Key, MonitoredSeries] = {}
        self._production = ProductionMonitor(settings, history)

    def update(self, points: Iterable[Point]) -> list[Event]:
        """Add the rows of one probe run or window; return the drifts and anomalies that they establish."""
        if not self._is_enabled:
            return []
        points = list(points)
        events = self._production.update(points, self.probes)
        values = [
            (point, (device, probe, metric), value)
            for point in points
            if (device := point.tags.get("device")) and (probe := point.tags.get("probe"))
            for metric, value in _values(point)
        ]
        # A drift of the energy is judged by those of the other series.
        for point, key, value in sorted(values, key=lambda found: found[1][-1] == "energy"):
            events += self._update(point, key, value)
        return events

    def probes(self) -> set[tuple[str, str]]:
        """Return device and name of every monitored probe."""
        return {(device, probe) for device, probe, _ in self._series}

    def services(self) -> set[str]:
        """Return the names of the services whose detectors are trained."""
        return self._production.services()

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        self._production.clock_was_stepped(step)
        for series in self._series.values():
            series.clock_was_stepped(step)

    def rewind(self, now_ns: int) -> None:
        """Shift restored states that were saved while the wall clock was ahead of now_ns.

        Args:
            now_ns: Current UTC in ns.
        """
        self._production.rewind(now_ns)
        for series in self._series.values():
            ahead_s = series.detector.last_s - now_ns / NS_PER_S
            if ahead_s > 0:
                series.clock_was_stepped(ClockStep(-round(ahead_s * NS_PER_S), now_ns))

    def documents(self) -> dict[str, Any]:
        """Return the state of each detector as JSON, by a name that starts with one of STATE_PREFIXES."""
        return self._production.documents() | {
            f"{STATE_PREFIX}{device} {probe} {metric}": {
                "key": [device, probe, metric],
                "state": base64.b64encode(series.detector.state()).decode(),
                "base": series.base,
                "reported_ns": series.reported_ns,
                "reported_shift": series.reported_shift,
                "since_ns": series.since_ns,
                "began_ns": series.began_ns,
                "contended": list(series.contended),
            }
            for (device, probe, metric), series in list(self._series.items())
        }

    def restore(self, documents: Iterable[Any]) -> list[str]:
        """Restore states; those saved under other settings are discarded.

        Returns:
            Problems of damaged states; their series start from an empty detector.
        """
        documents = list(documents)
        problems = self._production.restore(filter(is_production, documents))
        for document in documents:
            if is_production(document):
                continue
            try:
                device, probe, metric = document["key"]
                detector = Detector.restore(base64.b64decode(document["state"], validate=True))
                series = MonitoredSeries(
                    detector,
                    document["base"],
                    document["reported_ns"],
                    document["reported_shift"],
                    document["since_ns"],
                    document["began_ns"],
                    contended=tuple(map(bool, document.get("contended", ()))),
                )
            except (KeyError, TypeError, ValueError, binascii.Error) as error:
                problems.append(
                    f"the state of a detector is damaged ({error}); it restarts its warm-up"
                )
                continue
            if detector.settings == self._settings:
                self._series[device, probe, metric] = series
        return problems

    def _update(self, point: Point, key: Key, value: float) -> list[Event]:
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = MonitoredSeries(Detector(self._settings))
        events = []
        if series.pending is not None:
            finding, event = series.pending
            series.pending = None
            if not _confirms(finding, value):
                events.append(event)
        drifts = []
        detector = series.detector_of(point)
        for finding in detector.update(point.time_ns / NS_PER_S, value):
            if finding.kind == "anomaly":
                if not series.is_free(point):
                    series.pending = finding, anomaly_event(finding, point, key)
            elif detector is series.detector:
                drifts += self._drift_events(finding, series, point, key)
        events += drifts
        if not drifts and series.base is not None:
            events += self._further_shift(series, series.base, point, key)
        return events

    def _further_shift(
        self, series: MonitoredSeries, base: float, point: Point, key: Key
    ) -> list[Event]:
        """Return an event if an active drift reverts or grows without a detection of its own."""
        log_shift = series.detector.level - base
        smallest = self._settings.least_effect
        if abs(log_shift) < smallest / 2:
            series.base, series.since_ns = None, point.time_ns
            return [reversal_event(point.time_ns, key)]
        if abs(log_shift) < abs(series.reported_shift) + max(
            smallest, abs(series.reported_shift) / 3
        ):
            return []
        series.reported_shift, series.reported_ns = log_shift, point.time_ns
        series.since_ns = point.time_ns
        levels = math.exp(base), math.exp(series.detector.level)
        finding = Finding(
            "drift", point.time_ns / NS_PER_S, series.began_ns / NS_PER_S, *levels, log_shift
        )
        levels_ns = (series.began_ns - SETTLED_NS, series.began_ns)
        change = change_of(finding, key, levels_ns, point.time_ns, self._history)
        return [further_shift_event(point.time_ns, log_shift, key, self._judged(change, key))]

    def _drift_events(
        self, finding: Finding, series: MonitoredSeries, point: Point, key: Key
    ) -> list[Event]:
        """Return the event of a drift or of its reversal; none for a small one of energy alone."""
        if series.base is None or point.time_ns - series.reported_ns > SETTLED_NS:
            series.base = math.log(finding.before)
            series.began_ns = round(finding.since_s * NS_PER_S)
        log_shift = math.log(finding.after) - series.base
        series.reported_shift, series.reported_ns = log_shift, point.time_ns
        level_since_ns = series.since_ns
        series.since_ns = since_ns = round(finding.since_s * NS_PER_S)
        if abs(log_shift) < self._settings.least_effect / 2:
            series.base = None
            return [reversal_event(point.time_ns, key)]
        levels_ns = (level_since_ns, since_ns)
        change = change_of(finding, key, levels_ns, point.time_ns, self._history)
        if change.explanation.name == "unknown" and self._is_energy_alone(log_shift, key):
            series.base = None
            return []
        change = self._judged(change, key)
        return [drift_event(finding, point, key, log_shift, since_ns, change)]

    def _judged(self, change: ChangeFacts, key: Key) -> ChangeFacts:
        """Return a change of the energy as no deterioration if the inferences cost less: a higher clock."""
        device, probe, metric = key
        cost = self._series.get((device, probe, "cost")) if metric == "energy" else None
        is_cheaper = cost is not None and cost.base is not None and cost.detector.level < cost.base
        return replace(change, is_worse=False) if is_cheaper else change

    def _is_energy_alone(self, log_shift: float, key: Key) -> bool:
        """Return whether a small shift of the energy has no drift of another series beside it."""
        device, probe, metric = key
        if metric != "energy" or abs(log_shift) >= ENERGY_ALONE * self._settings.least_effect:
            return False
        others: tuple[Metric, ...] = ("cost", "latency", "throughput")
        found = (self._series.get((device, probe, other)) for other in others)
        return all(series is None or series.base is None for series in found)


def _confirms(anomaly: Finding, value: float) -> bool:
    """Return whether the value after an anomaly deviates as far in the same direction."""
    if value <= 0:
        return False
    log_shift = math.log(value / anomaly.before)
    return 0.5 < log_shift / anomaly.change < 2  # noqa: PLR2004 - half as far, twice as far


def _values(point: Point) -> list[tuple[Metric, float]]:
    """Return the monitored values of a row."""
    names: Mapping[str, Metric] = {}
    if point.measurement == "probe":
        names = {"latency_p50_ms": "latency", "throughput_per_s": "throughput"}
        if point.fields.get("energy_method") != "last_known":
            names = {**names, "energy_per_inference_j": "energy"}
    elif point.measurement == "cost":
        names = {"cost_reference": "cost"}
    return [
        (metric, float(value))
        for field, metric in names.items()
        if isinstance(value := point.fields.get(field), int | float)
    ]
