"""The change of a load curve since an earlier one, at the same loads and lengths of requests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.core.records import Event
from costprobe.core.schema import LOAD_CURVE
from costprobe.domain.costing.load.curve import LoadCurve
from costprobe.domain.costing.load.point import LoadPoint

# Fewer common points cannot be distinguished from noise.
POINTS_MIN: Final = 2
# A smaller change of the median point is within the noise of windows of some 20 s.
CHANGE_MIN: Final = 0.05
# Share of the common points that changed in the same direction.
AGREEING_MIN: Final = 0.75
# Requests of another length are another workload.
LENGTH_TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class CurveChange:
    """The change of the throughput at the same loads.

    Attributes:
        since_ns: UTC in ns of the earlier curve.
        throughput_pct: Change of the median common point in percent.
        points: Number of common points.
        is_persistent: Whether it is beyond the noise: at least 5 %, and in the same direction at
            three of four points.
        other_software: Whether software, model or workload have another fingerprint.
    """

    since_ns: int
    throughput_pct: float
    points: int
    is_persistent: bool
    other_software: bool


def curve_change(before: LoadCurve, after: LoadCurve) -> CurveChange | None:
    """Return the change between two curves of a probe; None without enough common points.

    Points are common if they have the same requests in flight and the same mean lengths. The price has
    no influence: its changes are events of their own.
    """
    earlier = {point.concurrency: point for point in before.points if point.loop == "closed"}
    logs = []
    for point in after.points:
        old = earlier.get(point.concurrency) if point.loop == "closed" else None
        if old is not None and old.work_per_s and point.work_per_s and _is_same_work(old, point):
            logs.append(math.log(point.work_per_s / old.work_per_s))
    if len(logs) < POINTS_MIN:
        return None
    change = statistics.median(logs)
    agreeing = sum(each * change > 0 for each in logs) / len(logs)
    is_large = abs(math.expm1(change)) >= CHANGE_MIN
    return CurveChange(
        since_ns=before.time_ns,
        throughput_pct=math.expm1(change) * 100,
        points=len(logs),
        is_persistent=is_large and agreeing >= AGREEING_MIN,
        other_software=before.fingerprint != after.fingerprint,
    )


def change_event(curves: Sequence[LoadCurve]) -> Event | None:
    """Return the event of a newest curve that differs from the one before; None if it does not.

    Args:
        curves: All curves of a probe on its devices, in order of time.
    """
    if len(curves) < 2:  # noqa: PLR2004 - a change has two sides
        return None
    newest = curves[-1]
    change = curve_change(curves[-2], newest)
    if change is None or not change.is_persistent:
        return None
    level = curve_change(curves[0], newest)
    worse = change.throughput_pct < 0
    old, new = (f"{curve.fastest.work_per_s:.4g}/s at most" for curve in curves[-2:])
    return Event(
        kind="drift",
        severity="warning" if worse else "info",
        title=(
            f"load curve of {newest.probe} on {newest.device}: throughput"
            f" {change.throughput_pct:+.0f} % at the same loads"
        ),
        time_ns=newest.time_ns,
        detail=(
            "software, model or workload changed"
            if change.other_software
            else "software and model are the same: compare clocks, power limits and server options"
        ),
        device=newest.device,
        subject={"probe": newest.probe},
        before=old,
        after=new,
        cause="software" if change.other_software else "",
        metric=LOAD_CURVE,
        change_pct=change.throughput_pct,
        level_pct=None if level is None else level.throughput_pct,
        since_ns=change.since_ns,
    )


def _is_same_work(before: LoadPoint, after: LoadPoint) -> bool:
    for name in ("tokens_in", "tokens_out"):
        old, new = before[name], after[name]
        if (old is None) != (new is None):
            return False
        if old and new and abs(new / old - 1) > LENGTH_TOLERANCE:
            return False
    return True
