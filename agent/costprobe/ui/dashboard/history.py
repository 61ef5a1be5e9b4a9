"""History API: trends with event marks, and incidents."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import number
from costprobe.core.records import NS_PER_S, Point
from costprobe.probing.load_curve import curve_from_rows, is_load_row
from costprobe.ui.dashboard.now import NS_PER_MS, json_value
from costprobe.ui.dashboard.parameters import TimeRange, TrendQuery
from costprobe.ui.dashboard.trend import BASE_DAYS, TrendAnswer
from costprobe.ui.incidents import incidents_of

MARKS_MAX = 500
INCIDENTS_MAX = 200
# Changes of plan and labels of each series, the newest.
CHANGES_MAX = 20
ALERT_ROWS_MAX = 20_000
# How long before a time range an incident may have fired that is in it.
FIRING_MAX_S = 30 * 86_400.0


def trend_document(query: TrendQuery, answer: TrendAnswer) -> dict[str, Any]:
    """Return the response of `/api/trend`."""
    return {
        "measurement": query.measurement,
        "field": query.field,
        "since_ms": query.time.since_ns // NS_PER_MS,
        "until_ms": query.time.until_ns // NS_PER_MS,
        "scale": answer.scale,
        "base_d": BASE_DAYS,
        "sampled": answer.is_sampled,
        "left_out": answer.left_out,
        "without_base": answer.without_base,
        "series": [
            {
                "tags": series.tags,
                "samples": series.samples,
                "times_ms": [time_ns // NS_PER_MS for time_ns in series.times_ns],
                "values": series.values,
                "lows": series.lows,
                "highs": series.highs,
                "base": series.base,
                "members": series.members,
                "changes": [
                    {
                        "time_ms": change.time_ns // NS_PER_MS,
                        "tag": change.tag,
                        "before": change.before,
                        "after": change.after,
                    }
                    for change in series.changes[-CHANGES_MAX:]
                ],
            }
            for series in answer.series
        ],
    }


def marks_document(reader: StoreReader, time: TimeRange) -> dict[str, Any]:
    """Return the newest events of a time range, oldest first.

    Raises:
        StoreError: The store cannot be read.
    """
    newest: deque[Point] = deque(maxlen=MARKS_MAX)
    count = 0
    for row in reader.points("event", time.since_ns, time.until_ns):
        newest.append(row)
        count += 1
    return {"left_out": count - len(newest), "marks": [_mark(row) for row in newest]}


def _mark(row: Point) -> dict[str, Any]:
    texts = ("severity", "title", "detail", "before", "after", "cause", "change_pct", "level_pct")
    return {
        "time_ms": row.time_ns // NS_PER_MS,
        "tags": dict(row.tags),
        **{name: json_value(row.fields[name]) for name in texts if name in row.fields},
    }


def incidents_document(reader: StoreReader, time: TimeRange) -> dict[str, Any]:
    """Return the newest incidents that fired within a time range or up to it, newest first.

    Raises:
        StoreError: The store cannot be read.
    """
    first_ns = time.since_ns - int(FIRING_MAX_S * NS_PER_S)
    rows = deque(reader.points("alert", first_ns, time.until_ns), maxlen=ALERT_ROWS_MAX)
    incidents = [
        incident
        for incident in incidents_of(rows)
        if incident["resolved_ns"] is None or incident["resolved_ns"] >= time.since_ns
    ]
    incidents.sort(key=lambda incident: incident["fired_ns"], reverse=True)
    return {
        "left_out": max(0, len(incidents) - INCIDENTS_MAX),
        "incidents": [_incident(incident) for incident in incidents[:INCIDENTS_MAX]],
    }


def _incident(incident: Mapping[str, Any]) -> dict[str, Any]:
    resolved_ns = incident["resolved_ns"]
    copied_keys = ("id", "name", "labels", "severity", "summary", "detail", "cause")
    return {
        **{name: incident.get(name) for name in copied_keys},
        "fired_ms": incident["fired_ns"] // NS_PER_MS,
        "resolved_ms": None if resolved_ns is None else resolved_ns // NS_PER_MS,
    }


CURVES_MAX = 40
ROWS_MAX = 20_000
# Tags of a point, which its curve does not have.
_OF_POINT = {"batch", "threads", "loop", "step", "concurrency"}


def sweeps_document(reader: StoreReader, now_ns: int) -> dict[str, Any]:
    """Return the newest batch-size curve and the newest load curve of each probe on each device.

    Raises:
        StoreError: The store cannot be read.
    """
    newest: dict[tuple[str, str, bool], int] = {}
    for row in reader.last("sweep", now_ns):
        key = (row.tags.get("device", ""), row.tags.get("probe", ""), is_load_row(row))
        newest[key] = max(newest.get(key, 0), row.time_ns)
    latest = sorted(newest.items(), key=lambda item: item[1], reverse=True)
    curves: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for (device, probe, is_load), time_ns in latest[:CURVES_MAX]:
        tags = {"device": device, "probe": probe}
        found = islice(reader.points("sweep", time_ns, time_ns + 1, tags), ROWS_MAX)
        rows = [row for row in found if is_load_row(row) == is_load]
        curve = {
            "tags": {name: value for name, value in rows[0].tags.items() if name not in _OF_POINT},
            "time_ms": time_ns // NS_PER_MS,
            "age_s": max(0.0, (now_ns - time_ns) / NS_PER_S),
        }
        curves[is_load].append({**curve, **(_by_load(rows) if is_load else _by_batch(rows))})
    return {
        "left_out": max(0, len(latest) - CURVES_MAX),
        "curves": curves[False],
        "loads": curves[True],
    }


def _by_batch(rows: Iterable[Point]) -> dict[str, Any]:
    """Return the points of a sweep; of several numbers of threads of a CPU the fastest of each batch size."""
    points: dict[int, dict[str, Any]] = {}
    speeds: dict[int, float] = {}
    for row in rows:
        batch = row.tags.get("batch", "")
        speed = number(row, "throughput_per_s") or 0.0
        if batch.isascii() and batch.isdigit() and speed >= speeds.get(int(batch), 0.0):
            speeds[int(batch)] = speed
            points[int(batch)] = {"batch": int(batch), **_fields(row)}
    return {"points": [points[batch] for batch in sorted(points)]}


def _by_load(rows: list[Point]) -> dict[str, Any]:
    """Return the points of a load curve in the order of the load; an unknown cost or speed is null."""
    fields = {(row.tags["loop"], row.tags.get("step", "")): _fields(row) for row in rows}
    curve = curve_from_rows(rows, {})
    points = [
        {
            **fields[point.loop, str(point.number)],
            "load": point.text,
            "cost": point.cost,
            "speed_per_s": point.speed,
            "work_per_s": point.work_per_s,
        }
        for point in curve.points
        if (point.loop, str(point.number)) in fields
    ]
    return {
        "slo": next((each["slo"] for each in fields.values() if "slo" in each), ""),
        "unit": "token" if any(point["tokens_out_per_s"] for point in curve.points) else "request",
        "points": points,
    }


def _fields(row: Point) -> Mapping[str, Any]:
    return {name: json_value(value) for name, value in row.fields.items()}
