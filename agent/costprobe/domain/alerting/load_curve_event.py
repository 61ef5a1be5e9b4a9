"""The event of a changed load curve: what changed at which load, in money, and what changed with it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from costprobe.core.money_text import price_scale, scale_words
from costprobe.core.records import BOARD, Event, Point
from costprobe.core.row_values import number
from costprobe.core.schema import LOAD_CURVE
from costprobe.core.units import HOUR_S, MONTH_H, counted, significant
from costprobe.domain.alerting.change_message import (
    ChangeFacts,
    MoneyChange,
    change_message,
    money_a_month,
)
from costprobe.domain.costing.load.change import CurveShift, common_points
from costprobe.domain.costing.load.curve import LoadCurve
from costprobe.domain.costing.load.point import LoadPoint
from costprobe.domain.detection.causes import UNKNOWN, Explanation, causes
from costprobe.domain.detection.conditions import Comparison, Conditions, SignalSample

_MILLION: Final = 1_000_000
# The clock and the temperature of a device without work are those of no load.
_BUSY_PCT: Final = 50.0
_SIGNALS: Final = ("sm_clock_mhz", "mem_clock_mhz", "power_limit_w", "temp_c")
_ACTION: Final = (
    "compare the server's options and the device's clocks with those of the curve before, and repeat"
    " the curve"
)


@dataclass(frozen=True, slots=True)
class PresentLoad:
    """The load of the servers of a curve in production.

    Attributes:
        per_s: Generated tokens per second, or requests where the curve has no tokens.
        replicas: Servers that share it.
    """

    per_s: float
    replicas: int = 1


def conditions_of(rows: Iterable[Point], curve: LoadCurve) -> Conditions:
    """Return the conditions of a device while a curve was measured.

    Args:
        rows: Its rows of `device` then.
        curve: The curve.
    """
    values: dict[str, list[float]] = {name: [] for name in _SIGNALS}
    errors, boards = [], set()
    for row in rows:
        boards.add(row.tags.get("uuid", ""))
        if (found := number(row, "ecc_uncorrected")) is not None:
            errors.append(int(found))
        util_pct = number(row, "util_pct")
        if util_pct is not None and util_pct < _BUSY_PCT:
            continue
        for name, held in values.items():
            if (found := number(row, name)) is not None:
                held.append(found)
    software = {"fingerprint": curve.fingerprint}
    if len(boards) == 1:
        software[BOARD] = boards.pop()
    return Conditions(
        software=software,
        ecc_uncorrected=max(errors, default=None),
        sm_clock_mhz=_sample(values["sm_clock_mhz"]),
        mem_clock_mhz=_sample(values["mem_clock_mhz"]),
        power_limit_w=_sample(values["power_limit_w"]),
        temp_c=_sample(values["temp_c"]),
    )


def _sample(values: Sequence[float]) -> SignalSample | None:
    if not values:
        return None
    return SignalSample(statistics.fmean(values), statistics.pstdev(values), len(values))


def load_curve_event(
    shift: CurveShift, before: Conditions, after: Conditions, load: PresentLoad | None
) -> Event:
    """Return the event of a shift of a load curve.

    Args:
        shift: The shift.
        before: Conditions while the baseline was measured.
        after: Conditions while the newest curve was measured.
        load: The load in production; None if unknown.
    """
    newest, change = shift.newest, shift.change
    event = Event(
        kind="drift",
        severity="info",
        title=f"load curve of {newest.probe} on {newest.device} is back at the level before",
        time_ns=newest.time_ns,
        detail=_at_all_loads(shift),
        device=newest.device,
        subject={"probe": newest.probe},
        metric=LOAD_CURVE,
        change_pct=change.throughput_pct,
        level_pct=0.0,
        since_ns=newest.time_ns,
    )
    return event if shift.is_back else _changed(event, shift, Comparison(before, after), load)


def _changed(
    event: Event, shift: CurveShift, compared: Comparison, load: PresentLoad | None
) -> Event:
    newest = shift.newest
    old, new = _at_load(shift, load)
    ratio = new.work_per_s / old.work_per_s
    is_worse = shift.change.throughput_pct < 0
    has_tokens = bool(new["tokens_out_per_s"])
    unit = "generated token" if has_tokens else "request"
    found = causes(replace(compared, sign=1 if is_worse else -1))
    name = found[0].name if found else UNKNOWN
    paid = _money(new, ratio, unit, newest.currency, load)
    per = "million generated tokens" if has_tokens else "request"
    what = "throughput" if paid is None else f"cost per {per}"
    facts = ChangeFacts(
        what=f"{what} of the load curve of {newest.probe} on {newest.device} at {new.text}",
        change_pct=((1 / ratio if paid else ratio) - 1) * 100,
        since_ns=shift.since_ns,
        now_ns=newest.time_ns,
        is_worse=is_worse,
        explanation=Explanation(name, found),
        basis="" if paid is None else "at constant price",
        money=paid,
        split=(
            f"{unit}s/s {significant(old.work_per_s)} → {significant(new.work_per_s)} at {new.text};"
            f" {_at_all_loads(shift)}"
        ),
        action=_ACTION if name == UNKNOWN else "",
    )
    message = change_message(facts)
    return replace(
        event,
        severity="warning" if is_worse else "info",
        title=message.headline,
        detail=message.reason,
        before=f"{significant(old.work_per_s)}/s",
        after=f"{significant(new.work_per_s)}/s",
        cause=name,
        level_pct=shift.change.throughput_pct,
        since_ns=shift.since_ns,
        **money_a_month(paid),
    )


def _at_load(shift: CurveShift, load: PresentLoad | None) -> tuple[LoadPoint, LoadPoint]:
    """Return the common point nearest to the present load; the one with most work without a load."""
    common = common_points(shift.baseline, shift.newest)
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


def _money(
    new: LoadPoint, ratio: float, unit: str, currency: str, load: PresentLoad | None
) -> MoneyChange | None:
    """Return the change of the cost at a load, at the price of the newest curve; None without one.

    A server that does less takes so much longer for the same work.
    """
    if new.cost is None or not currency:
        return None
    each = new.cost / _MILLION if new["tokens_out_per_s"] else new.cost
    more = each * (1 - ratio)
    rate_per_s = load.per_s if load is not None and load.per_s else new.work_per_s
    scale = _MILLION if new["tokens_out_per_s"] else price_scale(each)
    return MoneyChange(
        amount=more * scale,
        unit=scale_words(scale, unit),
        currency=currency,
        per_month=more * rate_per_s * MONTH_H * HOUR_S,
        rate_per_s=rate_per_s,
        counted=f"{unit}s",
    )
