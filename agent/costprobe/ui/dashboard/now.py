"""Current state of devices, probes, alerts and components, as one document."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from costprobe.adapters.store.database import decoding
from costprobe.adapters.store.read import StoreReader
from costprobe.core.records import NS_PER_S, FieldValue, Point, natural
from costprobe.core.schema import OWN_TAGS
from costprobe.spend.budget import period_words
from costprobe.spend.now import Spending
from costprobe.ui.host_overview import (
    MainChange,
    Overview,
    fault_document,
    host_faults,
    newest_rows,
)
from costprobe.ui.incidents import hidden_changes, is_running, noisy_services
from costprobe.unit_costs.now import UnitCost, UnitGroup

NS_PER_MS = 1_000_000
# Series without a row for a week are omitted.
FORGOTTEN_S = 7 * 86_400.0
ENTRIES_MAX = 200
SYMPTOMS_MAX = 20
# Tags that identify a cost, a probe and a device; other tags are attributes.
_OF_COST = ("host", "device", "probe", "service", "served_model", "basis")
_OF_PROBE = ("host", "device", "probe", "service")
_OF_DEVICE = ("host", "device")


def now_document(reader: StoreReader, now_ns: int) -> dict[str, Any]:
    """Return the newest state, for `/api/now`.

    Args:
        reader: The store.
        now_ns: UTC in ns.

    Raises:
        StoreError: The store cannot be read.
    """
    states = reader.states()
    status, status_ns = states.get("status", (None, 0))
    alerts, alerts_ns = states.get("alerts", ({}, 0))
    with decoding(reader.path):
        of_documents = {
            "daemon": _daemon(status, status_ns, now_ns),
            "alerts": [_alert(alert, alerts) for alert in alerts.get("alerts", [])[:ENTRIES_MAX]],
            "hidden_changes": [
                *hidden_changes(alerts.get("detectable", ())),
                *noisy_services(alerts.get("noisy_services", ())),
            ][:ENTRIES_MAX],
            "alerts_time_ms": alerts_ns // NS_PER_MS if alerts_ns else None,
            "faults": host_faults(status, reader)[:ENTRIES_MAX]
            if status is not None and _runs(status, status_ns, now_ns)
            else [
                fault_document("not_running", "the daemon is not running; see `costprobe status`")
            ],
        }
    oldest_ns = now_ns - int(FORGOTTEN_S * NS_PER_S)
    probes = newest_rows(reader.last("probe", now_ns), _OF_PROBE, oldest_ns)
    costs = newest_rows(reader.last("cost", now_ns), _OF_COST, oldest_ns)
    devices = newest_rows(reader.last("device", now_ns), _OF_DEVICE, oldest_ns)
    left_out = sum(max(0, len(rows) - ENTRIES_MAX) for rows in (probes, costs, devices))
    return {
        "time_ms": now_ns // NS_PER_MS,
        "costs": [_row(row, now_ns) for row in costs[:ENTRIES_MAX]],
        "probes": [_row(row, now_ns) for row in probes[:ENTRIES_MAX]],
        "devices": [_row(row, now_ns) for row in devices[:ENTRIES_MAX]],
        "left_out": left_out,
        "labels": _labels([*costs, *probes]),
        **of_documents,
    }


def _labels(rows: Iterable[Point]) -> dict[str, list[str]]:
    """Return the values of each label by which the page can be filtered."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name in row.tags.keys() - OWN_TAGS:
            values.setdefault(name, set()).add(row.tags[name])
    return {name: sorted(values[name], key=natural)[:ENTRIES_MAX] for name in sorted(values)}


def _daemon(status: Mapping[str, Any] | None, written_ns: int, now_ns: int) -> dict[str, Any]:
    if status is None:
        return {"state": "not started yet", "running": False}
    return {
        "state": status.get("state"),
        "running": _runs(status, written_ns, now_ns),
        "host": status.get("host"),
        "version": status.get("version"),
        "started_ms": status.get("started_ns", 0) // NS_PER_MS,
        "age_s": max(0.0, (now_ns - written_ns) / NS_PER_S),
        "sensor": (status.get("sensor") or {}).get("state"),
    }


def _runs(status: Mapping[str, Any], written_ns: int, now_ns: int) -> bool:
    age_s = max(0.0, (now_ns - written_ns) / NS_PER_S)
    try:
        return is_running({**status, "age_s": age_s})
    except (KeyError, TypeError, ValueError):
        return False  # written by another version


def _row(row: Point, now_ns: int) -> dict[str, Any]:
    return {
        "tags": dict(row.tags),
        "time_ms": row.time_ns // NS_PER_MS,
        "age_s": max(0.0, (now_ns - row.time_ns) / NS_PER_S),
        "fields": {name: json_value(value) for name, value in row.fields.items()},
    }


def json_value(value: FieldValue) -> FieldValue:
    """Return a field value for JavaScript: integers beyond 2^53 would lose precision."""
    is_exact = isinstance(value, bool) or not isinstance(value, int) or abs(value) <= 2**53
    return value if is_exact else float(value)


def _alert(alert: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    symptoms = alert.get("symptoms", [])
    return {
        "id": alert.get("id"),
        "name": alert.get("name"),
        "state": alert.get("state"),
        "severity": alert.get("severity"),
        "summary": alert.get("summary"),
        "detail": alert.get("detail", ""),
        "cause": alert.get("cause") or "",
        "labels": alert.get("labels", {}),
        "since_ms": alert.get("since_ns", 0) // NS_PER_MS,
        "silenced": alert.get("id") in document.get("silenced", ()),
        "flapping": bool(alert.get("is_flapping")),
        "symptoms": [symptom.get("text", "") for symptom in symptoms[:SYMPTOMS_MAX]],
        "symptoms_left_out": max(0, len(symptoms) - SYMPTOMS_MAX),
    }


def overview_document(overview: Overview) -> dict[str, Any]:
    """Return the overview as JSON; alerts and faults are in `/api/now`."""
    change = overview.change
    return {
        "time_ms": overview.time_ns // NS_PER_MS,
        "host": overview.host,
        "power_w": overview.power_w,
        "spending": [_spending(one, overview.assumed) for one in overview.spending],
        "units": [_group(group, overview.time_ns) for group in overview.units],
        "change": None if change is None else _change(change),
    }


def _spending(spending: Spending, assumed: Collection[str]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "currency": spending.currency,
        "cost_per_h": spending.per_hour,
        "assumed": spending.currency in assumed,
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
    fields = asdict(change)
    since_ms = fields.pop("since_ns") // NS_PER_MS
    left_out = fields.pop("others")
    return {**fields, "tags": dict(change.tags), "since_ms": since_ms, "left_out": left_out}


def _group(group: UnitGroup, now_ns: int) -> dict[str, Any]:
    return {
        **_unit(group.typical, now_ns),
        "spread_share": group.spread,
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
