"""Events of drifts and anomalies, with the cause that the rows around them show."""

from __future__ import annotations

import math
from collections.abc import Mapping

from costprobe.core.money_text import price_scale, price_text
from costprobe.core.records import Event, FieldValue, Point, Severity
from costprobe.core.units import significant
from costprobe.domain.alerting.change_message import ChangeFacts, change_message, money_a_month
from costprobe.domain.alerting.drift_causes import WORDS, Key
from costprobe.domain.detection.causes import THROTTLED_PCT
from costprobe.domain.detection.findings import Finding
from costprobe.domain.detection.settings import Metric

_UNITS: Mapping[Metric, str] = {"latency": "ms", "energy": "J", "throughput": "per second"}


def drift_event(
    finding: Finding,
    point: Point,
    key: Key,
    log_shift: float,
    since_ns: int,
    change: ChangeFacts,
) -> Event:
    """Return the event of a new drift.

    Args:
        finding: The drift.
        point: The row that completed its detection.
        key: Its series.
        log_shift: Its distance from the level before all active drifts, in log units.
        since_ns: Start of the new level, UTC in ns.
        change: The drift with its causes, from `change_of`.
    """
    device, probe, metric = key
    before, after = _levels(finding, point, metric)
    message = change_message(change)
    return Event(
        kind="drift",
        severity=_severity(change),
        title=message.headline,
        time_ns=point.time_ns,
        detail=message.reason,
        device=device,
        subject={"probe": probe},
        before=before,
        after=after,
        cause=change.explanation.name,
        metric=metric,
        change_pct=finding.change_pct,
        level_pct=math.expm1(log_shift) * 100,
        since_ns=since_ns,
        **money_a_month(change.money),
    )


def further_shift_event(time_ns: int, log_shift: float, key: Key, change: ChangeFacts) -> Event:
    """Return the event of a drift that grew.

    Args:
        time_ns: UTC in ns.
        log_shift: Its distance from the level before it, in log units.
        key: Its series.
        change: All of it with its causes, from `change_of`.
    """
    device, probe, metric = key
    message = change_message(change, "shifted further, to")
    cause = change.explanation.name
    return Event(
        kind="drift",
        severity=_severity(change),
        title=message.headline,
        time_ns=time_ns,
        # Without a cause of its own it has that of the drift.
        detail="" if cause == "unknown" else message.reason,
        device=device,
        subject={"probe": probe},
        cause="" if cause == "unknown" else cause,
        metric=metric,
        level_pct=math.expm1(log_shift) * 100,
        **money_a_month(change.money),
    )


def reversal_event(time_ns: int, key: Key) -> Event:
    """Return the event of a drift that reverted; what is left of it belongs to the new level.

    Args:
        time_ns: UTC in ns.
        key: Its series.
    """
    device, probe, metric = key
    return Event(
        kind="drift",
        severity="info",
        title=f"{WORDS[metric]} of {probe} on {device} reverted",
        time_ns=time_ns,
        device=device,
        subject={"probe": probe},
        metric=metric,
        level_pct=0.0,
    )


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


def _levels(finding: Finding, point: Point, metric: Metric) -> tuple[str, str]:
    """Return the levels before and after as text: a cost as money, both at the scale of the one before."""
    if metric == "cost":
        currency = point.tags.get("currency", "")
        scale = price_scale(finding.before)
        before, after = (
            price_text(value, currency, scale) for value in (finding.before, finding.after)
        )
        return before, after
    unit = _UNITS[metric]
    return f"{significant(finding.before)} {unit}", f"{significant(finding.after)} {unit}"


def _severity(change: ChangeFacts) -> Severity:
    """Return info for an improvement, warning for a deterioration."""
    return "warning" if change.is_worse else "info"


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
