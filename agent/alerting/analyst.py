"""The analyst: a detector for each series of a probe, and an event that says why it drifted."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from agent.calendar_step import CalendarStep
from agent.config_alerting import DetectionConfig, Metric
from agent.costing.change import CostChange, split_change
from agent.detection import Detector, Finding, Settings
from agent.detection.causes import THROTTLED_PCT, explain
from agent.detection.runs import (
    BEFORE_RUNS,
    Run,
    SoftwareChange,
    conditions,
    factors,
    run_of,
    software_change_of,
)
from agent.model import BOARD, NS_PER_S, Event, FieldValue, Point, Severity

DAY_NS = 86_400 * NS_PER_S
# So far before a change its "before" reaches at most.
BEFORE_NS = 14 * DAY_NS
FEW_RUNS = 3
STATE_PREFIX = "detector "
# A drift that is older is normal by now: the next one is measured from it.
SETTLED_NS = DAY_NS

WORDS: Mapping[Metric, str] = {
    "cost": "cost per inference",
    "latency": "latency",
    "energy": "energy per inference",
    "throughput": "throughput",
}

Key = tuple[str, str, Metric]
History = Callable[[str, str, int, int], Sequence[Point]]


@dataclass(slots=True)
class Watched:
    """One series under watch.

    Attributes:
        detector: Its detector.
        base: Level change of the detector from which the present drift counts; None without one.
        told_ns: UTC in ns of the last drift.
        told: How far from `base` it was then.
        since_ns: UTC in ns since which it is at its present level: the beginning of its last
            drift; 0 before the first.
        doubtful: An anomaly that the next value may turn out to be the beginning of a step.
    """

    detector: Detector
    base: float | None = None
    told_ns: int = 0
    told: float = 0.0
    since_ns: int = 0
    doubtful: tuple[Finding, Event] | None = None

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        self.detector.clock_was_stepped(step)
        if self.since_ns:
            self.told_ns, self.since_ns = step.of_ns(self.told_ns), step.of_ns(self.since_ns)


class Analyst:
    """Watches the cost, latency, energy and throughput of every probe, and explains drifts.

    Deterministic: the same rows in the same order give the same events.

    Args:
        settings: What counts as a drift.
        history: Rows of `probe`, `cost` and `event` of a device's probe between two UTC ns, in
            any order: asked for when there is something to explain.
    """

    def __init__(self, settings: DetectionConfig, history: History) -> None:
        self._settings = Settings(settings.least_effect, settings.warm_up)
        self._is_enabled = settings.enabled
        self._history = history
        self._watched: dict[Key, Watched] = {}

    def take(self, points: Iterable[Point]) -> list[Event]:
        """Takes the rows of one probe run and tells what they make certain."""
        if not self._is_enabled:
            return []
        events = []
        for point in points:
            device, probe = point.tags.get("device"), point.tags.get("probe")
            if device and probe:
                for metric, value in _values(point):
                    events += self._take(point, (device, probe, metric), value)
        return events

    def probes(self) -> set[tuple[str, str]]:
        """Device and name of every probe that is watched."""
        return {(device, probe) for device, probe, _ in self._watched}

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        for watched in self._watched.values():
            watched.clock_was_stepped(step)

    def set_back(self, now_ns: int) -> None:
        """Goes on from states that were kept while the calendar was ahead of what it says now.

        Args:
            now_ns: UTC in ns of now.
        """
        for watched in self._watched.values():
            ahead_s = watched.detector.last_s - now_ns / NS_PER_S
            if ahead_s > 0:
                watched.clock_was_stepped(CalendarStep(-round(ahead_s * NS_PER_S), now_ns))

    def documents(self) -> dict[str, Any]:
        """Each detector's state, by a name that begins with STATE_PREFIX; JSON."""
        return {
            f"{STATE_PREFIX}{device} {probe} {metric}": {
                "key": [device, probe, metric],
                "state": base64.b64encode(watched.detector.state()).decode(),
                "base": watched.base,
                "told_ns": watched.told_ns,
                "told": watched.told,
                "since_ns": watched.since_ns,
            }
            for (device, probe, metric), watched in list(self._watched.items())
        }

    def restore(self, documents: Iterable[Any]) -> list[str]:
        """Goes on from states; other settings than they were kept under begin anew.

        Returns:
            What could not be used: those series begin to learn again.
        """
        problems = []
        for document in documents:
            try:
                device, probe, metric = document["key"]
                detector = Detector.restore(base64.b64decode(document["state"], validate=True))
                watched = Watched(
                    detector,
                    document["base"],
                    document["told_ns"],
                    document["told"],
                    # States of before there was such a key know when the last drift was told.
                    document.get("since_ns", document["told_ns"]),
                )
            except (KeyError, TypeError, ValueError, binascii.Error) as error:
                problems.append(f"the state of a detector is damaged ({error}); it learns anew")
                continue
            if detector.settings == self._settings:
                self._watched[device, probe, metric] = watched
        return problems

    def _take(self, point: Point, key: Key, value: float) -> list[Event]:
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = Watched(Detector(self._settings))
        events = []
        if watched.doubtful is not None:
            finding, event = watched.doubtful
            watched.doubtful = None
            if not _goes_on(finding, value):
                events.append(event)
        drifts = []
        for finding in watched.detector.update(point.time_ns / NS_PER_S, value):
            if finding.kind == "anomaly":
                watched.doubtful = finding, _anomaly_event(finding, point, key)
            else:
                drifts.append(self._drift_event(finding, watched, point, key))
        events += drifts
        if not drifts and watched.base is not None:
            events += self._moved_on(watched, watched.base, point, key)
        return events

    def _moved_on(self, watched: Watched, base: float, point: Point, key: Key) -> list[Event]:
        """What a drift does that its detector follows quietly: it returns, or goes on."""
        away = watched.detector.level_change - base
        least = self._settings.least_effect
        if abs(away) < least / 2:
            watched.base, watched.since_ns = None, point.time_ns
            return [_return_event(point.time_ns, away, key)]
        if abs(away) < abs(watched.told) + max(least, abs(watched.told) / 3):
            return []
        watched.told, watched.told_ns = away, point.time_ns
        watched.since_ns = point.time_ns
        device, probe, metric = key
        pct = math.expm1(away) * 100
        return [
            Event(
                kind="drift",
                severity=_severity(away, metric),
                title=f"{WORDS[metric]} of {probe} on {device} moved on, to {pct:+.1f} %",
                time_ns=point.time_ns,
                device=device,
                subject={"probe": probe},
                metric=metric,
                level_pct=pct,
            )
        ]

    def _drift_event(self, finding: Finding, watched: Watched, point: Point, key: Key) -> Event:
        before_level = finding.level - finding.change
        if watched.base is None or point.time_ns - watched.told_ns > SETTLED_NS:
            watched.base = before_level
        away = finding.level - watched.base
        watched.told, watched.told_ns = away, point.time_ns
        level_since_ns = watched.since_ns
        watched.since_ns = since_ns = round(finding.since_s * NS_PER_S)
        if abs(away) < self._settings.least_effect / 2:
            watched.base = None
            return _return_event(point.time_ns, away, key)
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
        """Why it changed: a word, and a sentence.

        Args:
            finding: The drift.
            key: Its series.
            levels_ns: UTC in ns at which the level before it, and the one after it, began.
            now_ns: UTC in ns of the value that showed it.
        """
        device, probe, metric = key
        before_ns, since_ns = levels_ns
        rows = list(self._history(device, probe, since_ns - BEFORE_NS, now_ns + 1))
        runs = _runs(rows)
        # Runs are not exactly a period apart: by the period alone the first run of a new level may
        # seem to have been before it.
        nearest = min(runs, key=lambda run: abs(run.time_ns - since_ns), default=None)
        since_ns = since_ns if nearest is None else nearest.time_ns
        before = [run for run in runs if run.time_ns < since_ns][-BEFORE_RUNS:]
        # What held before the last drift is not what this one moved away from. Where the two
        # follow each other too closely, the few runs before it tell.
        before = [run for run in before if run.time_ns >= before_ns] or before[-FEW_RUNS:]
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
    """A change for the better is no warning."""
    return "warning" if (change > 0) != (metric == "throughput") else "info"


