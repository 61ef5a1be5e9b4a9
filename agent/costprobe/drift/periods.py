"""What changed between two periods of a series: exact parts, ranked causes, and money."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.core.money import price_scale, scale_words
from costprobe.core.records import TOGETHER
from costprobe.drift.before_after import LEAST_NOISE
from costprobe.drift.causes import (
    LATEST_RUNS,
    UNKNOWN,
    Events,
    Explanation,
    explain_change,
)
from costprobe.drift.findings import Metric
from costprobe.drift.message import (
    SAME_PRICE,
    ChangeFacts,
    demand_causes,
    due_to,
    explanation,
    money_of,
    name_of,
    price_change_ns,
    tags_of,
    unit_of,
    with_amounts,
)
from costprobe.drift.runs import DetectionRun, factors
from costprobe.unit_costs.change import (
    LEAST_PART,
    ProductionChange,
    ProductionSums,
    production_change,
    split_change,
)

MS_PER_S: Final = 1000


@dataclass(frozen=True, slots=True)
class ChangePart:
    """A factor's part of a change.

    Attributes:
        name: Name of the factor.
        log_effect: Its part of ln(after / before); the parts add up to it.
        amount: Its part of the difference, which they add up to, in the unit of the values.
    """

    name: str
    log_effect: float
    amount: float


@dataclass(frozen=True, slots=True)
class PeriodChange:
    """The change of a series between two periods.

    Attributes:
        facts: The facts of its message.
        before: Value of the earlier period.
        after: Value of the later period.
        unit: What the values are divided by, or their unit without a currency.
        currency: ISO 4217 code of the values; empty if they are not money.
        parts: The exact parts of the change, the largest first.
    """

    facts: ChangeFacts
    before: float
    after: float
    unit: str
    currency: str
    parts: tuple[ChangePart, ...]


def probe_change(
    series: tuple[str, str],
    before: Sequence[DetectionRun],
    after: Sequence[DetectionRun],
    events: Events,
    now_ns: int,
    *,
    whole: bool,
) -> PeriodChange:
    """Return the change of a probe's cost per inference, or of its time without prices.

    Args:
        series: Device and probe.
        before: Runs of the earlier period, oldest first; at least one.
        after: Runs of the later period; at least one.
        events: Returns the rows of `event` between two UTC ns.
        now_ns: Present UTC in ns.
        whole: Whether all runs of the later period represent its level; else the latest do.
    """
    old, new = factors(before), factors(after if whole else after[-LATEST_RUNS:])
    constant = new.at_prices_of(old)
    # What costs nothing has no ratio.
    is_priced = _is_priced(before, after) and min(old.cost, constant.cost, new.cost) > 0
    ratio = constant.cost / old.cost if is_priced else new.time_s / old.time_s
    metric: Metric = "cost" if is_priced else "throughput"
    sign, change = 1 if ratio >= 1 else -1, math.log(ratio)
    found = explain_change(before, after, events, metric, sign, whole=whole, observed=change)
    tags = tags_of((*series, metric))
    time = "time per inference"
    facts = ChangeFacts(
        what=name_of(tags, "cost") if is_priced else f"{time} of {series[1]} on {series[0]}",
        change_pct=(ratio - 1) * 100,
        since_ns=after[0].time_ns,
        now_ns=now_ns,
        is_worse=ratio > 1,
        explanation=found,
        basis="at constant price" if is_priced else "",
        device=series[0],
    )
    if not is_priced:
        before_ms, after_ms = old.time_s * MS_PER_S, new.time_s * MS_PER_S
        total = ChangePart(time, math.log(ratio), after_ms - before_ms)
        return PeriodChange(facts, before_ms, after_ms, "ms", "", (total,))
    is_same_price = math.isclose(new.cost, constant.cost, rel_tol=SAME_PRICE)
    changed_ns = None if is_same_price else price_change_ns([*before, *after])
    currency = after[-1].currency
    facts = with_amounts(facts, (old, constant, new), after[-1], changed_ns)
    scale = price_scale(old.cost)
    values = old.cost * scale, new.cost * scale
    parts = _parts(split_change(old, new).parts.items(), *values)
    return PeriodChange(facts, *values, scale_words(scale, "inference"), currency, parts)


def service_change(
    service: str,
    before: ProductionSums,
    after: ProductionSums,
    control: float | None,
    times_ns: tuple[int, int],
    runs: tuple[Sequence[DetectionRun], Sequence[DetectionRun], Events],
) -> PeriodChange:
    """Return the change of a service's cost per unit.

    Args:
        service: Name of the service.
        before: The earlier period.
        after: The later period, in the same currency.
        control: Time per inference of the probes on the same devices, later over earlier; None
            without one.
        times_ns: Start of the later period and the present, UTC in ns.
        runs: Blocks of both periods as runs, and what returns the rows of `event` of the service; for
            the causes of another efficiency.

    Raises:
        ValueError: A cost is not positive, nothing was counted, or the currencies differ.
    """
    change = production_change(before, after, control=control)
    unit, scale = unit_of(change)
    facts = ChangeFacts(
        what=f"cost per {unit} of {service}",
        change_pct=change.change_pct,
        since_ns=times_ns[0],
        now_ns=times_ns[1],
        is_worse=change.log_ratio > 0,
        explanation=_service_explanation(change, *runs),
        money=money_of(change),
        split=explanation(change),
        device=TOGETHER.join(after.devices),
    )
    values = change.before * scale, change.after * scale
    return PeriodChange(
        facts, *values, unit, change.currency, _parts(change.parts.items(), *values)
    )


def _service_explanation(
    change: ProductionChange,
    before: Sequence[DetectionRun],
    after: Sequence[DetectionRun],
    events: Events,
) -> Explanation:
    """Return what a change is due to, with the causes that can be named."""
    driver = change.driver
    if driver is None:
        return Explanation(UNKNOWN)
    if abs(change.log_ratio) < LEAST_NOISE:
        return Explanation(UNKNOWN, noise=math.expm1(LEAST_NOISE))
    found = Explanation(UNKNOWN)
    if driver == "demand":
        found = Explanation(UNKNOWN, tuple(demand_causes(change)))
    elif driver == "efficiency" and before and after:
        sign = 1 if change.drivers["efficiency"] > 0 else -1
        found = explain_change(before, after, events, "throughput", sign, whole=True)
        if found.noise is not None and abs(change.log_ratio) < math.log1p(found.noise):
            return found
    return due_to(driver, found)


def _is_priced(before: Sequence[DetectionRun], after: Sequence[DetectionRun]) -> bool:
    """Return whether both periods have prices in one currency."""
    sides = (before, after)
    are_known = all(any(run.price_per_s is not None for run in runs) for runs in sides)
    return are_known and len({run.currency for runs in sides for run in runs if run.currency}) == 1


def _parts(
    effects: Iterable[tuple[str, float]], before: float, after: float
) -> tuple[ChangePart, ...]:
    """Return the parts of a change that are not zero, the largest first."""
    log_ratio = math.log(after / before)
    # The logarithmic mean of both values (LMDI): the amounts add up to the difference.
    mean = (after - before) / log_ratio if log_ratio else before
    parts = (
        ChangePart(name, effect, effect * mean)
        for name, effect in effects
        if abs(effect) > LEAST_PART
    )
    return tuple(sorted(parts, key=lambda part: -abs(part.log_effect)))
