"""Display formats of the figures of a report."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from costprobe.core.money_text import PER_THOUSAND, money
from costprobe.core.records import NS_PER_S
from costprobe.core.units import KWH_J, MONTH_H
from costprobe.domain.costing.comparison.compare import Candidate
from costprobe.ui.report.model import Drawn, Price, Report, ReportedChange, Spend, Trend

_G_PER_KG: Final = 1000
PARTS: Final = {
    "busy": "busy",
    "idle": "idle time",
    "held": "held, utilization unknown",
    "probing": "probing",
    "unallocated": "remainder",
}
BASES: Final = {
    "probe": "probe basis: one inference on an otherwise idle device",
    "serving": "serving basis: the whole cost of the devices, idle time included",
}


def change_pct(now: float | Decimal, before: float | Decimal | None) -> str:
    """Format a relative change; a dash if unknown."""
    if before is None or not before:
        return "-"
    # Adding 0 converts -0.0 to +0.0.
    return f"{round((float(now) / float(before) - 1) * 100, 1) + 0.0:+.1f} %"


def figure(value: float | None, digits: int = 4) -> str:
    """Format a number with significant digits; a dash if unknown."""
    return "-" if value is None else f"{value:,.{digits}g}"


def share(value: float) -> str:
    """Format a share in whole percent; below 1 and above 99 % with one decimal."""
    pct = value * 100
    return f"{pct:.1f} %" if 99 <= pct < 100 or 0 < pct < 1 else f"{pct:.0f} %"  # noqa: PLR2004 - percents


def day(time_ns: int) -> str:
    """Format a UTC day."""
    return _utc(time_ns).strftime("%Y-%m-%d")


def minute(time_ns: int) -> str:
    """Format a UTC minute, without the time zone, which the report states once."""
    return _utc(time_ns).strftime("%Y-%m-%d %H:%M")


def period(report: Report) -> str:
    """Format the period of a report."""
    return f"{minute(report.since_ns)} to {minute(report.until_ns)} UTC"


def cost_of(candidate: Candidate) -> str:
    """Format the cost of 1,000 inferences of a model."""
    if candidate.cost_per_inference is None:
        return "-"
    return money(candidate.cost_per_inference.value * PER_THOUSAND, candidate.currency)


def spend_change(spend: Spend) -> str:
    """Compare the cost per covered hour with the preceding period; empty where it is unknown."""
    if spend.per_hour is None or not spend.per_hour_before:
        return ""
    moved = change_pct(spend.per_hour, spend.per_hour_before)
    return f"{moved} per covered hour compared with the preceding period"


def energy(drawn: Drawn) -> str:
    """Format the energy with its emissions; empty if it is unknown."""
    if drawn.energy_j is None:
        return ""
    return ", ".join(filter(None, (f"{figure(drawn.energy_j / KWH_J)} kWh", carbon(drawn))))


def carbon(drawn: Drawn) -> str:
    """Format the emissions, with the share of the energy's time of which they are known."""
    if drawn.carbon_g is None:
        return ""
    coverage = drawn.carbon_coverage
    covered = "" if coverage is None else f" (intensity known for {share(coverage)} of the time)"
    return f"{figure(drawn.carbon_g / _G_PER_KG)} kg CO2e{covered}"


def headline(report: Report) -> list[str]:
    """Summarize the report in a few sentences."""
    lines = []
    for spend in report.spend:
        moved = spend_change(spend)
        lines.append(f"{money(spend.total, spend.currency)} spent{f' ({moved})' if moved else ''}.")
    lines += [
        sentence for trend in _largest_change(report) if (sentence := _change_sentence(trend))
    ]
    drifts = [change for change in report.changes if change.kind == "drift"]
    if drifts:
        lines.append(f"Last drift: {drifts[0].title}.")
    saving: dict[str, Decimal] = {}
    for answer in report.savings:
        if answer.best is not None:
            most = max(saving.get(answer.currency, Decimal(0)), answer.best.saving_per_month)
            saving[answer.currency] = most
    lines += [
        f"Largest single saving: {money(most, currency)} per month of {MONTH_H} h."
        for currency, most in sorted(saving.items())
    ]
    over = [outlook for outlook in report.outlooks if outlook.is_over]
    lines += [
        f"Budget {outlook.name}"
        f" {'exceeds' if outlook.spent > outlook.planned else 'is forecast to exceed'}"
        f" its {money(outlook.planned, outlook.currency)}."
        for outlook in over
    ]
    assumed = sorted(price.device for price in report.prices if price.is_assumed)
    if assumed:
        lines.append(f"The price of {', '.join(assumed)} is an assumed list price; set [[price]].")
    return lines or ["There are no measurements in this period."]


def _largest_change(report: Report) -> list[Trend]:
    """Return the trend with the largest change."""
    comparable = [trend for trend in report.trends if trend.before]
    comparable.sort(key=lambda trend: -abs(trend.now / (trend.before or trend.now) - 1))
    return comparable[:1]


def _change_sentence(trend: Trend) -> str:
    if not trend.before or abs(trend.now / trend.before - 1) < 0.01:  # noqa: PLR2004 - a percent
        return ""
    return (
        f"Largest change: {trend.name}, {change_pct(trend.now, trend.before)} to"
        f" {money(trend.now, trend.currency)} per 1,000 inferences."
    )


def electricity(price: Price) -> str:
    """Format the price of a kilowatt-hour beside a device's price."""
    if price.electricity_per_kwh is not None:
        return money(price.electricity_per_kwh, price.currency)
    return "in the price" if price.electricity_included else "no tariff: not included"


def cause_text(change: ReportedChange) -> str:
    """Describe the cause of an event."""
    parts = [change.detail]
    if change.before or change.after:
        parts.append(f"{change.before or '?'} → {change.after or '?'}")
    cause = change.cause.replace("_", " ")
    if cause not in ("", "unknown") and cause not in change.detail:
        parts.append(f"cause: {cause}")
    return "; ".join(part for part in parts if part)


def _utc(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns / NS_PER_S, tz=UTC)
