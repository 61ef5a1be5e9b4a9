"""The explanation of a drift: what changed, by how much money, since when, why, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from costprobe.core.money_text import per_thousand
from costprobe.core.records import NS_PER_S, Point
from costprobe.domain.costing.comparison.change import CostFactors, split_change
from costprobe.domain.detection.causes import Explanation, action_of
from costprobe.domain.detection.findings import Finding
from costprobe.domain.detection.run_causes import LATEST_RUNS, explain_change
from costprobe.domain.detection.runs import (
    BEFORE_RUNS,
    DetectionRun,
    factors,
    run_of,
)
from costprobe.domain.detection.settings import Metric

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
        """Return the newest rows of a measurement in a span of UTC ns, at most `limit` of each series."""
        ...


def cause_of(
    finding: Finding, key: Key, levels_ns: tuple[int, int], now_ns: int, history: RowHistory
) -> tuple[str, str]:
    """Return the cause of a drift as a word and as a sentence.

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
    sentence = f"{finding.change_pct:+.1f} %"
    if metric == "cost":
        sentence += " at constant price"
    sentence += f" since {_clock_time(since_ns, now_ns)}"
    explained = Explanation("unknown")

    def events(from_ns: int, until_ns: int) -> Sequence[Point]:
        return newest("event", from_ns, until_ns, CHANGES_MAX)

    if before and after:
        sign = 0 if metric == "energy" else 1 if is_worse else -1
        explained = explain_change(before, after, events, metric, sign)
        if metric == "cost":
            sentence += _money(before, after, now_ns)
        texts = [cause.text for cause in explained.causes]
        observed = ", ".join(texts) or "no other monitored signal changed"
        sentence += f"; {observed}"
    return explained.name, f"{sentence}. {_advice(explained.name, is_worse=is_worse)}"


def _advice(name: str, *, is_worse: bool) -> str:
    return f"To do: {action_of(name)}" if is_worse else "No action is needed"


def _money(before: Sequence[DetectionRun], after: Sequence[DetectionRun], now_ns: int) -> str:
    """Describe a change of cost in money: at constant prices, and the part of a price change."""
    changed_ns = _price_change_ns([*before, *after])
    if changed_ns is not None and changed_ns < after[0].time_ns - PRICE_NS:
        # An old change is of no concern: everything at the price in force.
        before_prices = after_prices = factors(after)
        changed_ns = None
    else:
        at_ns = changed_ns or after[0].time_ns
        runs = [*before, *after]
        before_prices = factors([run for run in runs if run.time_ns < at_ns] or before)
        after_prices = factors([run for run in runs if run.time_ns >= at_ns])
    old = _at(factors(before), before_prices)
    constant = _at(factors(after[-LATEST_RUNS:]), before_prices)
    new = _at(factors(after[-LATEST_RUNS:]), after_prices)
    if old.cost <= 0 or constant.cost <= 0:
        return ""
    currency = after[-1].currency
    is_priced = any(run.price_per_s is not None for run in after)
    text = _signed(constant.cost - old.cost, currency) if is_priced else ""
    factor, share = split_change(old, constant).largest
    # A share means something if no factor counteracts.
    words = [text] if text else []
    if 0 < share <= 1:
        words.append(f"{share * 100:.0f} % of it is {factor}")
    text = f" ({', '.join(words)})" if words else ""
    if changed_ns is None or not is_priced:
        return text
    price = _signed(new.cost - constant.cost, currency)
    total = _signed(new.cost - old.cost, currency)
    return (
        f"{text}; the price changed at {_clock_time(changed_ns, now_ns)}: its own part is {price},"
        f" both together {total}"
    )


def _at(quantities: CostFactors, prices: CostFactors) -> CostFactors:
    """Return the time and energy of one period at the prices of another."""
    return CostFactors(
        prices.price_per_s, quantities.time_s, prices.electricity_per_j, quantities.energy_j
    )


def _signed(amount: float, currency: str) -> str:
    return f"{'+' if amount >= 0 else ''}{per_thousand(amount, currency)}"


def _price_change_ns(runs: Sequence[DetectionRun]) -> int | None:
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
    """Join the newest rows of `probe` and `cost` that share a time to runs, oldest first."""
    rows = newest("probe", from_ns, until_ns, BEFORE_RUNS)
    costs = {row.time_ns: row for row in newest("cost", from_ns, until_ns, BEFORE_RUNS)}
    runs = (run_of(row, costs.get(row.time_ns)) for row in rows)
    found = sorted((run for run in runs if run is not None), key=lambda run: run.time_ns)
    return found[-BEFORE_RUNS:]


def _clock_time(time_ns: int, now_ns: int) -> str:
    """Format a UTC time for people: without the date if it is today."""
    then = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
    now = datetime.fromtimestamp(now_ns // NS_PER_S, UTC)
    return f"{then:%H:%M} UTC" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M} UTC"
