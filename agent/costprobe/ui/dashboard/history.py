"""History API: trends with event marks, incidents, sweeps, and cost by device state."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from costprobe.adapters.storage.history import SeriesValues
from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.budgeting.label_spend import label_spend
from costprobe.app.budgeting.spend_reading import DAY_NS, LATE_NS, Usual, cost_rows, span_spend
from costprobe.core.host import OWN_TAGS
from costprobe.core.records import NS_PER_S, Point
from costprobe.domain.costing.budgets.periods import TimeSpan
from costprobe.domain.costing.budgets.spend import coverage_of, spend_by_step
from costprobe.domain.costing.comparison.compare_rows import number
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
CURVES_MAX = 40
SWEEP_ROWS_MAX = 20_000
# Utilization above which a device counts as busy.
IDLE_BELOW_PCT = 5.0
SPEND_RANGE_S = 86_400.0
# Length of a row of a device with fewer than three.
USUAL_S = 10.0
# Names of labels, and values of each.
LABELS_MAX = 50
# A smaller share without the label is a rounding error, or a window that began before the day.
LEAST_REST = 0.001


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


def sweeps_document(reader: StoreReader, now_ns: int) -> dict[str, Any]:
    """Return the newest batch-size curve of each probe on each device.

    Raises:
        StoreError: The store cannot be read.
    """
    newest: dict[tuple[str, str], int] = {}
    for row in reader.last("sweep", now_ns):
        key = (row.tags.get("device", ""), row.tags.get("probe", ""))
        newest[key] = max(newest.get(key, 0), row.time_ns)
    latest = sorted(newest.items(), key=lambda item: item[1], reverse=True)
    curves = [
        _curve(
            islice(
                reader.points("sweep", time_ns, time_ns + 1, {"device": device, "probe": probe}),
                SWEEP_ROWS_MAX,
            ),
            time_ns,
            now_ns,
        )
        for (device, probe), time_ns in latest[:CURVES_MAX]
    ]
    return {"left_out": max(0, len(latest) - CURVES_MAX), "curves": curves}


def _curve(rows: Iterable[Point], time_ns: int, now_ns: int) -> dict[str, Any]:
    """Return a curve; of several numbers of threads of a CPU the fastest of each batch size."""
    points: dict[int, dict[str, Any]] = {}
    speeds: dict[int, float] = {}
    tags: Mapping[str, str] = {}
    for row in rows:
        batch = row.tags.get("batch", "")
        if batch.isascii() and batch.isdigit():
            tags = row.tags
            fields = {name: json_value(value) for name, value in row.fields.items()}
            speed = number(row, "throughput_per_s") or 0.0
            if speed >= speeds.get(int(batch), 0.0):
                speeds[int(batch)] = speed
                points[int(batch)] = {"batch": int(batch), **fields}
    return {
        "tags": {name: value for name, value in tags.items() if name not in ("batch", "threads")},
        "time_ms": time_ns // NS_PER_MS,
        "age_s": max(0.0, (now_ns - time_ns) / NS_PER_S),
        "points": [points[batch] for batch in sorted(points)],
    }


def spend_document(reader: StoreReader, now_ns: int) -> dict[str, Any]:
    """Return the cost of each device in the last day, what rows cover of it, its idle share, and labels.

    A device whose utilization is unknown has no idle share. The costs of a label's values and of
    none add up to the cost of the devices.

    Raises:
        StoreError: The store cannot be read.
    """
    day = TimeSpan(now_ns - int(SPEND_RANGE_S * NS_PER_S), now_ns)
    span = (day.start_ns - LATE_NS, day.end_ns + 1)
    used = {_key(s): s for s in reader.values("device", "util_pct", *span)}
    costs = [
        series
        for series in reader.values("device", "cost", *span)
        if series.times_ns[-1] >= day.start_ns
    ]
    return {
        "since_ms": day.start_ns // NS_PER_MS,
        "until_ms": now_ns // NS_PER_MS,
        "idle_below_pct": IDLE_BELOW_PCT,
        "devices": [_spend(series, used.get(_key(series)), day) for series in costs],
        "labels": _label_costs(
            costs, reader.values("allocation", "cost", day.start_ns, now_ns), day
        ),
    }


def _label_costs(
    costs: Sequence[SeriesValues], allocations: Sequence[SeriesValues], day: TimeSpan
) -> list[dict[str, Any]]:
    """Return the cost of each value of each label; None is the cost without the label."""
    names = {name for series in (*costs, *allocations) for name in series.tags} - OWN_TAGS
    usual = Usual(USUAL_S)
    totals = {
        currency: math.fsum(device.cost for device in spend.by_device.values())
        for currency, spend in span_spend(costs, day, usual, _unknown_currency).items()
    }
    found = []
    for name in sorted(names)[:LABELS_MAX]:
        labelled = label_spend(name, costs, allocations, day, usual, _unknown_currency)
        for currency, total in sorted(totals.items()):
            parts = labelled.get(currency, {})
            largest = sorted(parts.items(), key=lambda part: (-part[1], part[0]))[:LABELS_MAX]
            rest = total - math.fsum(cost for _, cost in largest)
            values = [*largest, (None, rest)] if rest > total * LEAST_REST else largest
            found += [
                {"label": name, "value": value, "currency": currency, "cost": cost}
                for value, cost in values
            ]
    return found


def _unknown_currency(device: str, time_ns: int) -> str:  # noqa: ARG001 - the currency of a row without one
    return "?"


def _key(series: SeriesValues) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(series.tags.items()))


def _spend(cost: SeriesValues, used: SeriesValues | None, day: TimeSpan) -> dict[str, Any]:
    util_pct = dict(zip(used.times_ns, used.values, strict=True)) if used else {}
    rows = [
        (time_ns, amount)
        for time_ns, amount in zip(cost.times_ns, cost.values, strict=True)
        if time_ns >= day.start_ns
    ]
    judged = [(amount, util_pct[time_ns]) for time_ns, amount in rows if time_ns in util_pct]
    judged_cost = sum(amount for amount, _ in judged)
    idle = sum(amount for amount, pct in judged if pct < IDLE_BELOW_PCT)
    parts = list(spend_by_step(cost_rows([cost]), USUAL_S, day, DAY_NS))
    covered_s = {cost.tags.get("device", ""): sum(part_s for *_, part_s in parts)}
    return {
        "tags": dict(cost.tags),
        "cost": sum(amount for _, amount, _ in parts),
        "coverage": coverage_of(covered_s, SPEND_RANGE_S),
        "samples": len(rows),
        "idle_share": idle / judged_cost if judged_cost > 0 else None,
    }
