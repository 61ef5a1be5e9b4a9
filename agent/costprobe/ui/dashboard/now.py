"""Current state of devices, probes, alerts and components, as one document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from costprobe.adapters.store.database import decoding
from costprobe.adapters.store.read import StoreReader
from costprobe.alerts.faults import disk_of, present_faults
from costprobe.core.records import NS_PER_S, FieldValue, Point, natural
from costprobe.core.schema import OWN_TAGS
from costprobe.ui.incidents import is_running

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
    """Return the newest state, for `/api/now` and for live updates.

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
            "alerts_time_ms": alerts_ns // NS_PER_MS if alerts_ns else None,
            "faults": _faults(status, status_ns, now_ns, reader),
        }
    probes = _newest(reader.last("probe", now_ns), _OF_PROBE, now_ns)
    costs = _newest(reader.last("cost", now_ns), _OF_COST, now_ns)
    devices = _newest(reader.last("device", now_ns), _OF_DEVICE, now_ns)
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


def _newest(rows: Iterable[Point], identity: Sequence[str], now_ns: int) -> list[Point]:
    """Return the newest row of each identity, by name; earlier plans and batches are omitted."""
    newest: dict[tuple[str, ...], Point] = {}
    oldest_ns = now_ns - int(FORGOTTEN_S * NS_PER_S)
    for row in rows:
        key = tuple(row.tags.get(tag, "") for tag in identity)
        if row.time_ns >= oldest_ns and (key not in newest or newest[key].time_ns < row.time_ns):
            newest[key] = row
    return [newest[key] for key in sorted(newest, key=lambda key: natural(*key))]


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


def _faults(
    status: Mapping[str, Any] | None, written_ns: int, now_ns: int, reader: StoreReader
) -> list[dict[str, str]]:
    if status is None or not _runs(status, written_ns, now_ns):
        return [_fault("not_running", "the daemon is not running; see `costprobe status`")]
    try:
        disk = disk_of(reader.path)
    except OSError:
        disk = None
    try:
        present = present_faults(status, disk)
    except (AttributeError, KeyError, TypeError, ValueError):
        text = "the daemon has another version than this page; restart both"
        return [_fault("another_version", text)]
    faults = [
        {"name": f.name, "subject": f.subject, "text": f.text, "severity": f.severity}
        for f in present[:ENTRIES_MAX]
    ]
    return faults + _job_faults(status)


def _job_faults(status: Mapping[str, Any]) -> list[dict[str, str]]:
    jobs: Mapping[str, Any] = status.get("jobs", {})
    errors = ((name, job.get("last_error")) for name, job in list(jobs.items())[:ENTRIES_MAX])
    return [_fault("job_failing", f"{name}: {error}", name) for name, error in errors if error]


def _fault(name: str, text: str, subject: str = "") -> dict[str, str]:
    return {"name": name, "subject": subject, "text": text, "severity": "warning"}