def _goes_on(anomaly: Finding, value: float) -> bool:
    """True if the value after an anomaly is as far out on its side: then it was no single one."""
    if value <= 0:
        return False
    away = math.log(value / anomaly.before)
    return 0.5 < away / anomaly.change < 2  # noqa: PLR2004 - half as far, twice as far


def _values(point: Point) -> list[tuple[Metric, float]]:
    """What of a row is watched."""
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


def _runs(rows: Iterable[Point]) -> list[Run]:
    """Runs from rows of `probe` and `cost` that share a time, oldest first."""
    costs = {row.time_ns: row for row in rows if row.measurement == "cost"}
    found = (run_of(row, costs.get(row.time_ns)) for row in rows if row.measurement == "probe")
    return sorted((run for run in found if run is not None), key=lambda run: run.time_ns)


def _software(
    rows: Iterable[Point], before: Run, after: Run
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Versions and hashes that changed between two runs, and the board.

    Where the fingerprint stayed, no version did.
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
        title=f"one {WORDS[metric]} of {probe} on {device} stood out: {finding.change_pct:+.0f} %",
        time_ns=point.time_ns,
        detail=f"{finding.after:.6g} where {finding.before:.6g} was to be expected",
        device=device,
        subject={"probe": probe},
        before=f"{finding.before:.6g}",
        after=f"{finding.after:.6g}",
        cause=_disturbance(point.fields),
        metric=metric,
        change_pct=finding.change_pct,
    )


def _disturbance(fields: Mapping[str, FieldValue]) -> str:
    """What disturbed a single run, where its own row tells."""
    if fields.get("contended") is True:
        return "neighbour"
    names = {"throttled_thermal_pct": "thermal throttling", "throttled_power_pct": "power limit"}
    for field, name in names.items():
        value = fields.get(field)
        if isinstance(value, int | float) and value > THROTTLED_PCT:
            return name
    return ""


def _return_event(time_ns: int, away: float, key: Key) -> Event:
    device, probe, metric = key
    event = Event(
        kind="drift",
        severity="info",
        title=f"{WORDS[metric]} of {probe} on {device} is back where it was",
        time_ns=time_ns,
        device=device,
        subject={"probe": probe},
        metric=metric,
    )
    return replace(event, level_pct=math.expm1(away) * 100)


def _clock_time(time_ns: int, now_ns: int) -> str:
    """A UTC time for people: the hour alone if it is of the same day."""
    then = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
    now = datetime.fromtimestamp(now_ns // NS_PER_S, UTC)
    return f"{then:%H:%M} UTC" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M} UTC"
