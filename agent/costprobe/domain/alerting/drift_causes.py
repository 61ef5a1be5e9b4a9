"""The explanation of a drift: what changed, by how much money, since when, why, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from costprobe.core.money_text import per_thousand
from costprobe.core.records import BOARD, NS_PER_S, Point
from costprobe.domain.costing.comparison.change import CostFactors, split_change
from costprobe.domain.detection.causes import Cause, Comparison, action_of, causes
from costprobe.domain.detection.findings import Finding
from costprobe.domain.detection.onset import change_point
from costprobe.domain.detection.runs import (
    BEFORE_RUNS,
    DetectionRun,
    SoftwareChange,
    conditions,
    factors,
    run_of,
    signal_of,
    software_change_of,
)
from costprobe.domain.detection.settings import Metric

# Longest history before a shift that is compared with it.
BEFORE_NS = 14 * 86_400 * NS_PER_S
MIN_RUNS_BEFORE = 3
# Most software changes between two runs that are read.
CHANGES_MAX = 100
# Runs around the start of a drift that locate it and its signals.
AROUND_RUNS = 24
# The latest runs represent the level after: that of a ramp is not its mean.
LATEST_RUNS = 24
# A change of software may precede its effect by so many runs; a signal may follow by LATER_RUNS.
SOFTWARE_RUNS = 6
LATER_RUNS = 1
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
    found: Sequence[Cause] = ()
    if before and after:
        sign = 0 if metric == "energy" else 1 if is_worse else -1
        found = _causes(before, after, newest, metric, sign)
        if metric == "cost":
            sentence += _money(before, after, now_ns)
        observed = ", ".join(cause.text for cause in found) or "no other monitored signal changed"
        sentence += f"; {observed}"
    name = found[0].name if found else "unknown"
    return name, f"{sentence}. {_advice(name, is_worse=is_worse)}"


def _advice(name: str, *, is_worse: bool) -> str:
    return f"To do: {action_of(name)}" if is_worse else "No action is needed"


def _causes(
    before: Sequence[DetectionRun],
    after: Sequence[DetectionRun],
    newest: _Newest,
    metric: Metric,
    sign: int,
) -> list[Cause]:
    """Return the causes of a change that did not begin after it, the most likely first."""
    around = [*before[-AROUND_RUNS:], *after]
    split = len(around) - len(after)
    first, last = _onset(around, metric, split)
    earliest = around[max(0, first - SOFTWARE_RUNS - 1)]
    events = newest("event", earliest.time_ns + 1, around[-1].time_ns + 1, CHANGES_MAX)
    old, new = _software(events, earliest, around[last], around[-1])
    latest = after[-LATEST_RUNS:]
    compared = Comparison(
        conditions(before, old),
        conditions(latest, new),
        sign,
        math.log(factors(latest).time_s / factors(before).time_s),
    )
    batches = [run.batch for run in around[last + 1 :]]
    if around[last].batch == around[split - 1].batch and batches:
        # The batch changed after the drift began.
        compared = replace(compared, after=replace(compared.after, batch=compared.before.batch))
    return [cause for cause in causes(compared) if not _is_later(cause, around, last)]


def _onset(runs: Sequence[DetectionRun], metric: Metric, split: int) -> tuple[int, int]:
    """Return the first and the last run with which a drift may begin."""
    prices = factors(runs)
    values = [run.value(metric, prices) for run in runs]
    logs = [math.log(value) for value in values if value is not None and value > 0]
    found = change_point(logs) if len(logs) == len(runs) else None
    if found is None:
        return split, split
    return min(split, found[1]), max(found[0], min(split, found[2]))


def _is_later(cause: Cause, runs: Sequence[DetectionRun], last: int) -> bool:
    """Return whether a signal of a cause changed after the drift had begun."""
    for signal in cause.signals:
        values = [signal_of(run, signal) for run in runs]
        known = [value for value in values if value is not None]
        found = change_point(known) if len(known) == len(values) else None
        if found is not None and found[1] > last + LATER_RUNS:
            return True
    return False


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


def _software(
    rows: Iterable[Point], before: DetectionRun, onset: DetectionRun, after: DetectionRun
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the versions, hashes and boards that changed for good, before and after.

    Versions are omitted if the fingerprint is the same.

    Args:
        rows: Rows of `event`.
        before: The last run without any change that may be the cause.
        onset: The last run with which the cause may have begun.
        after: The latest run.
    """
    changes: list[SoftwareChange] = [
        change
        for row in rows
        if (change := software_change_of(row)) is not None
        if before.time_ns < change.time_ns <= after.time_ns
    ]
    changes.sort(key=lambda change: change.time_ns)
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for change in changes:
        old = {**change.before, **old}
        new = {**new, **change.after}
    in_time = {
        key
        for change in changes
        if change.time_ns <= onset.time_ns
        for key in (*change.before, *change.after)
    }
    old, new = ({key: tags[key] for key in in_time if key in tags} for tags in (old, new))
    if not changes or before.fingerprint == after.fingerprint:
        boards = [{BOARD: tags[BOARD]} if BOARD in tags else {} for tags in (old, new)]
        is_later = before.fingerprint == onset.fingerprint
        old = {"fingerprint": before.fingerprint, **boards[0]}
        new = {"fingerprint": before.fingerprint if is_later else after.fingerprint, **boards[1]}
    return old, new


def _clock_time(time_ns: int, now_ns: int) -> str:
    """Format a UTC time for people: without the date if it is today."""
    then = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
    now = datetime.fromtimestamp(now_ns // NS_PER_S, UTC)
    return f"{then:%H:%M} UTC" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M} UTC"
