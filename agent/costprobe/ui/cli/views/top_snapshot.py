"""The snapshot of `costprobe top`, from the rows of the store and the documents of the daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import Config
from costprobe.core.columns import number
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S, Point, natural
from costprobe.spend.now import present_power_w, spending
from costprobe.spend.query import Usual
from costprobe.ui.cli.views.outbox import outbox_document
from costprobe.ui.cli.views.status_lines import faults_of
from costprobe.ui.host_overview import main_change
from costprobe.ui.incidents import is_running

# A device, probe or budget without a row for longer than this is not shown.
GONE_NS = 24 * 3600 * NS_PER_S
MAX_ROWS = 40
_DEVICE_FIELDS = (
    "util_pct",
    "power_w",
    "temp_c",
    "sm_clock_mhz",
    "mem_used_bytes",
    "mem_total_bytes",
    "price_rate_per_h",
)
_COST_FIELDS = ("cost_per_inference", "rolling_1h", "rolling_24h", "rolling_7d")
_BUDGET_FIELDS = ("amount", "spent", "forecast", "elapsed_share", "coverage")
_IDENTITY = ("device", "service", "probe", "served_model", "budget", "currency")

States = Mapping[str, tuple[Any, int]]


def snapshot(reader: StoreReader, config: Config, states: States, now_ns: int) -> dict[str, Any]:
    """Return a snapshot; unknown values are None.

    Args:
        reader: The store.
        config: The configuration.
        states: State documents, of the store or of the running daemon.
        now_ns: UTC ns.
    """
    usual = Usual(config.telemetry.aggregate_s)
    status, written_ns = states.get("status", (None, 0))
    age_s = None if status is None else max(0.0, (now_ns - written_ns) / NS_PER_S)
    running = status is not None and (
        status.get("running", False) or is_running({**status, "age_s": age_s})
    )
    return {
        "time": iso(now_ns),
        "store": str(reader.path),
        "host": None if status is None else status.get("host"),
        "running": running,
        "state": None if status is None else status.get("state"),
        "age_s": age_s,
        "spending": [
            {"currency": one.currency, "cost_per_h": one.per_hour, "idle_share": one.idle_share}
            for one in spending(reader, config.budget, usual, now_ns, ())
        ],
        "power_w": present_power_w(reader, now_ns),
        "change": _change(reader, now_ns),
        "devices": [_device(row, now_ns) for row in _newest(reader, "device", now_ns)],
        "costs": [_cost(row, now_ns) for row in _newest(reader, "cost", now_ns)],
        "sinks": _sinks(reader, status or {}),
        "budgets": [_budget(row, now_ns) for row in _newest(reader, "budget", now_ns)],
        "faults": _faults(states, status, age_s, running=running),
        "alerts": _alerts(states),
    }


def _change(reader: StoreReader, now_ns: int) -> dict[str, Any] | None:
    change = main_change(reader, now_ns)
    if change is None:
        return None
    return {
        "kind": change.kind,
        "title": change.title,
        "cause": change.cause or None,
        "change_pct": change.change_pct,
        "cost_per_month": change.cost_per_month,
        "currency": change.currency or None,
        "since": iso(change.since_ns),
    }


def _newest(reader: StoreReader, measurement: str, now_ns: int) -> Sequence[Point]:
    rows = [row for row in reader.last(measurement, now_ns) if row.time_ns >= now_ns - GONE_NS]
    newest: dict[tuple[str, ...], Point] = {}
    for row in sorted(rows, key=lambda row: row.time_ns):
        newest[tuple(row.tags.get(name, "") for name in _IDENTITY)] = row
    return [newest[key] for key in sorted(newest, key=lambda key: natural(*key))][:MAX_ROWS]


def _device(row: Point, now_ns: int) -> dict[str, Any]:
    return {
        "device": row.tags.get("device"),
        "model": row.tags.get("model"),
        **{field: number(row, field) for field in _DEVICE_FIELDS},
        "currency": row.tags.get("currency"),
        "age_s": _age_s(row, now_ns),
    }


def _cost(row: Point, now_ns: int) -> dict[str, Any]:
    tags = row.tags
    return {
        "of": "/".join(tags[tag] for tag in ("probe", "service", "served_model") if tags.get(tag))
        or None,
        "device": tags.get("device"),
        "basis": tags.get("basis"),
        "currency": tags.get("currency"),
        **{field: number(row, field) for field in _COST_FIELDS},
        "contended": row.fields.get("contended"),
        "age_s": _age_s(row, now_ns),
    }


def _budget(row: Point, now_ns: int) -> dict[str, Any]:
    return {
        "budget": row.tags.get("budget"),
        "period": row.tags.get("period"),
        "currency": row.tags.get("currency"),
        **{field: number(row, field) for field in _BUDGET_FIELDS},
        "exceeded": bool(row.fields.get("exceeded")),
        "forecast_exceeded": bool(row.fields.get("forecast_exceeded")),
        "age_s": _age_s(row, now_ns),
    }


def _sinks(reader: StoreReader, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each sink's progress from the store, and its last reported state."""
    states = status.get("sinks", {})
    sinks = []
    for sink in reader.sinks():
        outbox = outbox_document(sink)
        now = states.get(sink.sink, {})
        sinks.append(
            {
                "sink": sink.sink,
                "state": now.get("state"),
                **{name: value for name, value in outbox.items() if name != "acked_seq"},
                "last_error": now.get("last_error"),
            }
        )
    return sinks


def _faults(
    states: States, status: Mapping[str, Any] | None, age_s: float | None, *, running: bool
) -> list[str]:
    """Return the faults of all parts; none if the daemon is not running."""
    if status is None or not running:
        return []
    alerts, _ = states.get("alerts", ({"alerts": []}, 0))
    complete_status = {
        **status,
        "age_s": age_s,
        "running": True,
        "alerts": alerts["alerts"],
        "outbox": {},
    }
    return faults_of(complete_status)


def _alerts(states: States) -> list[dict[str, Any]]:
    document, _ = states.get("alerts", ({}, 0))
    silenced = set(document.get("silenced", ()))
    return [
        {
            "id": alert["id"],
            "rule": alert["name"],
            "severity": alert["severity"],
            "summary": alert["summary"],
            "labels": alert["labels"],
            "since": iso(alert["since_ns"]),
            "silenced": alert["id"] in silenced,
        }
        for alert in document.get("alerts", ())
        if alert["state"] == "firing"
    ]


def _age_s(row: Point, now_ns: int) -> float:
    return max(0.0, (now_ns - row.time_ns) / NS_PER_S)
