"""Events of drifts and anomalies, with the cause that the rows around them show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from costprobe.core.money_text import per_thousand
from costprobe.core.records import BOARD, NS_PER_S, Event, FieldValue, Point, Severity
from costprobe.domain.costing.comparison.change import CostChange, split_change
from costprobe.domain.detection.causes import THROTTLED_PCT, explain
from costprobe.domain.detection.findings import Finding
from costprobe.domain.detection.runs import (
    BEFORE_RUNS,
    DetectionRun,
    SoftwareChange,
    conditions,
    factors,
    run_of,
    software_change_of,
)
from costprobe.domain.detection.settings import Metric

# Longest history before a shift that is compared with it.
BEFORE_NS = 14 * 86_400 * NS_PER_S
# Most software changes between two runs that are read.
CHANGES_MAX = 100
MIN_RUNS_BEFORE = 3

WORDS: Mapping[Metric, str] = {
    "cost": "cost per inference",
    "latency": "latency",
    "energy": "energy per inference",
    "throughput": "throughput",
}

_UNITS: Mapping[Metric, str] = {"latency": "ms", "energy": "J", "throughput": "per second"}

Key = tuple[str, str, Metric]
# Returns the newest rows of a measurement between two UTC ns, at most as many.
_Newest = Callable[[str, int, int, int], Sequence[Point]]


class RowHistory(Protocol):
    """The stored rows of a device's probe."""

    def __call__(
        self, measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        """Return the newest rows of a measurement in a span of UTC ns, at most `limit` of each series."""
        ...


def drift_event(
    finding: Finding,
    point: Point,
    key: Key,
    log_shift: float,
    since_ns: int,
    explained: tuple[str, str],
) -> Event:
    """Return the event of a new drift.

    Args:
        finding: The drift.
        point: The row that completed its detection.
        key: Its series.
        log_shift: Its distance from the level before all active drifts, in log units.
        since_ns: Start of the new level, UTC in ns.
        explained: Its cause, from `cause_of`.
    """
    device, probe, metric = key
    before, after = _levels(finding, point, metric)
    cause, sentence = explained
    return Event(
        kind="drift",
        severity=_severity(finding.change, metric),
        title=f"{WORDS[metric]} of {probe} on {device} is {finding.change_pct:+.1f} %",
        time_ns=point.time_ns,
        detail=f"{WORDS[metric]} of {probe} on {device}: {sentence}",
        device=device,
        subject={"probe": probe},
        before=before,
        after=after,
        cause=cause,
        metric=metric,
        change_pct=finding.change_pct,
        level_pct=math.expm1(log_shift) * 100,
        since_ns=since_ns,
    )


def further_shift_event(time_ns: int, log_shift: float, key: Key) -> Event:
    """Return the event of a drift that grew.

    Args:
        time_ns: UTC in ns.
        log_shift: Its distance from the level before it, in log units.
        key: Its series.
    """
    device, probe, metric = key
    pct = math.expm1(log_shift) * 100
    return Event(
        kind="drift",
        severity=_severity(log_shift, metric),
        title=f"{WORDS[metric]} of {probe} on {device} shifted further, to {pct:+.1f} %",
        time_ns=time_ns,
        device=device,
        subject={"probe": probe},
        metric=metric,
        level_pct=pct,
    )


def reversal_event(time_ns: int, log_shift: float, key: Key) -> Event:
    """Return the event of a drift that reverted.

    Args:
        time_ns: UTC in ns.
        log_shift: What is left of it, in log units.
        key: Its series.
    """
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
    return replace(event, level_pct=math.expm1(log_shift) * 100)


def anomaly_event(finding: Finding, point: Point, key: Key) -> Event:
    """Return the event of a single outlier.

    Args:
        finding: The outlier.
        point: Its row.
        key: Its series.
    """
    device, probe, metric = key
    before, after = _levels(finding, point, metric)
    return Event(
        kind="anomaly",
        severity="info",
        title=f"one {WORDS[metric]} of {probe} on {device} is an outlier: {finding.change_pct:+.0f} %",
        time_ns=point.time_ns,
        detail=f"{after} where {before} was expected",
        device=device,
        subject={"probe": probe},
        before=before,
        after=after,
        cause=_disturbance(point.fields),
        metric=metric,
        change_pct=finding.change_pct,
    )


def cause_of(
    finding: Finding, key: Key, levels_ns: tuple[int, int], now_ns: int, history: RowHistory
) -> tuple[str, str]:
    """Return the cause of a drift as a word and as a sentence.

    Args:
        finding: The drift.
        key: Its series.
        levels_ns: Start of the level before and of the level after the shift, UTC in ns.
        now_ns: Time of the value that completed the detection, UTC in ns.
        history: Returns the rows from before and after it.
    """
    device, probe, metric = key
    before_ns, since_ns = levels_ns

    def newest(measurement: str, from_ns: int, until_ns: int, limit: int) -> Sequence[Point]:
        return history(measurement, device, probe, (from_ns, until_ns), limit)

    # A fast probe has more runs in two weeks than fit into memory: read the newest of each side.
    before = _runs(newest, since_ns - BEFORE_NS, since_ns)
    after = _runs(newest, since_ns, now_ns + 1)
    if after and len(after) < BEFORE_RUNS:
        # The estimated start may fall between two runs: align it with the nearest run.
        if before and since_ns - before[-1].time_ns < after[0].time_ns - since_ns:
            after.insert(0, before.pop())
        since_ns = after[0].time_ns
    # Compare with the runs of the previous level only, or with the last few where it was short.
    before = [run for run in before if run.time_ns >= before_ns] or before[-MIN_RUNS_BEFORE:]
    since = _clock_time(since_ns, now_ns)
    if not before or not after:
        return "unknown", f"{finding.change_pct:+.1f} % since {since}"
    changed_ns = before[-1].time_ns + 1, after[-1].time_ns + 1
    old, new = _software(newest("event", *changed_ns, CHANGES_MAX), before[-1], after[-1])
    split: CostChange | None = None
    if metric == "cost":
        old_cost, new_cost = factors(before), factors(after)
        if old_cost.cost > 0 and new_cost.cost > 0:
            split = split_change(old_cost, new_cost)
    return explain(
        finding.change_pct, split, conditions(before, old), conditions(after, new), since
    )


def _levels(finding: Finding, point: Point, metric: Metric) -> tuple[str, str]:
    """Return the levels before and after as text: a cost as money for 1,000."""
    if metric == "cost":
        currency = point.tags.get("currency", "")
        return per_thousand(finding.before, currency), per_thousand(finding.after, currency)
    unit = _UNITS[metric]
    return f"{finding.before:,.4g} {unit}", f"{finding.after:,.4g} {unit}"


def _severity(change: float, metric: Metric) -> Severity:
    """Return info for an improvement, warning for a deterioration."""
    return "warning" if (change > 0) != (metric == "throughput") else "info"


def _runs(newest: _Newest, from_ns: int, until_ns: int) -> list[DetectionRun]:
    """Join the newest rows of `probe` and `cost` that share a time to runs, oldest first."""
    rows = newest("probe", from_ns, until_ns, BEFORE_RUNS)
    costs = {row.time_ns: row for row in newest("cost", from_ns, until_ns, BEFORE_RUNS)}
    runs = (run_of(row, costs.get(row.time_ns)) for row in rows)
    found = sorted((run for run in runs if run is not None), key=lambda run: run.time_ns)
    return found[-BEFORE_RUNS:]


def _software(
    rows: Iterable[Point], before: DetectionRun, after: DetectionRun
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the versions, hashes and boards that changed between two runs, before and after.

    Versions are omitted if the fingerprint is the same.
    """
    changes: list[SoftwareChange] = [
        change
        for row in rows
        if (change := software_change_of(row)) is not None
        if before.time_ns < change.time_ns <= after.time_ns
    ]
    changes.sort(key=lambda change: change.time_ns)
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for change in changes:
        old = {**change.before, **old}
        new = {**new, **change.after}
    if not changes or before.fingerprint == after.fingerprint:
        boards = [{BOARD: tags[BOARD]} if BOARD in tags else {} for tags in (old, new)]
        old = {"fingerprint": before.fingerprint, **boards[0]}
        new = {"fingerprint": after.fingerprint, **boards[1]}
    return old, new


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


def _clock_time(time_ns: int, now_ns: int) -> str:
    """Format a UTC time for people: without the date if it is today."""
    then = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
    now = datetime.fromtimestamp(now_ns // NS_PER_S, UTC)
    return f"{then:%H:%M} UTC" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M} UTC"
