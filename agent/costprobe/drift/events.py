"""Events of drifts and anomalies of probes, and of changes of a service's production.

A drift's event has the cause that the rows around it show; that of production has its
decomposition and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from costprobe.core.money import price_scale, price_text
from costprobe.core.records import NS_PER_S, TOGETHER, Event, FieldValue, Point
from costprobe.core.units import significant
from costprobe.drift.causes import EXPLAINED, THROTTLED_PCT, UNKNOWN, Explanation
from costprobe.drift.findings import Finding, Metric, ServingMetric
from costprobe.drift.message import (
    UNCHANGED,
    ChangeFacts,
    FurtherShift,
    Key,
    MoneyChange,
    change_message,
    due_to,
    explanation,
    money_a_month,
    money_of,
    name_of,
    tags_of,
)
from costprobe.drift.production import ProductionFinding
from costprobe.unit_costs.change import LEAST_PART, Driver, Part, ProductionChange

_UNITS: Mapping[Metric, str] = {"latency": "ms", "energy": "J", "throughput": "per second"}

CAUSES: Final[Mapping[ServingMetric, Driver]] = MappingProxyType(
    {
        "serving_time": "efficiency",
        "serving_energy": "efficiency",
        "serving_tpot": "efficiency",
        "demand": "demand",
        "mix": "mix",
    }
)
# What a change of each series is in money: parts of the cost, each of one series only.
_PARTS: Final[Mapping[ServingMetric, tuple[Part, ...]]] = MappingProxyType(
    {
        "serving_time": ("speed",),
        "serving_energy": ("busy power", "idle power", "mean power"),
        # Users wait longer; what the devices cost is that of the other series.
        "serving_tpot": (),
        "demand": ("idle time", "load"),
        "mix": ("models", "input and output", "cached input"),
    }
)
_SAME_AS_PROBE: Final = 0.5


def change_event(
    change: ChangeFacts, tags: Mapping[str, str], metric: str, **more: FieldValue
) -> Event:
    """Return the event of a change that is new or has grown.

    Args:
        change: All of it, from the level before.
        tags: What it is of: device and probe, or service and served model.
        metric: Its series.
        more: Fields of the event that are others than those of the change.
    """
    message = change_message(change)
    fields: dict[str, Any] = {
        "severity": "warning" if change.is_worse else "info",
        "detail": message.reason,
        "cause": change.explanation.name,
        "change_pct": change.change_pct,
        "level_pct": change.change_pct if change.back_to_ns is None else 0.0,
        "since_ns": change.since_ns,
        **money_a_month(change),
        **more,
    }
    return replace(level_event(message.headline, tags, metric, change.now_ns), **fields)


def level_event(
    title: str, tags: Mapping[str, str], metric: str, time_ns: int, since_ns: int | None = None
) -> Event:
    """Return the event of a level as it was before a change; what is left of that belongs to the level."""
    return Event(
        kind="drift",
        severity="info",
        title=title,
        time_ns=time_ns,
        device=tags.get("device", ""),
        subject={name: value for name, value in tags.items() if name != "device"},
        metric=metric,
        level_pct=0.0,
        since_ns=since_ns,
    )


def drift_event(finding: Finding, point: Point, key: Key, change: ChangeFacts) -> Event:
    """Return the event of a drift that is new or has changed.

    Args:
        finding: All of the drift, from the level before it.
        point: The row that completed its detection.
        key: Its series.
        change: The drift with its causes, from `change_of`.
    """
    metric = key[-1]
    before, after = _levels(finding, point, metric)
    cause = change.explanation.name
    # Without a known cause a further shift keeps that of the first.
    cause = "" if change.further and cause == UNKNOWN else cause
    return change_event(change, tags_of(key), metric, before=before, after=after, cause=cause)


def reversal_event(
    tags: Mapping[str, str],
    metric: Metric | ServingMetric,
    time_ns: int,
    since_ns: int,
    unit: str = "token",
) -> Event:
    """Return the event of a change that reverted; what is left of it belongs to the new level.

    Args:
        tags: What it is of, as of `change_event`.
        metric: Its series.
        time_ns: UTC in ns.
        since_ns: Start of the level, UTC in ns.
        unit: What work is counted in.
    """
    return level_event(f"{name_of(tags, metric, unit)} reverted", tags, metric, time_ns, since_ns)


def anomaly_event(finding: Finding, point: Point, key: Key) -> Event:
    """Return the event of a single outlier.

    Args:
        finding: The outlier.
        point: Its row.
        key: Its series.
    """
    tags, metric = tags_of(key), key[-1]
    before, after = _levels(finding, point, metric)
    return Event(
        kind="anomaly",
        severity="info",
        title=f"one {name_of(tags, metric)} is an outlier: {finding.change_pct:+.0f} %",
        time_ns=point.time_ns,
        detail=f"{after} where {before} was expected",
        device=tags["device"],
        subject={"probe": tags["probe"]},
        before=before,
        after=after,
        cause=_disturbance(point.fields, finding.change),
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


def _disturbance(fields: Mapping[str, FieldValue], change: float) -> str:
    """Return the disturbance of a single run that its row shows; empty if none explains half of its change.

    Throttling costs at most the time that it lasted.
    """
    explained_pct = -math.expm1(-EXPLAINED * abs(change)) * 100
    if fields.get("contended") is True:
        return "neighbour"
    names = {"throttled_thermal_pct": "thermal throttling", "throttled_power_pct": "power limit"}
    for field, name in names.items():
        value = fields.get(field)
        if isinstance(value, int | float) and value > max(THROTTLED_PCT, explained_pct):
            return name
    return ""


def production_event(
    tags: Mapping[str, str],
    finding: ProductionFinding,
    change: ProductionChange | None,
    explained: Explanation,
    *,
    further: FurtherShift | None,
    back_to_ns: int | None,
    devices: Sequence[str] = (),
) -> Event:
    """Return the event of a change.

    Args:
        tags: Service and served model, if it is of one.
        finding: All of the change, from the last settled level.
        change: Decomposition of the cost between two periods; None where one is not covered.
        explained: Its causes; "unknown" without one that explains half of it.
        further: The part that is new since it was reported; None in its first report.
        back_to_ns: Start of the change before whose level the series is again; None for another change.
        devices: Names of the service's devices.
    """
    driver = CAUSES[finding.metric]
    split = (
        ""
        if change is None
        else f"cost per {change.unit} {_percent(change.log_ratio)}: {explanation(change)}"
    )
    facts = ChangeFacts(
        what=name_of(tags, finding.metric, finding.unit),
        change_pct=math.expm1(finding.change) * 100,
        since_ns=round(finding.since_s * NS_PER_S),
        now_ns=round(finding.time_s * NS_PER_S),
        is_worse=finding.change > 0,
        explanation=due_to(driver, explained),
        money=_money(finding, change),
        split=split,
        action=_advice(finding, change) if explained.name == UNKNOWN else "",
        further=further,
        back_to_ns=back_to_ns,
        device=TOGETHER.join(devices),
    )
    is_warning = finding.is_collapse or driver == "efficiency"
    severity = "warning" if facts.is_worse and is_warning else "info"
    return change_event(facts, tags, finding.metric, severity=severity)


def _percent(log_ratio: float) -> str:
    return f"{math.expm1(log_ratio) * 100:+z.1f} %"


def _money(finding: ProductionFinding, change: ProductionChange | None) -> MoneyChange | None:
    """Return a change in money; None if its parts of the cost moved in the other direction.

    A lower speed takes energy at the same power, so that the energy may rise and its own part fall.
    """
    if change is None:
        return None
    parts = _PARTS[finding.metric]
    effect = math.fsum(change.parts.get(part, 0.0) for part in parts)
    return money_of(change, parts) if effect * finding.change > LEAST_PART else None


def _advice(finding: ProductionFinding, change: ProductionChange | None) -> str:
    """Return what to do about another efficiency by the probe of the device; empty where there is none."""
    control = None if change is None else change.control
    if CAUSES[finding.metric] != "efficiency" or control is None:
        return ""
    if math.log(control) > max(UNCHANGED, _SAME_AS_PROBE * finding.change):
        return "look for the cause at the probe of the device, which is slower too"
    return "compare the server's version and settings; the device itself is as before"
