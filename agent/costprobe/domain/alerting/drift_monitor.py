"""The drift monitor: one detector for each series of a probe, and events with the cause of a drift."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from costprobe.core.clock_step import ClockStep
from costprobe.core.records import BOARD, NS_PER_S, Event, FieldValue, Point, Severity
from costprobe.domain.costing.comparison.change import CostChange, split_change
from costprobe.domain.detection.causes import THROTTLED_PCT, explain
from costprobe.domain.detection.detector import Detector
from costprobe.domain.detection.findings import DetectorSettings, Finding
from costprobe.domain.detection.runs import (
    BEFORE_RUNS,
    DetectionRun,
    SoftwareChange,
    conditions,
    factors,
    run_of,
    software_change_of,
)
from costprobe.domain.detection.settings import DetectionConfig, Metric

DAY_NS = 86_400 * NS_PER_S
# Longest history before a shift that is compared with it.
BEFORE_NS = 14 * DAY_NS
MIN_RUNS_BEFORE = 3
STATE_PREFIX = "detector "
# A drift older than this is the new normal: the next one is measured from it.
SETTLED_NS = DAY_NS

WORDS: Mapping[Metric, str] = {
    "cost": "cost per inference",
    "latency": "latency",
    "energy": "energy per inference",
    "throughput": "throughput",
}

Key = tuple[str, str, Metric]
RowHistory = Callable[[str, str, int, int], Sequence[Point]]


@dataclass(slots=True)
class MonitoredSeries:
    """The state of one monitored series.

    Attributes:
        detector: Its detector.
        base: Level of the detector from which the current drift is measured; None without a drift.
        reported_ns: UTC in ns of the last reported drift.
        reported_shift: Its distance from `base`, in log units.
        since_ns: Start of the current level, which is that of the last drift, UTC in ns; 0 before
            the first.
        pending: An anomaly that is a step if the next value confirms it.
    """

    detector: Detector
    base: float | None = None
    reported_ns: int = 0
    reported_shift: float = 0.0
    since_ns: int = 0
    pending: tuple[Finding, Event] | None = None

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        self.detector.clock_was_stepped(step)
        if self.since_ns:
            self.reported_ns, self.since_ns = (
                step.of_ns(self.reported_ns),
                step.of_ns(self.since_ns),
            )


class DriftMonitor:
    """Monitor cost, latency, energy and throughput of every probe, and explain drifts.

    Deterministic: the same rows in the same order give the same events.

    Args:
        settings: Sensitivity of the detectors.
        history: Returns the rows of `probe`, `cost` and `event` of a device's probe between two UTC
            ns, in any order; called only to explain a drift.
    """

    def __init__(self, settings: DetectionConfig, history: RowHistory) -> None:
        self._settings = DetectorSettings(settings.least_effect, settings.warm_up)
        self._is_enabled = settings.enabled
        self._history = history
        self._series: dict[Key, MonitoredSeries] = {}

    def update(self, points: Iterable[Point]) -> list[Event]:
        """Add the rows of one probe run; return the drifts and anomalies that they establish."""
        if not self._is_enabled:
            return []
        events = []
        for point in points:
            device, probe = point.tags.get("device"), point.tags.get("probe")
            if device and probe:
                for metric, value in _values(point):
                    events += self._update(point, (device, probe, metric), value)
        return events

    def probes(self) -> set[tuple[str, str]]:
        """Return device and name of every monitored probe."""
        return {(device, probe) for device, probe, _ in self._series}

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        for series in self._series.values():
            series.clock_was_stepped(step)

    def rewind(self, now_ns: int) -> None:
        """Shift restored states that were saved while the wall clock was ahead of now_ns.

        Args:
            now_ns: Current UTC in ns.
        """
        for series in self._series.values():
            ahead_s = series.detector.last_s - now_ns / NS_PER_S
            if ahead_s > 0:
                series.clock_was_stepped(ClockStep(-round(ahead_s * NS_PER_S), now_ns))

    def documents(self) -> dict[str, Any]:
        """Return the state of each detector as JSON, by a name that starts with STATE_PREFIX."""
        return {
            f"{STATE_PREFIX}{device} {probe} {metric}": {
                "key": [device, probe, metric],
                "state": base64.b64encode(series.detector.state()).decode(),
                "base": series.base,
                "reported_ns": series.reported_ns,
                "reported_shift": series.reported_shift,
                "since_ns": series.since_ns,
            }
            for (device, probe, metric), series in list(self._series.items())
        }

    def restore(self, documents: Iterable[Any]) -> list[str]:
        """Restore states; those saved under other settings are discarded.

        Returns:
            Problems of damaged states; their series start from an empty detector.
        """
        problems = []
        for document in documents:
            try:
                device, probe, metric = document["key"]
                detector = Detector.restore(base64.b64decode(document["state"], validate=True))
                series = MonitoredSeries(
                    detector,
                    document["base"],
                    document["reported_ns"],
                    document["reported_shift"],
                    document["since_ns"],
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
        for finding in series.detector.update(point.time_ns / NS_PER_S, value):
            if finding.kind == "anomaly":
                series.pending = finding, _anomaly_event(finding, point, key)
            else:
                drifts.append(self._drift_event(finding, series, point, key))
        events += drifts
        if not drifts and series.base is not None:
            events += self._further_shift(series, series.base, point, key)
        return events

    def _further_shift(
        self, series: MonitoredSeries, base: float, point: Point, key: Key
    ) -> list[Event]:
        """Return an event if an active drift reverts or grows without a detection of its own."""
        away = series.detector.level_change - base
        smallest = self._settings.least_effect
        if abs(away) < smallest / 2:
            series.base, series.since_ns = None, point.time_ns
            return [_reversal_event(point.time_ns, away, key)]
        if abs(away) < abs(series.reported_shift) + max(smallest, abs(series.reported_shift) / 3):
            return []
        series.reported_shift, series.reported_ns = away, point.time_ns
        series.since_ns = point.time_ns
        device, probe, metric = key
        pct = math.expm1(away) * 100
        return [
            Event(
                kind="drift",
                severity=_severity(away, metric),
                title=f"{WORDS[metric]} of {probe} on {device} shifted further, to {pct:+.1f} %",
                time_ns=point.time_ns,
                device=device,
                subject={"probe": probe},
                metric=metric,
                level_pct=pct,
            )
        ]

    def _drift_event(
        self, finding: Finding, series: MonitoredSeries, point: Point, key: Key
    ) -> Event:
        before_level = finding.level - finding.change
        if series.base is None or point.time_ns - series.reported_ns > SETTLED_NS:
            series.base = before_level
        away = finding.level - series.base
        series.reported_shift, series.reported_ns = away, point.time_ns
        level_since_ns = series.since_ns
        series.since_ns = since_ns = round(finding.since_s * NS_PER_S)
        if abs(away) < self._settings.least_effect / 2:
            series.base = None
            return _reversal_event(point.time_ns, away, key)
        device, probe, metric = key
        cause, sentence = self._explain(finding, key, (level_since_ns, since_ns), point.time_ns)
        return Event(
            kind="drift",
            severity=_severity(finding.change, metric),
            title=f"{WORDS[metric]} of {probe} on {device} is {finding.change_pct:+.1f} %",
            time_ns=point.time_ns,
            detail=f"{WORDS[metric]} of {probe} on {device}: {sentence}",
            device=device,
            subject={"probe": probe},
            before=f"{finding.before:.6g}",
            after=f"{finding.after:.6g}",
            cause=cause,
            metric=metric,
            change_pct=finding.change_pct,
            level_pct=math.expm1(away) * 100,
            since_ns=since_ns,
        )

    def _explain(
        self, finding: Finding, key: Key, levels_ns: tuple[int, int], now_ns: int
    ) -> tuple[str, str]:
        """Return the cause of a drift as a word and as a sentence.

        Args:
            finding: The drift.
            key: Its series.
            levels_ns: Start of the level before and of the level after the shift, UTC in ns.
            now_ns: Time of the value that completed the detection, UTC in ns.
        """
        device, probe, metric = key
        before_ns, since_ns = levels_ns
        rows = list(self._history(device, probe, since_ns - BEFORE_NS, now_ns + 1))
        runs = _runs(rows)
        # The estimated start may fall between two runs: align it with the nearest run.
        nearest = min(runs, key=lambda run: abs(run.time_ns - since_ns), default=None)
        since_ns = since_ns if nearest is None else nearest.time_ns
        before = [run for run in runs if run.time_ns < since_ns][-BEFORE_RUNS:]
        # Compare with the runs of the previous level only, or with the last few where it was short.
        before = [run for run in before if run.time_ns >= before_ns] or before[-MIN_RUNS_BEFORE:]
        after = [run for run in runs if run.time_ns >= since_ns]
        since = _clock_time(since_ns, now_ns)
        if not before or not after:
            return "unknown", f"{finding.change_pct:+.1f} % since {since}"
        old, new = _software(rows, before[-1], after[-1])
        split: CostChange | None = None
        if metric == "cost":
            old_cost, new_cost = factors(before), factors(after)
            if old_cost.cost > 0 and new_cost.cost > 0:
                split = split_change(old_cost, new_cost)
        return explain(
            finding.change_pct, split, conditions(before, old), conditions(after, new), since
        )


def _severity(change: float, metric: Metric) -> Severity:
    """Return info for an improvement, warning for a deterioration."""
    return "warning" if (change > 0) != (metric == "throughput") else "info"


def _confirms(anomaly: Finding, value: float) -> bool:
    """Return whether the value after an anomaly deviates as far in the same direction."""
    if value <= 0:
        return False
    away = math.log(value / anomaly.before)
    return 0.5 < away / anomaly.change < 2  # noqa: PLR2004 - half as far, twice as far


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


def _runs(rows: Iterable[Point]) -> list[DetectionRun]:
    """Join rows of `probe` and `cost` that share a time to runs, oldest first."""
    costs = {row.time_ns: row for row in rows if row.measurement == "cost"}
    found = (run_of(row, costs.get(row.time_ns)) for row in rows if row.measurement == "probe")
    return sorted((run for run in found if run is not None), key=lambda run: run.time_ns)


def _software(
    rows: Iterable[Point], before: DetectionRun, after: DetectionRun
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the versions, hashes and boards that changed between two runs, before and after.

    Versions are omitted if the fingerprint is the same.
    """
    changes: list[SoftwareChange] = [
        change
        for row in rows
        if row.measurement == "event" and (change := software_change_of(row)) is not None
        if before.time_ns < change.time_ns <= after.time_ns
    ]
    changes.sort(key=lambda change: change.time_ns)
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for change in changes:
        old = {**change.before, **old}
        new = {**new, **change.after}
    if not changes or before.fingerprint == after.fingerprint:
        boards = [{BOARD: found[BOARD]} if BOARD in found else {} for found in (old, new)]
        old = {"fingerprint": before.fingerprint, **boards[0]}
        new = {"fingerprint": after.fingerprint, **boards[1]}
    return old, new


