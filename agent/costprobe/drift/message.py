"""The message of a change in two lines: what changed, by how much, since when; why, what to do.

A drift is stated in money as well. A change of production is explained by replicas and traffic
exactly, and by conditions of the devices with their shares, beside the probe as control.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from statistics import fmean
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from costprobe.adapters.engines.tables import KV_FULL
from costprobe.core.columns import numbers
from costprobe.core.money import MEASURED, MODELLED, money, price_scale, scale_words
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import percent, significant
from costprobe.drift.causes import (
    AROUND_RUNS,
    LATEST_RUNS,
    UNKNOWN,
    Cause,
    Explanation,
    Share,
    events_among,
    explain_change,
    is_annotation_of,
)
from costprobe.drift.findings import Finding, Metric, ServingMetric
from costprobe.drift.production import ProductionDetector, ProductionFinding
from costprobe.drift.runs import (
    BEFORE_RUNS,
    DEVICE_ROWS,
    BlockEffort,
    DetectionRun,
    events_of_service,
    factors,
    joined_runs,
    service_runs,
)
from costprobe.unit_costs.change import (
    LEAST_PART,
    MONTH_S,
    CostFactors,
    Driver,
    Part,
    ProductionChange,
    capacity_worth,
    split_change,
)

# Further candidates are counted only.
MAX_CAUSES: Final = 4
# A share below this is not worth a line.
LEAST_CAUSE: Final = 0.01
# Series that may rise while an inference costs less: with a larger batch, with a higher clock.
_MAY_RISE: Final = ("latency", "energy")
CHEAPER: Final = 0.02
# Parts that are paid for electricity, at any number of devices.
POWER: Final[frozenset[Part]] = frozenset({"busy power", "idle power", "mean power"})
# A smaller change is shown as 0.0 %.
SHOWN_PCT: Final = 0.05

_WORDS: Final[Mapping[Metric | ServingMetric, str]] = MappingProxyType(
    {
        "cost": "cost per inference",
        "latency": "latency",
        "energy": "energy per inference",
        "throughput": "throughput",
        "serving_time": "device time per {}",
        "serving_energy": "energy per {}",
        "serving_tpot": "time per output token",
        "demand": "held device time per {}",
        "mix": "work per request",
    }
)
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

# Blocks of a level that are enough for an explanation.
LEAST_BEFORE = 4
# Windows before a change that its saturation is compared with: six hours, and rows that are read.
SATURATION_NS = 6 * 3600 * NS_PER_S
SATURATION_ROWS = 500
# A smaller change of traffic or of devices is no cause, in log units.
LEAST_CHANGED = 0.02

# Smaller changes are not worth a word, in log units.
UNCHANGED: Final = 0.02
UNCHANGED_TRAFFIC: Final = 0.05
# A part below this share of the largest is not stated.
LEAST_STATED_PART: Final = 0.1

PART_WORDS: Final[Mapping[Part, str]] = MappingProxyType(
    {
        "hardware price": "the hardware price",
        "electricity price": "the electricity price",
        "idle time": "idle time",
        "load": "the load of the devices",
        "speed": "speed",
        "busy power": "power while busy",
        "idle power": "power while idle",
        "mean power": "power",
        "models": "the mix of models",
        "input and output": "the mix of input and output",
        "cached input": "the cached share of the input",
    }
)


@dataclass(frozen=True, slots=True)
class MoneyChange:
    """A change of a cost per unit in money.

    Attributes:
        amount: Change, currency per unit.
        unit: What the cost is divided by: "1,000", "million tokens".
        currency: ISO 4217 code.
        per_month: What it is worth in a month of 730 h; None if nothing else is spent.
        of: What that is a part of: of the capacity of a device that is fully used, because a probe has no
            bill; of what is spent on a service; of the electricity of its present rate.
        rate_per_s: The rate of that month, in `counted` per second.
        counted: What the rate counts: "inferences".
        is_assumed: Whether the price is an assumed one.
    """

    amount: float
    unit: str
    currency: str
    per_month: float | None = None
    of: Literal["capacity", "spend", "electricity"] = "capacity"
    rate_per_s: float | None = None
    counted: str = ""
    is_assumed: bool = False


@dataclass(frozen=True, slots=True)
class PricePart:
    """The part of a price change, beside the change at constant price.

    Attributes:
        time_ns: Time of the price change, UTC in ns.
        amount: Its own part, currency per unit of the MoneyChange.
        per_month: That in a month of 730 h.
    """

    time_ns: int
    amount: float
    per_month: float


class FurtherShift(NamedTuple):
    """The part of a change that is new since it was last reported.

    Attributes:
        log_shift: Its size, in log units.
        since_ns: Its start, UTC in ns.
    """

    log_shift: float
    since_ns: int


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """A change of a series.

    Attributes:
        what: The series: "cost per inference of ranker on gpu0".
        change_pct: Change in percent.
        since_ns: Start of the change, UTC in ns.
        now_ns: Present UTC in ns.
        is_worse: Whether it is a deterioration.
        explanation: Its causes.
        basis: What the change is measured at: "at constant price"; empty for nothing.
        money: The change in money; None for another series than a cost, or without a price.
        price: A price change at about the same time, which is not a part of `money`.
        split: What the change consists of: "95 % of it is time per inference".
        action: What to do; empty for the action of the first cause.
        further: The part that is new since the change was reported; None in its first report.
        back_to_ns: Start of the drift before whose level the series is again, UTC in ns; None for another
            change.
        device: Name of its device, or names joined by "+"; empty if unknown.
    """

    what: str
    change_pct: float
    since_ns: int
    now_ns: int
    is_worse: bool
    explanation: Explanation
    basis: str = ""
    money: MoneyChange | None = None
    price: PricePart | None = None
    split: str = ""
    action: str = ""
    further: FurtherShift | None = None
    back_to_ns: int | None = None
    device: str = ""

    @property
    def todo(self) -> str:
        """What to do about a deterioration; empty for one within the noise."""
        return self.action or self.explanation.action_on(self.device)


@dataclass(frozen=True, slots=True)
class ChangeMessage:
    """The two lines about a change.

    Attributes:
        headline: What changed, by how much, what that is a month, and since when.
        reason: The causes with their shares, and what to do.
    """

    headline: str
    reason: str


class RowHistory(Protocol):
    """The stored rows of a device's probe."""

    def __call__(
        self, measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        """Return the newest rows of a measurement in a span of UTC ns, at most `limit` of each series.

        Empty names mean the rows of every device and probe.
        """
        ...


def tags_of(key: Key) -> dict[str, str]:
    """Return the tags of a series of a probe."""
    return dict(zip(("device", "probe"), key, strict=False))


def name_of(tags: Mapping[str, str], metric: Metric | ServingMetric, unit: str = "token") -> str:
    """Return the name of a series: "latency of ranker on gpu0", "device time per token of llama of chat"."""
    names = [tags[name] for name in ("served_model", "service") if name in tags]
    of = " of ".join(names) or f"{tags['probe']} on {tags['device']}"
    return f"{_WORDS[metric].format(unit)} of {of}"


def due_to(driver: Driver, found: Explanation) -> Explanation:
    """Return what a change of production is due to, with the causes that can be named."""
    name = driver if found.name == UNKNOWN else found.name
    return Explanation(name, (Cause(driver, ""), *found.causes), found.explained)


def money_a_month(change: ChangeFacts) -> dict[str, float | str]:
    """Return what a change is worth in a month, with that of its price, as fields of its event."""
    paid = change.money
    if paid is None or paid.per_month is None:
        return {}
    of_price = 0.0 if change.price is None else change.price.per_month
    return {"cost_per_month": paid.per_month + of_price, "currency": paid.currency}


def change_message(change: ChangeFacts, zone: tzinfo | None = UTC) -> ChangeMessage:
    """Return the message of a change.

    Args:
        change: The change.
        zone: Zone of the times; None for the host's.
    """
    return ChangeMessage(_headline(change, zone), _reason(change))


def _clock_time(time_ns: int, now_ns: int, zone: tzinfo | None) -> str:
    """Format a time for people, with its zone: without the date if it is today."""
    then, now = (
        datetime.fromtimestamp(ns // NS_PER_S, UTC).astimezone(zone) for ns in (time_ns, now_ns)
    )
    return f"{then:%H:%M %Z}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M %Z}"


def _headline(change: ChangeFacts, zone: tzinfo | None) -> str:
    def at(time_ns: int) -> str:
        return _clock_time(time_ns, change.now_ns, zone)

    paid, price, further = change.money, change.price, change.further
    basis = f" {change.basis}" if change.basis else ""
    amount = ""
    if paid is not None:
        assumed = ", price assumed" if paid.is_assumed else ""
        amount = f" ({_signed(paid.amount, paid)}{assumed})"
    text = (
        f"{change.what} is {change.change_pct:+z.1f} %{basis}{amount} since {at(change.since_ns)}"
    )
    if paid is not None and paid.per_month is not None and abs(change.change_pct) >= SHOWN_PCT:
        text += f", {_month_text(paid)}"
    if further is not None:
        more = " more" if further.log_shift * change.change_pct > 0 else ""
        further_pct = math.expm1(further.log_shift) * 100
        text += f"; {further_pct:+z.1f} %{more} since {at(further.since_ns)}"
    if change.back_to_ns is not None:
        text += f"; it is back at the level before {at(change.back_to_ns)}"
    if paid is not None and price is not None:
        text += (
            f"; the price changed at {at(price.time_ns)}: its own part is {_signed(price.amount, paid)},"
            f" both together {_signed(paid.amount + price.amount, paid)}"
        )
        if paid.per_month is not None:
            month = _plus(paid.per_month + price.per_month, paid.currency, MODELLED)
            text += f", {month} a month if this device is fully used"
    return text


def _month_text(paid: MoneyChange) -> str:
    """Return what a change is worth in a month; the sign of capacity is that of the change."""
    per_month = paid.per_month or 0.0
    if paid.of == "capacity":
        worth = money(abs(per_month), paid.currency, MODELLED)
        return f"worth {worth} a month of this device's capacity if it is fully used"
    month = f"{_plus(per_month, paid.currency, MODELLED)} a month"
    if paid.of == "spend":
        return f"spend {month}"
    rate = significant(paid.rate_per_s or 0.0, 3)
    return f"electricity {month} at the present rate of {rate} {paid.counted}/s"


def _reason(change: ChangeFacts) -> str:
    if abs(change.change_pct) < SHOWN_PCT:
        return "only the price changed" if change.price else "there is nothing to explain"
    parts = [change.split] if change.split else []
    noise = change.explanation.noise
    if noise is not None:
        # The detector found it in more runs than those whose conditions are compared.
        least = f"differ by less than their noise of ±{percent(noise, 1)}"
        return f"cause: unknown, the runs before and after it {least}"
    parts.append(_causes_text(change.explanation))
    return f"{'; '.join(parts)}. {f'To do: {change.todo}' if change.is_worse else 'No action is needed'}"


def _causes_text(explanation: Explanation) -> str:
    """Return the causes with their shares, the largest first; of an unknown cause all candidates."""
    listed = [
        cause
        for cause in explanation.causes
        if explanation.name == UNKNOWN
        or cause.share is None
        or abs(cause.share.mean) >= LEAST_CAUSE
    ]
    if not listed:
        is_known = explanation.name != UNKNOWN
        name = explanation.name if is_known else f"{UNKNOWN}, no monitored signal explains it"
        return f"cause: {name}"
    is_alone = len(listed) == 1
    texts = [_cause_text(cause, is_alone=is_alone) for cause in listed[:MAX_CAUSES]]
    if len(listed) > MAX_CAUSES:
        texts.append(f"{len(listed) - MAX_CAUSES} more")
    named = "; ".join(texts)
    if any(cause.share is not None and cause.share.mean < 0 for cause in listed):
        named += " (one counteracts, so that others exceed 100 %)"
    if explanation.name != UNKNOWN:
        return f"cause: {named}"
    explained = explanation.explained
    known = "" if explained is None else f", {_share_text(explained)} explained"
    return f"cause: unknown{known}; candidates: {named}"


def _cause_text(cause: Cause, *, is_alone: bool) -> str:
    share = "" if cause.share is None else f" {_share_text(cause.share)}"
    # The text of an update has its versions: "driver 550.54 → 560.35".
    name = cause.name.partition(":")[0] if cause.text else cause.name
    text = f"{name}{share}: {cause.text}" if cause.text else f"{name}{share}"
    if cause.method != "remainder" or is_alone:
        return text
    # Its share is what the other causes leave.
    coincides = "coincides, " if cause.coincides else ""
    return f"{text} ({coincides}effect not measurable separately)"


def _share_text(share: Share) -> str:
    mean, low, high = (round(value * 100) for value in (share.mean, share.low, share.high))
    return f"{mean} %" if low == mean == high else f"{mean} % ({low} to {high} %)"


def _signed(amount: float, paid: MoneyChange) -> str:
    return f"{_plus(amount, paid.currency)} per {paid.unit}"


def _plus(amount: float, currency: str, digits: int = MEASURED) -> str:
    return f"{'+' if amount >= 0 else ''}{money(amount, currency, digits)}"


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
    is_up = (finding.change > 0) != (metric == "throughput")
    is_traded = (
        is_up and metric in _MAY_RISE and bool(before and after) and _is_cheaper(before, after)
    )
    is_worse = is_up and not is_traded
    change = ChangeFacts(
        what=name_of(tags_of(key), metric),
        change_pct=finding.change_pct,
        since_ns=since_ns,
        now_ns=now_ns,
        is_worse=is_worse,
        explanation=Explanation(UNKNOWN),
        basis="at constant price" if metric == "cost" else "",
        device=device,
    )

    def events(from_ns: int, until_ns: int) -> Sequence[Point]:
        own = newest("event", from_ns, until_ns, CHANGES_MAX)
        every = history("event", "", "", (from_ns, until_ns), CHANGES_MAX)
        return [*own, *(row for row in every if is_annotation_of(row, device, probe))]

    if not (before and after):
        return change
    sign = 0 if metric == "energy" or is_traded else 1 if is_worse else -1
    change = replace(change, explanation=explain_change(before, after, events, metric, sign))
    return _with_money(change, before, after) if metric == "cost" else change


def _is_cheaper(before: Sequence[DetectionRun], after: Sequence[DetectionRun]) -> bool:
    """Return whether an inference costs less, at constant prices."""
    old, new = factors(before), factors(after)
    return new.at_prices_of(old).cost < (1 - CHEAPER) * old.cost


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
    priced = after[-1] if is_priced else None
    return with_amounts(change, (old, constant, new), priced, changed_ns)


def with_amounts(
    change: ChangeFacts,
    levels: tuple[CostFactors, CostFactors, CostFactors],
    priced: DetectionRun | None,
    price_changed_ns: int | None,
) -> ChangeFacts:
    """Return a change of the cost per inference with its amounts.

    Args:
        change: The change.
        levels: The factors before, after at the prices before, and after.
        priced: A run at the price in force; None without prices.
        price_changed_ns: Time of a price change between the levels, UTC in ns; None without one.
    """
    old, constant, new = levels
    if old.cost <= 0 or constant.cost <= 0:
        return change
    factor, share = split_change(old, constant).largest
    # A share means something if no factor counteracts, and if the runs moved in the direction of the level.
    is_shown = 0 < share <= 1 and (constant.cost - old.cost) * change.change_pct > 0
    split = f"{share * 100:.0f} % of it is {factor}" if is_shown else ""
    if priced is None:
        return replace(change, split=split)
    # Of the level, like the percentage: the latest runs have noise, and a daily pattern.
    each = old.cost * change.change_pct / 100
    scale = price_scale(old.cost)
    paid = MoneyChange(
        amount=each * scale,
        unit=scale_words(scale) if scale > 1 else "inference",
        currency=priced.currency,
        is_assumed=priced.is_assumed,
        per_month=capacity_worth(constant.cost / constant.time_s, 1 + change.change_pct / 100),
        rate_per_s=1 / new.time_s,
    )
    price = None
    if price_changed_ns:
        of_price = new.cost - constant.cost
        price = PricePart(price_changed_ns, of_price * scale, of_price / new.time_s * MONTH_S)
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


def demand_causes(change: ProductionChange) -> list[Cause]:
    """Return traffic and replicas with their exact shares of the change of held device time per work.

    Held time per work is devices over traffic: the logarithms of both add up to the change.
    """
    replicas, traffic = math.log(change.devices), -math.log(change.traffic)
    total = replicas + traffic
    if abs(total) < LEAST_CHANGED:
        return []
    words = "lower" if change.traffic < 1 else "higher"
    found = [
        ("replicas", f"{change.devices:.3g} times the devices", replicas),
        ("traffic", f"{abs(change.traffic - 1) * 100:.0f} % {words}", traffic),
    ]
    causes = [
        Cause(name, text, share=Share(part / total, part / total, part / total))
        for name, text, part in found
        if abs(part) >= LEAST_CHANGED
    ]
    return sorted(causes, key=lambda cause: -(cause.share.mean if cause.share else 0.0))


def saturation(finding: ProductionFinding, service: str, history: RowHistory) -> tuple[Cause, ...]:
    """Return the saturation of the servers, if it began about with a deterioration."""
    since_ns, until_ns = (round(at_s * NS_PER_S) for at_s in (finding.since_s, finding.time_s))
    span_ns = since_ns - SATURATION_NS, until_ns + 1
    sides: tuple[list[Point], list[Point]] = ([], [])
    for row in history("serving", "", "", span_ns, SATURATION_ROWS) if finding.change > 0 else ():
        if row.tags.get("service") == service and "served_model" not in row.tags:
            sides[row.time_ns > since_ns].append(row)
    known = {
        field: [fmean(values) for side in sides if (values := numbers(side, field))]
        for field in ("kv_cache_share", "requests_waiting")
    }
    cache, waiting = (found if len(found) == len(sides) else (0.0, 0.0) for found in known.values())
    words = []
    if cache[0] < KV_FULL <= cache[1]:
        words.append(f"KV cache {percent(cache[0])} → {percent(cache[1])} full")
    if waiting[1] >= max(1.0, 2 * waiting[0]):
        words.append(f"requests that wait {significant(waiting[0])} → {significant(waiting[1])}")
    return (Cause("saturation", ", ".join(words)),) if words else ()


def efficiency_explanation(
    detector: ProductionDetector,
    finding: ProductionFinding,
    service: str,
    devices: Sequence[str],
    history: RowHistory,
) -> Explanation:
    """Return why efficiency changed: conditions of the devices, software, annotations.

    Args:
        detector: The service's detector.
        finding: The change.
        service: Name of the service.
        devices: Its devices.
        history: Returns the rows of devices and events.
    """
    is_tpot = finding.metric == "serving_tpot"
    times = detector.efforts["serving_tpot" if is_tpot else "serving_time"].history(2 * AROUND_RUNS)
    energies = detector.efforts["serving_energy"].history(2 * AROUND_RUNS)
    is_energy = finding.metric == "serving_energy"
    if is_energy and not times:
        times = energies
    if not times:
        return Explanation(UNKNOWN)
    span_ns = (
        round((min(times) - detector.block_s) * NS_PER_S),
        round(finding.time_s * NS_PER_S) + 1,
    )
    events = events_of_service(history("event", "", "", span_ns, CHANGES_MAX), service, devices)

    def rows_of(device: str, from_ns: int, until_ns: int) -> Sequence[Point]:
        return history("device", device, "", (from_ns, until_ns), DEVICE_ROWS)

    efforts = [BlockEffort(end_s, times[end_s], energies.get(end_s)) for end_s in sorted(times)]
    runs = service_runs(efforts, detector.block_s, devices, rows_of, events)
    since_ns = finding.since_s * NS_PER_S
    before = [run for run in runs if run.time_ns <= since_ns]
    after = [run for run in runs if run.time_ns > since_ns]
    if len(before) < LEAST_BEFORE or not after:
        return Explanation(UNKNOWN)
    metric: Metric = "energy" if is_energy else "throughput"
    sign = 0 if is_energy else 1 if finding.change > 0 else -1
    return explain_change(before, after, events_among(events), metric, sign)


def explanation(change: ProductionChange) -> str:
    """Return a sentence such as "probe unchanged, traffic 38 % lower: +52 % per token is idle time"."""
    circumstances = []
    if change.control is not None:
        circumstances.append(_moved("probe", change.control, UNCHANGED, ("faster", "slower")))
    circumstances.append(_moved("traffic", change.traffic, UNCHANGED_TRAFFIC, ("lower", "higher")))
    if abs(math.log(change.devices)) >= UNCHANGED_TRAFFIC:
        circumstances.append(f"{change.devices:.2g} times the devices")
    largest = max((abs(effect) for effect in change.parts.values()), default=0.0)
    stated = [
        (effect, PART_WORDS[part])
        for part, effect in change.parts.items()
        if abs(effect) >= max(LEAST_STATED_PART * largest, UNCHANGED / 2)
    ]
    stated.sort(key=lambda item: -abs(item[0]))
    texts = [
        f"{math.expm1(effect) * 100:+.0f} % {f'per {change.unit} ' if not index else ''}is {words}"
        for index, (effect, words) in enumerate(stated)
    ]
    joined = ", ".join(texts) or f"the cost per {change.unit} is unchanged"
    return f"{', '.join(circumstances)}: {joined}"


def unit_of(change: ProductionChange) -> tuple[str, int]:
    """Return what people divide a cost by, and how many units that are; the same before and after."""
    scale = 1_000_000 if change.unit == "token" else price_scale(change.before)
    return scale_words(scale, change.unit), scale


def money_of(change: ProductionChange, parts: Collection[Part] | None = None) -> MoneyChange:
    """Return a change of production cost in money.

    Args:
        change: The change.
        parts: The only parts that count; None for all of the change.
    """
    each = change.after - change.before
    if parts is not None:
        is_flat = abs(change.log_ratio) < LEAST_PART
        # The logarithmic mean of both costs (LMDI): the parts' amounts add up to the change.
        mean = change.before if is_flat else each / change.log_ratio
        each = mean * math.fsum(change.parts.get(part, 0.0) for part in parts)
    unit, scale = unit_of(change)
    rate_per_s = change.rate_per_s
    spend = change.spend_per_s
    is_power = parts is not None and set(parts) <= POWER
    if is_power:
        spend = each * rate_per_s if rate_per_s else None
    return MoneyChange(
        amount=each * scale,
        unit=unit,
        currency=change.currency,
        per_month=None if spend is None else spend * MONTH_S,
        of="electricity" if is_power else "spend",
        rate_per_s=rate_per_s,
        counted=f"{change.unit}s",
        is_assumed=change.is_assumed,
    )


def _moved(name: str, ratio: float, least: float, words: tuple[str, str]) -> str:
    if abs(math.log(ratio)) < least:
        return f"{name} unchanged"
    return f"{name} {abs(ratio - 1) * 100:.0f} % {words[ratio > 1]}"
