"""History API: trends with event marks, and incidents."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from costprobe.adapters.store.read import StoreReader
from costprobe.core.records import NS_PER_S, Point
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