def _anomaly_event(finding: Finding, point: Point, key: Key) -> Event:
    device, probe, metric = key
    return Event(
        kind="anomaly",
        severity="info",
        title=f"one {WORDS[metric]} of {probe} on {device} is an outlier: {finding.change_pct:+.0f} %",
        time_ns=point.time_ns,
        detail=f"{finding.after:.6g} where {finding.before:.6g} was expected",
        device=device,
        subject={"probe": probe},
        before=f"{finding.before:.6g}",
        after=f"{finding.after:.6g}",
        cause=_disturbance(point.fields),
        metric=metric,
        change_pct=finding.change_pct,
    )


def _disturbance(fields: Mapping[str, FieldValue]) -> str:
    """Return the disturbance of a single run that its row shows; empty if none."""
    if fields.get("contended") is True:
        return "neighbour"
    names = {"throttled_thermal_pct": "thermal throttling", "throttled_power_pct": "power limit"}
    for field, name in names.items():
        value = fields.get(field)
        if isinstance(value, int | float) and value > THROTTLED_PCT:
            return name
    return ""


def _reversal_event(time_ns: int, away: float, key: Key) -> Event:
    device, probe, metric = key
    event = Event(
        kind="drift",
        severity="info",
        title=f"{WORDS[metric]} of {probe} on {device} reverted",
        time_ns=time_ns,
        device=device,
        subject={"probe": probe},
        metric=metric,
    )
    return replace(event, level_pct=math.expm1(away) * 100)


def _clock_time(time_ns: int, now_ns: int) -> str:
    """Format a UTC time for people: without the date if it is today."""
    then = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
    now = datetime.fromtimestamp(now_ns // NS_PER_S, UTC)
    return f"{then:%H:%M} UTC" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M} UTC"
