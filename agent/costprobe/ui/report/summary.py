"""What every report shows: its first page, and equal devices as one entry of trends, figures and savings.

The first page is for a reader who decides about money: a few figures and sentences.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

from costprobe.core.money import (
    PER_THOUSAND,
    cents,
    cents_of_parts,
    divided,
    money,
    price_scale,
    total_of,
)
from costprobe.core.periods import DAY_NS
from costprobe.core.records import TOGETHER, devices_text, natural
from costprobe.core.units import MONTH_H, counted
from costprobe.core.units import percent as share
from costprobe.savings.load import LoadCost, LoadPosition
from costprobe.savings.savings import Answer, Supply
from costprobe.spend.now import Spending
from costprobe.ui.host_overview import sentence
from costprobe.ui.report.formats import Entry, KeyFigure
from costprobe.ui.report.model import (
    Bucket,
    Price,
    Report,
    ReportedChange,
    Spend,
    Trend,
)
from costprobe.ui.report.words import (
    PARTS,
    energy,
    minute,
    per_unit,
    percent,
    spend_change,
)
from costprobe.ui.savings import held_out_words, load_words, position_lines
from costprobe.ui.text import per_million_tokens, short
from costprobe.unit_costs.now import OUTLIER_SHARE, UnitCost, UnitGroup


@dataclass(frozen=True, slots=True)
class TrendGroup:
    """A model on identical devices, or a service, over time.

    Attributes:
        name: The model or service.
        members: The trend on each device, by device.
        buckets: The median of the members in each step; currency for 1,000 inferences.
        before: The median of the members in the preceding period; None unless all are known.
        now: The median of the members in the period.
    """

    name: str
    members: Sequence[Trend]
    buckets: Sequence[Bucket]
    before: float | None
    now: float

    @property
    def moved_pct(self) -> float | None:
        """Change from the median of the first day's steps to that of the last day's, in percent."""
        first_ns, last_ns = self.buckets[0].time_ns, self.buckets[-1].time_ns
        first = statistics.median(b.value for b in self.buckets if b.time_ns < first_ns + DAY_NS)
        last = statistics.median(b.value for b in self.buckets if b.time_ns > last_ns - DAY_NS)
        return (last / first - 1) * 100 if first and last_ns > first_ns else None

    @property
    def scale(self) -> int:
        """Number of inferences that the cost is written for, the same in every period."""
        return price_scale(self.buckets[0].value / PER_THOUSAND)

    def price(self, per_thousand: float) -> str:
        """Format a cost of 1,000 inferences at the scale: "$0.455 per million inferences"."""
        currency = self.members[0].currency
        return per_unit(per_thousand / PER_THOUSAND, currency, self.scale, "inference")

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices; empty for a service."""
        return tuple(trend.device for trend in self.members if trend.basis == "probe")


def saving_groups(answers: Sequence[Answer]) -> list[Entry]:
    """Return the best supply of each workload, the largest saving first.

    What the load of a service costs against its load curve is among the facts; without a cheaper
    supply it is an entry of its own.
    """
    groups: dict[tuple[str, ...], list[tuple[Answer, Supply]]] = defaultdict(list)
    alone = []
    for answer in answers:
        if answer.best is not None:
            saving = money(answer.best.saving_per_month, answer.currency)
            own = "" if answer.load is None else answer.workload.name
            groups[_generic(answer, answer.best), saving, own].append((answer, answer.best))
        elif answer.load is not None and answer.load.cost is not None:
            alone.append(_of_load(answer, answer.load, answer.load.cost))
    return [*(_listed(saving, found) for (_, saving, _), found in groups.items()), *alone]


def _of_load(answer: Answer, position: LoadPosition, cost: LoadCost) -> Entry:
    """Return what the load of a service costs against its load curve."""
    month = f"{money(cost.cost_per_month, answer.currency)} a month"
    facts = [short(line) for line in position_lines(position, answer.currency)]
    if cost.merge is None:
        unused = money(cost.unused_per_month, answer.currency)
        title = f"{answer.workload.name}: use its idle capacity"
        return Entry(short(title), f"up to {unused} of {month}", facts)
    replicas = f"{position.evidence.replicas} replicas into {cost.merge.replicas}"
    saving = money(cost.merge.saving_per_month, answer.currency)
    title = f"{answer.workload.name}: merge {replicas}"
    return Entry(short(title), f"{saving} of {month}", facts)


def _generic(answer: Answer, best: Supply) -> str:
    """Return the action without the names of the workload's own devices."""
    action = best.action
    for name in answer.workload.devices:
        action = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", "*", action)
    return action


