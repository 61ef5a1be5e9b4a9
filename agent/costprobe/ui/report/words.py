"""Display formats of the figures of a report."""

from __future__ import annotations

from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from costprobe.core.money import cents, money, price_scale, scale_words
from costprobe.core.periods import local_time
from costprobe.core.records import NS_PER_S
from costprobe.core.units import HOUR_S
from costprobe.core.units import percent as share
from costprobe.spend.budget import BudgetStatus
from costprobe.ui.amounts import si
from costprobe.ui.report.model import (
    Drawn,
    Price,
    Report,
    ReportedChange,
    Spend,
)
from costprobe.ui.text import forecast_cells, utc

PARTS: Final = {
    "busy": "busy",
    "idle": "idle time",
    "held": "held, utilization unknown",
    "probing": "probing",
    "unallocated": "no service, or not yet allocated",
}


def change_pct(now: float | Decimal, before: float | Decimal | None) -> str:
    """Format a relative change; a dash if unknown."""
    if before is None or not before:
        return "-"
    return percent((float(now) / float(before) - 1) * 100)


def day(time_ns: int) -> str:
    """Format a UTC day."""
    return utc(time_ns)[: len("2026-11-28")]


def minute(time_ns: int) -> str:
    """Format a UTC minute, without the time zone, which the report states once."""
    return utc(time_ns).removesuffix(" UTC")


def period(report: Report) -> str:
    """Format the period of a report."""
    return f"{minute(report.since_ns)} to {minute(report.until_ns)} UTC"


def days(report: Report) -> str:
    """Format the length of the period: "30 days", "6 h"."""
    hours = round((report.until_ns - report.since_ns) / NS_PER_S / HOUR_S)
    return f"{hours // 24} days" if hours >= 48 and hours % 24 == 0 else f"{hours} h"  # noqa: PLR2004 - two days


def each(cost: float | None, currency: str) -> str:
    """Format the cost of an inference at a readable scale; a dash if unknown."""
    if cost is None:
        return "-"
    return per_unit(cost, currency, price_scale(cost), "inference")


def per_unit(cost: float, currency: str, scale: int, unit: str) -> str:
    """Format the cost of a unit at a scale: "$0.245 per million inferences"."""
    return f"{money(cost * scale, currency)} per {scale_words(scale, unit)}"


def percent(pct: float) -> str:
    """Format a change in percent."""
    return f"{pct:+z.1f} %"


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
    return ", ".join(filter(None, (si(drawn.energy_j / HOUR_S, "Wh"), carbon(drawn))))


def carbon(drawn: Drawn) -> str:
    """Format the emissions, with the share of the energy's time of which they are known."""
    if drawn.carbon_g is None:
        return ""
    coverage = drawn.carbon_coverage
    covered = ""
    if coverage is not None and share(coverage) != "100 %":
        covered = f" (intensity known for {share(coverage)} of the time)"
    return f"{si(drawn.carbon_g, 'g')} CO2e{covered}"


def electricity(price: Price) -> str:
    """Format the price of a kilowatt-hour beside a device's price."""
    if price.electricity_per_kwh is not None:
        return cents(price.electricity_per_kwh, price.currency)
    return "in the price" if price.electricity_included else "no tariff: not included"


def budget_period(status: BudgetStatus) -> str:
    """Format the period of a budget: "month from 2026-03-01"."""
    starts = local_time(status.period.start_ns, ZoneInfo(status.budget.timezone))
    return f"{status.budget.period} from {starts:%Y-%m-%d}"


def budget_method(status: BudgetStatus) -> str:
    """Describe how a budget is forecast, with its coverage."""
    remaining = status.remaining
    method = "" if remaining is None else f"{remaining.method} from {remaining.hours:,} h"
    coverage = f"coverage {share(status.coverage)} of the elapsed time"
    return "; ".join(filter(None, (method, coverage, status.note)))


def budget_cells(status: BudgetStatus) -> tuple[str, ...]:
    """Return name, period, planned, spent and expected amount of a budget, and its interval."""
    currency = status.budget.currency
    expected, interval = forecast_cells(status, currency)
    over = " (over)" if status.verdict(status.amount) else ""
    return (
        status.budget.name,
        budget_period(status),
        cents(status.amount, currency),
        cents(status.spent, currency),
        f"{expected}{over}",
        interval,
    )


def cause_text(change: ReportedChange) -> str:
    """Describe the cause of an event."""
    parts = [change.detail]
    if change.before or change.after:
        parts.append(f"{change.before or '?'} → {change.after or '?'}")
    cause = change.cause.replace("_", " ")
    if cause not in ("", "unknown") and cause not in change.detail:
        parts.append(f"cause: {cause}")
    return "; ".join(part for part in parts if part)
