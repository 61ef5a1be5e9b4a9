"""Figures of a report as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

from agent.cli.lines import money
from agent.costing.compare import Candidate
from agent.model import NS_PER_S
from agent.report.model import Change, Price, Report, Trend
from agent.report.trends import PER_THOUSAND
from agent.units import MONTH_H

_CENT: Final = Decimal("0.01")
KINDS: Final = {
    "drift": "drift",
    "price": "price",
    "software": "software",
    "fault": "fault",
    "anomaly": "odd sample",
}
PARTS: Final = {
    "busy": "work",
    "idle": "idle time",
    "held": "held, use not known",
    "probing": "probing",
    "unallocated": "nobody's",
}
BASES: Final = {
    "probe": "as probes: what an inference costs while the device does nothing else",
    "serving": "as served: everything the devices cost, idle time included",
}


def amount(value: Decimal, currency: str) -> str:
    """Money with its cents, or with four digits where cents would hide it."""
    if value and abs(value) < 1:
        return money(float(value), currency)
    return f"{value.quantize(_CENT, ROUND_HALF_EVEN):,} {currency}"


def per_thousand(value: float, currency: str) -> str:
    """Currency for 1,000 inferences."""
    return money(value, currency)


def short(value: float, currency: str) -> str:
    """Money with four digits, as fits on an axis."""
    return money(value, currency)


def change_pct(now: float | Decimal, before: float | Decimal | None) -> str:
    """By how much something moved; a dash where it cannot be told."""
    if before is None or not before:
        return "-"
    # Adding 0 turns what would read as -0.0 into +0.0.
    return f"{round((float(now) / float(before) - 1) * 100, 1) + 0.0:+.1f} %"


def figure(value: float | None, digits: int = 4) -> str:
    """A number with so many digits; a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}g}"


def share(value: float) -> str:
    """A part of a whole, whole percents, such that almost all is not all."""
    pct = value * 100
    return f"{pct:.1f} %" if 99 <= pct < 100 or 0 < pct < 1 else f"{pct:.0f} %"  # noqa: PLR2004 - percents


def day(time_ns: int) -> str:
    """A day in UTC."""
    return _utc(time_ns).strftime("%Y-%m-%d")


def minute(time_ns: int) -> str:
    """A minute in UTC, without the zone's name: the report says once that all times are UTC."""
    return _utc(time_ns).strftime("%Y-%m-%d %H:%M")


def period(report: Report) -> str:
    """The period of a report."""
    return f"{minute(report.since_ns)} to {minute(report.until_ns)} UTC"


def cost_of(candidate: Candidate) -> str:
    """What a model's inferences cost, by the thousand."""
    if candidate.cost is None:
        return "-"
    return money(candidate.cost.value * PER_THOUSAND, candidate.currency)


def headline(report: Report) -> list[str]:
    """The report in a few sentences."""
    lines = []
    for one in report.spend:
        moved = (
            f" ({change_pct(one.total, one.before)} against the same time before)"
            if one.before
            else ""
        )
        lines.append(f"{amount(one.total, one.currency)} were spent{moved}.")
    lines += [sentence for trend in _movers(report) if (sentence := _moved(trend))]
    drifts = [change for change in report.changes if change.kind == "drift"]
    if drifts:
        lines.append(f"Last drift: {drifts[0].title}.")
    saving: dict[str, Decimal] = {}
    for hint in report.hints:
        saving[hint.currency] = max(saving.get(hint.currency, Decimal(0)), hint.saving_per_month)
    lines += [
        f"The best single saving found is {amount(most, currency)} a month of {MONTH_H} h."
        for currency, most in sorted(saving.items())
    ]
    over = [one for one in report.outlooks if one.is_over]
    lines += [
        f"Budget {one.name} is {'past' if one.spent > one.planned else 'heading past'}"
        f" its {amount(one.planned, one.currency)}."
        for one in over
    ]
    assumed = sorted(price.device for price in report.prices if price.is_assumed)
    if assumed:
        lines.append(
            f"The price of {', '.join(assumed)} is an assumed list price: set [[price]] to have your own."
        )
    return lines or ["Nothing was measured in this period."]


def _movers(report: Report) -> list[Trend]:
    """The one that moved most, where one moved by a percent at least."""
    known = [trend for trend in report.trends if trend.before]
    return sorted(known, key=lambda one: -abs(one.now / (one.before or one.now) - 1))[:1]


def _moved(trend: Trend) -> str:
    if not trend.before or abs(trend.now / trend.before - 1) < 0.01:  # noqa: PLR2004 - a percent
        return ""
    return (
        f"{trend.name} moved most: {change_pct(trend.now, trend.before)} to"
        f" {per_thousand(trend.now, trend.currency)} per 1,000 inferences."
    )


def electricity(price: Price) -> str:
    """What a kilowatt-hour costs besides a device's price."""
    if price.electricity_per_kwh is not None:
        return amount(price.electricity_per_kwh, price.currency)
    return "in the price" if price.electricity_included else "no tariff: left out"


def why(change: Change) -> str:
    """What is known of a change, in a sentence or two."""
    parts = [change.detail]
    if change.before or change.after:
        parts.append(f"{change.before or '?'} → {change.after or '?'}")
    cause = change.cause.replace("_", " ")
    if cause not in ("", "unknown") and cause not in change.detail:
        parts.append(f"cause: {cause}")
    return "; ".join(part for part in parts if part)


def _utc(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns / NS_PER_S, tz=UTC)
