"""The first screen of the page: `/api/overview`."""

from __future__ import annotations

from typing import Any

from costprobe.core.records import NS_PER_S
from costprobe.spend.budget import period_words
from costprobe.spend.now import Spending
from costprobe.ui.dashboard.now import NS_PER_MS
from costprobe.ui.host_overview import MainChange, Overview
from costprobe.unit_costs.now import UnitCost, UnitGroup


def overview_document(overview: Overview) -> dict[str, Any]:
    """Return the overview as JSON; alerts and faults are in `/api/now`."""
    change = overview.change
    return {
        "time_ms": overview.time_ns // NS_PER_MS,
        "host": overview.host,
        "power_w": overview.power_w,
        "spending": [_spending(spending) for spending in overview.spending],
        "units": [_group(group, overview.time_ns) for group in overview.units],
        "change": None if change is None else _change(change),
    }


def _spending(spending: Spending) -> dict[str, Any]:
    document: dict[str, Any] = {
        "currency": spending.currency,
        "cost_per_h": spending.per_hour,
        "idle_share": spending.idle_share,
        "month": None,
    }
    if spending.month is not None:
        status = spending.month.status
        document["month"] = {
            "period": period_words(status),
            "spent": status.spent,
            "amount": status.amount if spending.is_planned else None,
            "forecast": status.expected,
            "coverage": status.coverage,
        }
    return document


def _change(change: MainChange) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "title": change.title,
        "detail": change.detail,
        "cause": change.cause,
        "change_pct": change.change_pct,
        "cost_per_month": change.cost_per_month,
        "currency": change.currency,
        "since_ms": change.since_ns // NS_PER_MS,
        "tags": dict(change.tags),
        "left_out": change.others,
    }


def _group(group: UnitGroup, now_ns: int) -> dict[str, Any]:
    return {
        **_unit(group.typical, now_ns),
        "spread_share": group.spread,
        "changed": group.changed.tags.get("device", ""),
        "outliers": list(group.outliers),
        "members": [_unit(unit, now_ns) for unit in group.members],
    }


def _unit(unit: UnitCost, now_ns: int) -> dict[str, Any]:
    return {
        "name": unit.name,
        "tags": dict(unit.tags),
        "unit": unit.unit,
        "cost": unit.cost,
        "scale_samples": unit.scale,
        "change_24h_pct": unit.change_24h_pct,
        "change_7d_pct": unit.change_7d_pct,
        "trend": {
            "times_ms": [time_ns // NS_PER_MS for time_ns, _ in unit.trend],
            "values": [value for _, value in unit.trend],
        },
        "latency_ms": unit.latency_ms,
        "energy_j": unit.energy_j,
        "age_s": max(0.0, (now_ns - unit.time_ns) / NS_PER_S),
        "contended": unit.is_contended,
        "devices": list(unit.devices),
        "model": unit.device_model,
    }
