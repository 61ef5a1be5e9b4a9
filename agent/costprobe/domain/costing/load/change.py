"""The change of a load curve since an earlier one, at the same loads and lengths of requests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.load.curve import LoadCurve
from costprobe.domain.costing.load.point import LoadPoint
from costprobe.domain.costing.quantiles import student_quantile

# Fewer common points cannot be distinguished from noise.
POINTS_MIN: Final = 2
# A smaller change of the median point is within the noise of windows of some 20 s.
CHANGE_MIN: Final = 0.05
# Share of the common points that changed in the same direction.
AGREEING_MIN: Final = 0.75
# Requests of another length are another workload.
LENGTH_TOLERANCE: Final = 0.05
# A new level that lasted so long is the one that later curves are compared with.
ACCEPTED_AFTER_S: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class CurveChange:
    """The change of the throughput at the same loads.

    Attributes:
        since_ns: UTC in ns of the earlier curve.
        throughput_pct: Change of the median common point in percent.
        uncertainty_pct: Uncertainty (95 %) of it in percent: the smaller one of two, from the
            latencies of both curves, and from the differences between the points.
        points: Number of common points.
        is_persistent: Whether it is beyond the noise: at least 5 %, more than its uncertainty, and in
            the same direction at three of four points.
        other_software: Whether server, model or prompt have another fingerprint.
    """

    since_ns: int
    throughput_pct: float
    uncertainty_pct: float
    points: int
    is_persistent: bool
    other_software: bool


@dataclass(frozen=True, slots=True)
class CurveShift:
    """A newest curve that differs from the level before, or is back at it.

    Attributes:
        baseline: The curve of the level before.
        newest: The newest curve.
        change: Its change since the baseline.
        since_ns: UTC in ns of the last curve of the level before.
        is_back: Whether an earlier shift is over.
    """

    baseline: LoadCurve
    newest: LoadCurve
    change: CurveChange
    since_ns: int
    is_back: bool


def curve_change(before: LoadCurve, after: LoadCurve) -> CurveChange | None:
    """Return the change between two curves of a probe; None without enough common points.

    The price has no influence: its changes are events of their own.
    """
    common = common_points(before, after)
    if len(common) < POINTS_MIN:
        return None
    logs = [math.log(new.work_per_s / old.work_per_s) for old, new in common]
    change = statistics.median(logs)
    agreeing = sum(each * change > 0 for each in logs) / len(logs)
    uncertainty = min(
        math.sqrt(math.fsum(old.rel_err**2 + new.rel_err**2 for old, new in common)) / len(logs),
        # Without percentiles of the latencies the first one is that of any spread.
        student_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)),
    )
    is_large = abs(math.expm1(change)) >= CHANGE_MIN and abs(change) > uncertainty
    return CurveChange(
        since_ns=before.time_ns,
        throughput_pct=math.expm1(change) * 100,
        uncertainty_pct=uncertainty * 100,
        points=len(logs),
        is_persistent=is_large and agreeing >= AGREEING_MIN,
        other_software=before.fingerprint != after.fingerprint,
    )


def common_points(before: LoadCurve, after: LoadCurve) -> list[tuple[LoadPoint, LoadPoint]]:
    """Return the points of both curves with the same requests in flight and the same mean lengths."""
    earlier = {point.concurrency: point for point in before.points if point.loop == "closed"}
    common = []
    for point in after.points:
        old = earlier.get(point.concurrency) if point.loop == "closed" else None
        if old is not None and old.work_per_s and point.work_per_s and _is_same_work(old, point):
            common.append((old, point))
    return common


def newest_shift(curves: Sequence[LoadCurve]) -> CurveShift | None:
    """Return the shift of the newest curve; None if the newest one is as the one before.

    Curves are compared with the first one of a level, so that a slow change adds up. A new level is the
    one to compare with after ACCEPTED_AFTER_S, or as soon as requests have other lengths.

    Args:
        curves: All curves of a probe on its devices, in order of time; at least one.
    """
    baseline = level = curves[0]
    since_ns, shifted_ns = baseline.time_ns, 0
    found: CurveShift | None = None
    for curve in curves[1:]:
        found = None
        is_shifted = level is not baseline
        if is_shifted and curve.time_ns - shifted_ns > ACCEPTED_AFTER_S * NS_PER_S:
            baseline, is_shifted = level, False
        change = curve_change(baseline, curve)
        if change is None:
            baseline = level = curve
        elif not change.is_persistent:
            if is_shifted:
                found = CurveShift(baseline, curve, change, since_ns, is_back=True)
            level = baseline
        else:
            further = curve_change(level, curve)
            if not is_shifted:
                shifted_ns = curve.time_ns
            if not is_shifted or further is None or further.is_persistent:
                found = CurveShift(baseline, curve, change, since_ns, is_back=False)
                level = curve
        if level is baseline:
            since_ns = curve.time_ns
    return found


def _is_same_work(before: LoadPoint, after: LoadPoint) -> bool:
    for name in ("tokens_in", "tokens_out"):
        old, new = before[name], after[name]
        if (old is None) != (new is None):
            return False
        if old and new and abs(new / old - 1) > LENGTH_TOLERANCE:
            return False
    return True
