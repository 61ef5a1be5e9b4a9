"""The change of a load curve since an earlier one, and its event.

Curves are compared at the same loads and lengths of requests. The event states what changed at
which load, in money, and which signals changed with it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from costprobe.core.money import price_scale, scale_words
from costprobe.core.records import BOARD, NS_PER_S, Event, Point
from costprobe.core.schema import LOAD_CURVE
from costprobe.core.statistics import student_quantile
from costprobe.core.units import counted, significant
from costprobe.drift.before_after import Levels
from costprobe.drift.causes import UNKNOWN, causes, explanation_of
from costprobe.drift.events import change_event, level_event
from costprobe.drift.findings import ACCEPTED_AFTER_S, CHANGE_MIN
from costprobe.drift.message import ChangeFacts, MoneyChange
from costprobe.drift.runs import DetectionRun, device_conditions
from costprobe.probing.load_curve import LoadCurve, LoadPoint
from costprobe.unit_costs.change import capacity_worth

# Fewer common points cannot be distinguished from noise.
POINTS_MIN: Final = 2
# Share of the common points that changed in the same direction.
AGREEING_MIN: Final = 0.75
# Requests of another length are another workload.
LENGTH_TOLERANCE: Final = 0.05

_MILLION: Final = 1_000_000
_ACTION: Final = (
    "compare the server's options and the device's clocks with those of the curve before, and repeat"
    " the curve"
)


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


@dataclass(frozen=True, slots=True)
class PresentLoad:
    """The load of the servers of a curve in production.

    Attributes:
        per_s: Generated tokens per second, or requests where the curve has no tokens.
        replicas: Servers that share it.
    """

    per_s: float
    replicas: int = 1


def curve_change(before: LoadCurve, after: LoadCurve) -> CurveChange | None:
    """Return the change between two curves of a probe; None without enough common points.

    The price has no influence: its changes are events of their own.
    """
    common = _common_points(before, after)
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


def _common_points(before: LoadCurve, after: LoadCurve) -> list[tuple[LoadPoint, LoadPoint]]:
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


def load_curve_event(
    shift: CurveShift,
    rows: tuple[Sequence[Point], Sequence[Point]],
    load: PresentLoad | None,
) -> Event:
    """Return the event of a shift of a load curve.

    Args:
        shift: The shift.
        rows: Rows of `device` while the baseline was measured, and while the newest curve was.
        load: The load in production; None if unknown.
    """
    newest, change = shift.newest, shift.change
    if not shift.is_back:
        return _changed(shift, rows, load)
    title = f"load curve of {newest.probe} on {newest.device} is back at the level before"
    event = level_event(title, _tags(newest), LOAD_CURVE, newest.time_ns, newest.time_ns)
    return replace(event, detail=_at_all_loads(shift), change_pct=change.throughput_pct)


def _tags(curve: LoadCurve) -> dict[str, str]:
    return {"device": curve.device, "probe": curve.probe}


def _levels(
    shift: CurveShift,
    rows: tuple[Sequence[Point], Sequence[Point]],
    points: tuple[LoadPoint, LoadPoint],
) -> Levels:
    """Return both curves at a load as levels of one run each."""
    runs, software = [], []
    for curve, of_device, point in zip((shift.baseline, shift.newest), rows, points, strict=True):
        time_s, device = 1 / point.work_per_s, device_conditions(of_device)
        runs.append(
            DetectionRun(curve.time_ns, None, time_s, None, None, 0.0, curve.fingerprint, device)
        )
        boards = {row.tags.get("uuid", "") for row in of_device}
        versions = {"fingerprint": curve.fingerprint}
        software.append(versions | ({BOARD: boards.pop()} if len(boards) == 1 else {}))
    sign = 1 if shift.change.throughput_pct < 0 else -1
    before, after = ((run,) for run in runs)
    return Levels("throughput", before, after, before, sign, (software[0], software[1]))


def _changed(
    shift: CurveShift,
    rows: tuple[Sequence[Point], Sequence[Point]],
    load: PresentLoad | None,
) -> Event:
    newest = shift.newest
    old, new = _at_load(shift, load)
    ratio = new.work_per_s / old.work_per_s
    is_worse = shift.change.throughput_pct < 0
    has_tokens = bool(new["tokens_out_per_s"])
    unit = "generated token" if has_tokens else "request"
    levels = _levels(shift, rows, (old, new))
    explained = explanation_of(causes(levels), levels)
    paid = _money(new, ratio, unit, newest.currency)
    per = "million generated tokens" if has_tokens else "request"
    what = "throughput" if paid is None else f"cost per {per}"
    facts = ChangeFacts(
        what=f"{what} of the load curve of {newest.probe} on {newest.device} at {new.text}",
        change_pct=((1 / ratio if paid else ratio) - 1) * 100,
        since_ns=shift.since_ns,
        now_ns=newest.time_ns,
        is_worse=is_worse,
        explanation=explained,
        basis="" if paid is None else "at constant price",
        money=paid,
        split=(
            f"{unit}s/s {significant(old.work_per_s)} → {significant(new.work_per_s)} at {new.text};"
            f" {_at_all_loads(shift)}"
        ),
        action=_ACTION if explained.name == UNKNOWN else "",
        device=newest.device,
    )
    throughput_pct = shift.change.throughput_pct
    return change_event(
        facts,
        _tags(newest),
        LOAD_CURVE,
        before=f"{significant(old.work_per_s)}/s",
        after=f"{significant(new.work_per_s)}/s",
        change_pct=throughput_pct,
        level_pct=throughput_pct,
    )


def _at_load(shift: CurveShift, load: PresentLoad | None) -> tuple[LoadPoint, LoadPoint]:
    """Return the common point nearest to the present load; the one with most work without a load."""
    common = _common_points(shift.baseline, shift.newest)
    if load is None or not load.per_s:
        return max(common, key=lambda pair: pair[0].work_per_s)
    per_s = load.per_s / load.replicas
    return min(common, key=lambda pair: abs(math.log(pair[0].work_per_s / per_s)))


def _at_all_loads(shift: CurveShift) -> str:
    change = shift.change
    return (
        f"throughput {change.throughput_pct:+z.1f} % ±{change.uncertainty_pct:.1f} % at the median of"
        f" {counted(change.points, 'load')}"
    )


def _money(new: LoadPoint, ratio: float, unit: str, currency: str) -> MoneyChange | None:
    """Return the change of the cost at a load, at the price of the newest curve; None without one.

    A server that does less takes so much longer for the same work.
    """
    if new.cost is None or not currency:
        return None
    each = new.cost / _MILLION if new["tokens_out_per_s"] else new.cost
    scale = _MILLION if new["tokens_out_per_s"] else price_scale(each)
    return MoneyChange(
        amount=each * (1 - ratio) * scale,
        unit=scale_words(scale, unit),
        currency=currency,
        per_month=capacity_worth(each * new.work_per_s, 1 / ratio),
    )
