"""The first page of a report, for a reader who decides about money: a few figures and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from costprobe.core.money import money, total_of, unit_price
from costprobe.core.units import MONTH_H, counted
from costprobe.core.units import percent as share
from costprobe.spend.now import Spending
from costprobe.ui.host_overview import MainChange
from costprobe.ui.report.grouping import TrendGroup, saving_groups, trend_groups
from costprobe.ui.report.model import Report, ReportedChange, Spend
from costprobe.ui.report.words import (
    PARTS,
    energy,
    minute,
    percent,
    spend_change,
)
from costprobe.ui.text import devices_text
from costprobe.unit_costs.now import UnitGroup

MAX_ALERTS: Final = 3
MAX_SAVINGS: Final = 3


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A figure with its name, and a remark that may be empty."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class UnitRow:
    """What a unit of a model or service costs, as text.

    Attributes:
        name: The model or service.
        place: Its devices.
        cost: Cost now, with its unit.
        period: Change of the period's median against the preceding period.
        week: Change of the last hour against a week before.
        day: The same against a day before.
    """

    name: str
    place: str
    cost: str
    period: str
    week: str
    day: str


@dataclass(frozen=True, slots=True)
class SpendPart:
    """A part of the spend, as text."""

    name: str
    amount: str
    share: str


@dataclass(frozen=True, slots=True)
class FirstPage:
    """The contents of the first page, as text.

    Attributes:
        figures: Spend, rate, budget, saving and energy.
        changes: What changed and why, one sentence each, the largest first.
        units: Cost of each model and service.
        money: Where the spend went, by currency.
        savings: The largest savings, one sentence each.
        notes: What limits the figures, such as assumed prices.
    """

    figures: Sequence[KeyFigure]
    changes: Sequence[str]
    units: Sequence[UnitRow]
    money: Sequence[SpendPart]
    savings: Sequence[str]
    notes: Sequence[str]


def first_page(report: Report) -> FirstPage:
    """Return the first page of a report."""
    groups = trend_groups(report.trends, report.hardware)
    return FirstPage(
        figures=list(_figures(report)),
        changes=list(_changes(report, groups)),
        units=[_unit_row(group, groups) for group in report.overview.units],
        money=[part for spend in report.spend for part in _shares(spend)],
        savings=list(_savings(report)),
        notes=list(_notes(report)),
    )


# ---- figures


def _figures(report: Report) -> Iterator[KeyFigure]:
    for spend in report.spend:
        yield KeyFigure("Spend", money(spend.total, spend.currency), spend_change(spend))
    for one in report.overview.spending:
        if one.per_hour is not None:
            idle = "" if one.idle_share is None else f"{share(one.idle_share)} of it idle"
            yield KeyFigure("Per hour now", money(one.per_hour, one.currency), idle)
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
    expected = (
        "" if status.expected is None else f"forecast {money(float(status.expected), currency)}"
    )
    name = "This month" if status.budget.period == "month" else f"This {status.budget.period}"
    spent = money(float(status.spent), currency)
    if not one.is_planned:
        return KeyFigure(name, spent, expected)
    state = status.verdict(status.amount)
    remark = ", ".join(part for part in (expected, state or "within the budget") if part)
    return KeyFigure(name, f"{spent} of {money(float(status.amount), currency)}", remark)


def _largest_savings(report: Report) -> dict[str, Decimal]:
    best: dict[str, Decimal] = {}
    for answer in report.savings:
        if answer.best is not None:
            most = max(best.get(answer.currency, Decimal(0)), answer.best.saving_per_month)
            best[answer.currency] = most
    return best


# ---- changes


def _changes(report: Report, groups: Sequence[TrendGroup]) -> Iterator[str]:
    main = report.overview.change
    if main is not None and main.kind == "drift":
        yield _drift(main)
    for change in report.changes:
        if change.kind == "price":
            yield _price(change, groups)
    alerts = report.overview.firing
    for alert in alerts[:MAX_ALERTS]:
        yield f"Firing: {alert.get('summary', '')}."
    if len(alerts) > MAX_ALERTS:
        yield f"{counted(len(alerts) - MAX_ALERTS, 'more alert')} firing."


def _drift(change: MainChange) -> str:
    """Return the largest drift with its cause and money."""
    words = [change.title.rstrip(".")]
    if change.detail:
        words.append(change.detail.rstrip("."))
    elif change.cause:
        words.append(f"cause: {change.cause.replace('_', ' ')}")
    text = "; ".join(words)
    text = f"{text[:1].upper()}{text[1:]}"
    if change.cost_per_month is not None and "a month" not in text:
        text += f"; {money(change.cost_per_month, change.currency)} a month at the present rate"
    also = f" {change.others} other series changed, too." if change.others else ""
    return f"{text}.{also}"


def _price(change: ReportedChange, groups: Sequence[TrendGroup]) -> str:
    """Return a change of price with the number of models whose cost it changes, all at once."""
    reached = [
        group
        for group in groups
        if any(set(trend.device.split("+")) & set(change.devices) for trend in group.members)
    ]
    moved = "" if change.change_pct is None else f" ({percent(change.change_pct)})"
    names = ", ".join(group.name for group in reached)
    reach = f" This changes the cost of {names}." if reached else ""
    return f"Price since {minute(change.since_ns)}: {change.title}{moved}.{reach}"


# ---- cost of a unit


def _unit_row(group: UnitGroup, groups: Sequence[TrendGroup]) -> UnitRow:
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
    if unit.unit == "token":
        cost = f"{money(unit.cost * unit.scale, currency)} per million output tokens"
    else:
        cost = unit_price(unit.cost, currency, unit.scale, unit.unit)
    place = devices_text(name for device in devices for name in device.split("+"))
    deviating = [
        f"{name} {percent((member.cost / unit.cost - 1) * 100)}"
        for member in group.members
        if (name := member.tags.get("device", "")) in group.outliers and unit.cost
    ]
    if deviating:
        place += f"; {', '.join(deviating)} against their median"
    return UnitRow(
        name=unit.name,
        place=place,
        cost=cost,
        period="-" if own is None else _moved(own.moved_pct),
        week=_moved(group.changed.change_7d_pct),
        day=_moved(group.changed.change_24h_pct),
    )


def _moved(pct: float | None) -> str:
    return "-" if pct is None else percent(pct)


# ---- where the money goes


def _shares(spend: Spend) -> Iterator[SpendPart]:
    """Yield the parts of the spend of one currency; they add up to the total."""

    def part(name: str, amount: Decimal) -> SpendPart:
        of = share(float(amount / spend.total)) if spend.total else "-"
        return SpendPart(name, money(amount, spend.currency), of)

    for use in spend.by_use:
        words = PARTS.get(use.part, use.part)
        yield part(f"{use.service}: {words}" if use.service else words, use.amount)
    rest = spend.total - total_of([use.amount for use in spend.by_use])
    if rest > 0:
        yield part("devices without a service" if spend.by_use else "all devices", rest)
    yield SpendPart("total", money(spend.total, spend.currency), "100 %")


def _savings(report: Report) -> Iterator[str]:
    found = saving_groups(report.savings)
    for one in found[:MAX_SAVINGS]:
        yield f"{one.title} saves {one.saving}."
    if len(found) > MAX_SAVINGS:
        yield f"{counted(len(found) - MAX_SAVINGS, 'smaller saving')} in the details."
    if len(found) > 1:
        yield "Savings of workloads on the same devices exclude each other."


def _notes(report: Report) -> Iterator[str]:
    for spend in report.spend:
        if share(spend.coverage) != "100 %":
            yield (
                f"Measurements cover {share(spend.coverage)} of the time of the devices; what the"
                " rest cost is unknown and in no figure."
            )
    assumed = [price.device for price in report.prices if price.assumed]
    if assumed:
        yield f"The price of {devices_text(assumed)} is an assumed list price; set [[price]]."
