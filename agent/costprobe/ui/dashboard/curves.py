"""Curves of `/api/sweeps`: cost and latency by batch size, and of a server by load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import number
from costprobe.core.records import NS_PER_S, Point
from costprobe.probing.load_curve import curve_from_rows, is_load_row
from costprobe.ui.dashboard.now import NS_PER_MS, json_value

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