def _listed(saving: str, found: Sequence[tuple[Answer, Supply]]) -> Entry:
    answer, best = found[0]
    now = "" if answer.now is None else f" of {money(answer.now.cost_per_month, answer.currency)}"
    if len(found) == 1:
        facts = [f"load: {load_words(answer.workload)}"]
        facts += [] if best.held_out is None else [held_out_words(best.held_out)]
        facts += [f"if {line}" for line in best.assumptions]
        if answer.load is not None:
            facts += position_lines(answer.load, answer.currency)
        title = f"{answer.workload.name}: {best.action}"
        return Entry(short(title), f"{saving}{now} a month", [short(line) for line in facts])
    shared = [line for line in best.assumptions if all(line in b.assumptions for _, b in found)]
    loads = [a.workload.mean / len(a.workload.devices) for a, _ in found]
    devices = {name for each, _ in found for name in each.workload.devices}
    return Entry(
        f"{short(_together(found))}: {_generic(answer, best).replace('*', 'the same device')}",
        f"{saving}{now} a month for each of {devices_text(devices)}",
        [
            f"load: {share(min(loads))} to {share(max(loads))} busy",
            *(f"if {line}" for line in shared),
        ],
    )


def _together(found: Sequence[tuple[Answer, Supply]]) -> str:
    """Return the names of workloads, each model with its devices."""
    devices: dict[str, list[str]] = defaultdict(list)
    for answer, _ in found:
        model, _, _ = answer.workload.name.partition(" on ")
        devices[model] += answer.workload.devices
    return ", ".join(f"{model} on {devices_text(names)}" for model, names in devices.items())


def trend_groups(trends: Sequence[Trend], models: Mapping[str, str]) -> list[TrendGroup]:
    """Return the trends of each model on identical devices as one; a service is one by itself.

    Args:
        trends: The trends.
        models: Product name of each device.
    """
    groups: dict[tuple[str, ...], list[Trend]] = defaultdict(list)
    for trend in trends:
        is_probe = trend.basis == "probe"
        name = trend.subject if is_probe else trend.name
        hardware = models.get(trend.device) or trend.device if is_probe else ""
        groups[trend.currency, trend.basis, name, hardware].append(trend)
    ordered = sorted(groups, key=lambda key: natural(*key))
    return [_trend_group(key[2], groups[key]) for key in ordered]


def _trend_group(name: str, members: Sequence[Trend]) -> TrendGroup:
    members = sorted(members, key=lambda trend: natural(trend.device))
    steps: dict[int, list[float]] = defaultdict(list)
    for trend in members:
        for bucket in trend.buckets:
            steps[bucket.time_ns].append(bucket.value)
    earlier = [trend.before for trend in members if trend.before is not None]
    return TrendGroup(
        name=name,
        members=members,
        buckets=[Bucket(at, statistics.median(values)) for at, values in sorted(steps.items())],
        before=statistics.median(earlier) if len(earlier) == len(members) else None,
        now=statistics.median(trend.now for trend in members),
    )


def token_words(report: Report) -> list[tuple[str, str]]:
    """Return each model whose tokens have a cost, with cost and energy of a million as text."""
    candidates = [placed.candidate for group in report.models for placed in group.placed]
    return [(one.name, text) for one in candidates if (text := per_million_tokens(one))]


def price_groups(prices: Iterable[Price]) -> list[tuple[Price, tuple[str, ...]]]:
    """Return each price with the devices that have it."""
    groups: dict[Price, list[str]] = defaultdict(list)
    for price in prices:
        groups[replace(price, device="")].append(price.device)
    return [(price, tuple(names)) for price, names in groups.items()]


MAX_ALERTS: Final = 3
MAX_SAVINGS: Final = 3


# ---- figures


def key_figures(report: Report) -> Iterator[KeyFigure]:
    """Yield the figures at the top: spend, rate, budget, saving and energy."""
    for spend in report.spend:
        yield KeyFigure("Spend", cents(spend.total, spend.currency), spend_change(spend))
    for one in report.overview.spending:
        if one.per_hour is not None:
            notes = ["price assumed"] if one.currency in report.overview.assumed else []
            notes += [] if one.idle_share is None else [f"{share(one.idle_share)} of it unused"]
            yield KeyFigure("Per hour now", money(one.per_hour, one.currency), ", ".join(notes))
        if one.month is not None:
            yield _month(one)
    best = _largest_savings(report)
    for currency, amount in sorted(best.items()):
        yield KeyFigure(
            "Largest single saving",
            money(amount, currency),
            f"a month of {MONTH_H} h",
        )
    if drawn := energy(report.drawn):
        kwh, _, carbon = drawn.partition(", ")
        yield KeyFigure("Energy", kwh, carbon)


def _month(one: Spending) -> KeyFigure:
    if one.month is None:
        raise ValueError("no month")
    status = one.month.status
    currency = status.budget.currency
    expected = "" if status.expected is None else f"forecast {money(status.expected, currency)}"
    name = "This month" if status.budget.period == "month" else f"This {status.budget.period}"
    spent = cents(status.spent, currency)
    if not one.is_planned:
        return KeyFigure(name, spent, expected)
    state = status.verdict(status.amount)
    remark = ", ".join(part for part in (expected, state or "within the budget") if part)
    return KeyFigure(name, f"{spent} of {cents(status.amount, currency)}", remark)


def _largest_savings(report: Report) -> dict[str, Decimal]:
    best: dict[str, Decimal] = {}
    for answer in report.savings:
        if answer.best is not None:
            most = max(best.get(answer.currency, Decimal(0)), answer.best.saving_per_month)
            best[answer.currency] = most
    return best


# ---- changes


