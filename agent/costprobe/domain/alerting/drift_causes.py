"""The explanation of a drift: what changed, by how much money, since when, why, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from costprobe.core.money_text import price_scale, scale_words
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.domain.alerting.change_message import ChangeFacts, MoneyChange, PricePart
from costprobe.domain.costing.comparison.change import CostFactors, split_change
from costprobe.domain.detection.causes import Explanation
from costprobe.domain.detection.event_causes import is_annotation_of
from costprobe.domain.detection.findings import Finding
from costprobe.domain.detection.run_causes import LATEST_RUNS, explain_change
from costprobe.domain.detection.runs import BEFORE_RUNS, DetectionRun, factors, joined_runs
from costprobe.domain.detection.settings import Metric

WORDS: Mapping[Metric, str] = {
    "cost": "cost per inference",
    "latency": "latency",
    "energy": "energy per inference",
    "throughput": "throughput",
}
# Longest history before a shift that is compared with it.
BEFORE_NS = 14 * 86_400 * NS_PER_S
MIN_RUNS_BEFORE = 3
# Most software changes between two runs that are read.
CHANGES_MAX = 100
# A price change is part of the explanation if it is not older than this.
PRICE_NS = 2 * 3600 * NS_PER_S
SAME_PRICE = 1e-4

# Device, probe, metric.
Key = tuple[str, str, Metric]
# Returns the newest rows of a measurement between two UTC ns, at most as many.
_Newest = Callable[[str, int, int, int], Sequence[Point]]


class RowHistory(Protocol):
    """The stored rows of a device's probe."""

    def __call__(
        self, measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        """Return the newest rows of a measurement in a span of UTC ns, at most `limit` of each series.

        Empty names mean the rows of every device and probe.
        """
        ...


def change_of(
    finding: Finding, key: Key, levels_ns: tuple[int, int], now_ns: int, history: RowHistory
) -> ChangeFacts:
    """Return what changed at a drift, with its causes.

    Args:
        finding: The drift.
        key: Its series.
        levels_ns: Start of the level before and of the level after the shift, UTC in ns.
        now_ns: Time of the value that completed the detection, UTC in ns.
        history: Returns the rows from before and after it.
    """
    device, probe, metric = key
    before_ns, since_ns = levels_ns

    def newest(measurement: str, from_ns: int, until_ns: int, limit: int) -> Sequence[Point]:
        return history(measurement, device, probe, (from_ns, until_ns), limit)

    # A fast probe has more runs in two weeks than fit into memory: read the newest of each side.
    before = _runs(newest, since_ns - BEFORE_NS, since_ns)
    after = _runs(newest, since_ns, now_ns + 1)
    if after and len(after) < BEFORE_RUNS:
        # The estimated start may fall between two runs: align it with the nearest run.
        if before and since_ns - before[-1].time_ns < after[0].time_ns - since_ns:
            after.insert(0, before.pop())
        since_ns = after[0].time_ns
    # Compare with the runs of the previous level only, or with the last few where it was short.
    before = [run for run in before if run.time_ns >= before_ns] or before[-MIN_RUNS_BEFORE:]
    is_worse = (finding.change > 0) != (metric == "throughput")
    change = ChangeFacts(
        what=f"{WORDS[metric]} of {probe} on {device}",
        change_pct=finding.change_pct,
        since_ns=since_ns,
        now_ns=now_ns,
        is_worse=is_worse,
        explanation=Explanation("unknown"),
        basis="at constant price" if metric == "cost" else "",
    )

    def events(from_ns: int, until_ns: int) -> Sequence[Point]:
        own = newest("event", from_ns, until_ns, CHANGES_MAX)
        every = history("event", "", "", (from_ns, until_ns), CHANGES_MAX)
        return [*own, *(row for row in every if is_annotation_of(row, device, probe))]

    if not (before and after):
        return change
    sign = 0 if metric == "energy" else 1 if is_worse else -1
    change = replace(change, explanation=explain_change(before, after, events, metric, sign))
    return _with_money(change, before, after) if metric == "cost" else change


def _with_money(
    change: ChangeFacts, before: Sequence[DetectionRun], after: Sequence[DetectionRun]
) -> ChangeFacts:
    """Return a change of cost in money: at constant prices, and the part of a price change."""
    changed_ns = price_change_ns([*before, *after])
    if changed_ns is not None and changed_ns < after[0].time_ns - PRICE_NS:
        # An old change is of no concern: everything at the price in force.
        before_prices = after_prices = factors(after)
        changed_ns = None
    else:
        at_ns = changed_ns or after[0].time_ns
        runs = [*before, *after]
        before_prices = factors([run for run in runs if run.time_ns < at_ns] or before)
        after_prices = factors([run for run in runs if run.time_ns >= at_ns])
    present = factors(after[-LATEST_RUNS:])
    old = factors(before).at_prices_of(before_prices)
    constant = present.at_prices_of(before_prices)
    new = present.at_prices_of(after_prices)
    is_priced = any(run.price_per_s is not None for run in after)
    currency = after[-1].currency if is_priced else None
    return with_amounts(change, (old, constant, new), currency, changed_ns)


def with_amounts(
    change: ChangeFacts,
    levels: tuple[CostFactors, CostFactors, CostFactors],
    currency: str | None,
    price_changed_ns: int | None,
) -> ChangeFacts:
    """Return a change of the cost per inference with its amounts.

    Args:
        change: The change.
        levels: The factors before, after at the prices before, and after.
        currency: ISO 4217 code; None without prices.
        price_changed_ns: Time of a price change between the levels, UTC in ns; None without one.
    """
    old, constant, new = levels
    if old.cost <= 0 or constant.cost <= 0:
        return change
    factor, share = split_change(old, constant).largest
    # A share means something if no factor counteracts, and if the runs moved in the direction of the level.
    is_shown = 0 < share <= 1 and (constant.cost - old.cost) * change.change_pct > 0
    split = f"{share * 100:.0f} % of it is {factor}" if is_shown else ""
    if currency is None:
        return replace(change, split=split)
    rate_per_s = 1 / new.time_s
    # Of the level, like the percentage: the latest runs have noise, and a daily pattern.
    each = old.cost * change.change_pct / 100
    scale = price_scale(old.cost)
    paid = MoneyChange(
        amount=each * scale,
        unit=scale_words(scale) if scale > 1 else "inference",
        currency=currency,
        per_month=each * rate_per_s * MONTH_H * HOUR_S,
        rate_per_s=rate_per_s,
        counted="inferences",
    )
    price = (
        PricePart(price_changed_ns, (new.cost - constant.cost) * scale)
        if price_changed_ns
        else None
    )
    return replace(change, split=split, money=paid, price=price)


def price_change_ns(runs: Sequence[DetectionRun]) -> int | None:
    """Return the time of the first run at the latest prices; None if they did not change."""
    priced = [run for run in runs if run.price_per_s is not None]
    for previous, run in zip(reversed(priced[:-1]), reversed(priced[1:]), strict=True):
        if not (
            math.isclose(previous.price_per_s or 0, run.price_per_s or 0, rel_tol=SAME_PRICE)
            and math.isclose(previous.electricity_per_j, run.electricity_per_j, rel_tol=SAME_PRICE)
        ):
            return run.time_ns
    return None


def _runs(newest: _Newest, from_ns: int, until_ns: int) -> list[DetectionRun]:
    """Return the newest runs, oldest first."""
    sides = (newest(name, from_ns, until_ns, BEFORE_RUNS) for name in ("probe", "cost"))
    return joined_runs(*sides)[-BEFORE_RUNS:]