def main_changes(report: Report, groups: Sequence[TrendGroup]) -> Iterator[str]:
    """Yield what changed and why, one sentence each, the largest first."""
    main = report.overview.change
    if main is not None and main.kind == "drift":
        yield sentence(main)
    for change in report.changes:
        if change.kind == "price":
            yield _price(change, groups)
    alerts = report.overview.firing
    for alert in alerts[:MAX_ALERTS]:
        yield f"Firing: {alert.get('summary', '')}."
    if len(alerts) > MAX_ALERTS:
        yield f"{counted(len(alerts) - MAX_ALERTS, 'more alert')} firing."


def _price(change: ReportedChange, groups: Sequence[TrendGroup]) -> str:
    """Return a change of price with the number of models whose cost it changes, all at once."""
    reached = [
        group
        for group in groups
        if any(set(trend.device.split(TOGETHER)) & set(change.devices) for trend in group.members)
    ]
    moved = "" if change.change_pct is None else f" ({percent(change.change_pct)})"
    names = ", ".join(group.name for group in reached)
    reach = f" This changes the cost of {names}." if reached else ""
    return f"Price since {minute(change.since_ns)}: {change.title}{moved}.{reach}"


# ---- cost of a unit


def unit_rows(group: UnitGroup, groups: Sequence[TrendGroup]) -> Iterator[tuple[str, ...]]:
    """Yield name, place, cost now and the changes over period, week and day; below, those of each outlier."""
    unit = group.typical
    basis, currency = unit.tags.get("basis", "probe"), unit.tags.get("currency", "")
    devices = {member.tags.get("device", "") for member in group.members}
    own = next(
        (
            one
            for one in groups
            if one.name == unit.name
            and one.members[0].basis == basis
            and one.members[0].currency == currency
            and (basis == "serving" or devices & set(one.devices))
        ),
        None,
    )

    def row(name: str, place: str, shown: UnitCost, moved_pct: float | None) -> tuple[str, ...]:
        if shown.unit == "token":
            cost = f"{money(shown.cost * unit.scale, currency)} per million output tokens"
        else:
            cost = per_unit(shown.cost, currency, unit.scale, unit.unit)
        changes = (moved_pct, shown.change_7d_pct, shown.change_24h_pct)
        return (name, place, cost, *map(_moved, changes))

    place = devices_text(name for device in devices for name in device.split(TOGETHER))
    yield row(unit.name, place, unit, None if own is None else own.moved_pct)
    for member in group.members:
        device = member.tags.get("device", "")
        if device in group.outliers:
            deviation = member.cost / unit.cost - 1 if unit.cost else 0.0
            words = f"{percent(deviation * 100)} against the others"
            words = words if abs(deviation) > OUTLIER_SHARE else "changed, the others did not"
            yield row("", f"{device}, {words}", member, None)


def _moved(pct: float | None) -> str:
    return "-" if pct is None else percent(pct)


# ---- where the money goes


def spend_parts(spend: Spend) -> Iterator[tuple[str, str, str]]:
    """Yield the parts of the spend of one currency; they add up to the total."""
    total, names, amounts = spend.total, list[str](), [use.cost for use in spend.by_use]
    for use in spend.by_use:
        words = PARTS.get(use.part, use.part)
        names.append(f"{use.service}: {words}" if use.service else words)
    allocated = total_of(amounts)
    rest = total - allocated
    # Windows at the edges of the period may reach beyond it: as in `spend`, others than services pay that.
    if total * allocated >= 0 and abs(allocated) > abs(total):
        others = [at for at, use in enumerate(spend.by_use) if use.part == "unallocated"]
        if others and (amounts[others[0]] + rest) * total >= 0:
            amounts[others[0]] += rest
        else:
            amounts = divided(total, [abs(amount) for amount in map(Fraction, amounts)])
    elif rest:
        names.append("devices without a service" if spend.by_use else "all devices")
        amounts.append(rest)
    costs = cents_of_parts(amounts, total, spend.currency)
    for name, amount, cost in zip(names, amounts, costs, strict=True):
        yield name, cost, share(float(amount / total)) if total else "-"
    yield "total", cents(total, spend.currency), "100 %"


def main_savings(report: Report) -> Iterator[str]:
    """Yield the largest savings, one sentence each."""
    found = saving_groups(report.savings)
    for one in found[:MAX_SAVINGS]:
        yield f"{one.title} saves {one.amount}."
    if len(found) > MAX_SAVINGS:
        yield f"{counted(len(found) - MAX_SAVINGS, 'smaller saving')} in the details."
    if len(found) > 1:
        yield "Savings of workloads on the same devices exclude each other."


def limits_of(report: Report) -> Iterator[str]:
    """Yield what limits the figures, such as assumed prices."""
    for spend in report.spend:
        if share(spend.coverage) != "100 %":
            yield (
                f"Measurements cover {share(spend.coverage)} of the time of the devices; what the"
                " rest cost is unknown and in no figure."
            )
    assumed = [price.device for price in report.prices if price.assumed]
    if assumed:
        yield f"The price of {devices_text(assumed)} is an assumed list price; set [[price]]."
