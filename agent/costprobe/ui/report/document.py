"""The report for programs: as JSON, and as CSV with one figure per line; exact, with their units."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from pydantic_core import to_jsonable_python

from costprobe.core.outside import csv_cell
from costprobe.core.periods import TimeSpan, iso
from costprobe.spend.budget import BudgetStatus
from costprobe.ui import hosted_apis, key_costs
from costprobe.ui.report.gather import rounded
from costprobe.ui.report.model import (
    Bucket,
    Report,
    ReportedChange,
    Spend,
    Trend,
)
from costprobe.ui.report.words import budget_method, budget_period, cause_text
from costprobe.ui.savings import document as savings_document
from costprobe.ui.text import CHUNKS


def document(report: Report) -> dict[str, Any]:
    """Convert a report to JSON types; sums of money become exact decimal text."""
    span = TimeSpan(report.since_ns, report.until_ns)
    return {
        "host": report.host,
        "since": iso(report.since_ns),
        "until": iso(report.until_ns),
        "made": iso(report.made_ns),
        "label": report.label or None,
        "spend": [_spend(spend) for spend in report.spend],
        **asdict(report.drawn),
        "groups": [
            {
                "currency": group.currency,
                "basis": group.basis,
                "models": [
                    {**asdict(placed.candidate), "on_front": placed.dominated_by is None}
                    for placed in group.placed
                ],
            }
            for group in report.models
        ],
        "left_out": [
            {"name": rejected.candidate.name, "reason": rejected.reason}
            for rejected in report.left_out
        ],
        "trends": [_trend(trend) for trend in report.trends],
        "changes": [_change(change) for change in report.changes],
        "more_changes": report.more_changes,
        "savings": [savings_document(answer) for answer in report.savings],
        "budgets": [_budget(status) for status in report.budgets],
        "prices": to_jsonable_python(report.prices),
        "apis": [hosted_apis.document(choice) for choice in report.hosting],
        "tenants": [key_costs.document("tenant", span, one) for one in report.tenants],
    }


def _spend(spend: Spend) -> Mapping[str, Any]:
    return {
        "currency": spend.currency,
        "cost": str(spend.total),
        "cost_before": None if spend.before is None else str(spend.before),
        "coverage": spend.coverage,
        "coverage_before": spend.coverage_before,
        "cost_per_h": spend.per_hour,
        "cost_per_h_before": spend.per_hour_before,
        "by_device": [{"device": part.name, "cost": str(part.amount)} for part in spend.by_device],
        "by_day": _buckets(spend.by_day, "cost"),
        "by_use": to_jsonable_python(spend.by_use),
        "by_label": [{"value": part.name, "cost": str(part.amount)} for part in spend.by_label],
    }


def _trend(trend: Trend) -> Mapping[str, Any]:
    return {
        "name": trend.name,
        "basis": trend.basis,
        "device": trend.device,
        "subject": trend.subject,
        "currency": trend.currency,
        "cost_per_thousand_inferences": trend.now,
        "cost_per_thousand_inferences_before": trend.before,
        "steps": _buckets(trend.buckets, "cost_per_thousand_inferences"),
    }


def _change(change: ReportedChange) -> Mapping[str, Any]:
    fields = asdict(change)
    times = {name: iso(fields.pop(f"{name}_ns")) for name in ("time", "since")}
    del fields["named"]
    return {**times, **fields}


def _budget(status: BudgetStatus) -> Mapping[str, Any]:
    return {
        "budget": status.budget.name,
        "currency": status.budget.currency,
        "period": budget_period(status),
        **budget_amounts(status),
        "method": budget_method(status),
    }


def budget_amounts(status: BudgetStatus) -> dict[str, str | None]:
    """Return the amounts of a budget as exact text; None without a forecast."""
    amounts = {
        "amount": status.amount,
        "spent": status.spent,
        "forecast": status.expected,
        "forecast_low": status.low,
        "forecast_high": status.high,
    }
    return {name: None if one is None else str(rounded(one)) for name, one in amounts.items()}


def _buckets(buckets: Sequence[Bucket], name: str) -> list[dict[str, Any]]:
    return [{"time": iso(bucket.time_ns), name: bucket.value} for bucket in buckets]


HEADS: Final = ("section", "time", "name", "figure", "value", "unit")

# Figures of a model by the names of the series, with their units; "" is the currency.
_MODEL_FIGURES: Final = {
    "cost_per_inference": "",
    "latency_p50_ms": "ms",
    "latency_p99_ms": "ms",
    "energy_per_inference_j": "J",
    "carbon_per_inference_g": "g",
    "cost_per_million_tokens_in": "",
    "cost_per_million_tokens_fresh": "",
    "cost_per_million_tokens_cached": "",
    "cost_per_million_tokens_out": "",
    "energy_per_million_tokens_in_j": "J",
    "energy_per_million_tokens_out_j": "J",
}

Row = tuple[str, str, str, str, str | float, str]


def spreadsheet(report: Report) -> str:
    """Format a report as CSV with a header line; times are UTC in ISO 8601."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADS)
    for row in _rows(report):
        writer.writerow(map(csv_cell, row))
    return buffer.getvalue()


def _rows(report: Report) -> Iterator[Row]:
    yield "period", iso(report.since_ns), report.host, "since", iso(report.since_ns), ""
    yield "period", iso(report.until_ns), report.host, "until", iso(report.until_ns), ""
    yield from _now(report)
    yield from _spend_rows(report)
    yield from _tenants(report)
    drawn = report.drawn
    for quantity, value, unit in (
        ("energy_j", drawn.energy_j, "J"),
        ("energy_coverage", drawn.energy_coverage, "share"),
        ("carbon_g", drawn.carbon_g, "g"),
        ("carbon_coverage", drawn.carbon_coverage, "share"),
    ):
        if value is not None:
            yield "drawn", "", report.host, quantity, value, unit
    yield from _models(report)
    yield from _moves(report)
    yield from _plans(report)


def _now(report: Report) -> Iterator[Row]:
    """Yield the figures of the first page that no other section has."""
    if not report.overview:
        return
    for one in report.overview.spending:
        for quantity, value, unit in (
            ("cost_per_h", one.per_hour, one.currency),
            ("idle_share", one.idle_share, "share"),
        ):
            if value is not None:
                yield "now", iso(report.until_ns), report.host, quantity, value, unit
    for group in report.overview.units:
        for member in group.members:
            name = " on ".join(filter(None, (member.name, member.tags.get("device", ""))))
            currency = member.tags.get("currency", "")
            for quantity, value, unit in (
                (f"cost per {member.unit}", member.cost, currency),
                ("change_24h_pct", member.change_24h_pct, "%"),
                ("change_7d_pct", member.change_7d_pct, "%"),
            ):
                if value is not None:
                    yield "unit cost now", iso(member.time_ns), name, quantity, value, unit


def _moves(report: Report) -> Iterator[Row]:
    for trend in report.trends:
        for step in trend.buckets:
            yield (
                "trend",
                iso(step.time_ns),
                trend.name,
                f"cost_per_thousand_inferences ({trend.basis})",
                step.value,
                trend.currency,
            )
    for change in report.changes:
        text = f"{change.title}; {cause_text(change)}"
        yield f"change: {change.kind}", iso(change.time_ns), change.subject, "text", text, ""
        if change.change_pct is not None:
            since = iso(change.since_ns)
            yield (
                f"change: {change.kind}",
                since,
                change.subject,
                "change_pct",
                change.change_pct,
                "%",
            )


def _plans(report: Report) -> Iterator[Row]:
    for answer in report.savings:
        if answer.best is not None:
            what = f"{answer.workload.name}: {answer.best.action}"
            saving = str(answer.best.saving_per_month)
            yield "saving", "", what, "saving_per_month", saving, answer.currency
    for status in report.budgets:
        for quantity, amount in budget_amounts(status).items():
            if amount is not None:
                yield "budget", "", status.budget.name, quantity, amount, status.budget.currency
    for price in report.prices:
        plan = f"price_rate_per_h ({price.plan})"
        yield "price", "", price.device, plan, str(price.price_rate_per_h), price.currency


def _spend_rows(report: Report) -> Iterator[Row]:
    for spend in report.spend:
        yield "spend", "", "all", "cost", str(spend.total), spend.currency
        yield "spend", "", "all", "coverage", spend.coverage, "share"
        if spend.before is not None and spend.coverage_before is not None:
            yield "spend", "", "all", "cost_before", str(spend.before), spend.currency
            yield "spend", "", "all", "coverage_before", spend.coverage_before, "share"
        if spend.per_hour is not None and spend.per_hour_before is not None:
            yield "spend", "", "all", "cost_per_h", spend.per_hour, spend.currency
            yield "spend", "", "all", "cost_per_h_before", spend.per_hour_before, spend.currency
        for part in spend.by_device:
            yield "spend", "", part.name, "cost", str(part.amount), spend.currency
        for day in spend.by_day:
            yield "spend", iso(day.time_ns), "all", "cost", day.value, spend.currency
        for use in spend.by_use:
            yield (
                "spend",
                "",
                use.service or "remainder",
                f"cost ({use.part})",
                str(use.cost),
                spend.currency,
            )
        for part in spend.by_label:
            what = f"{report.label}={part.name or 'none'}"
            yield "spend", "", what, "cost", str(part.amount), spend.currency


def _tenants(report: Report) -> Iterator[Row]:
    for allocation in report.tenants:
        for tenant in filter(key_costs.is_shown, allocation.parts):
            name = key_costs.name_of(tenant)
            figures = (
                ("cost", tenant.cost, allocation.currency),
                ("cached_share", tenant.cached_share, "share"),
                ("cost_cache_saved", tenant.cache_saved, allocation.currency),
            )
            for figure, value, unit in figures:
                if value is not None:
                    yield "tenant", "", name, figure, value, unit


def _models(report: Report) -> Iterator[Row]:
    for group in report.models:
        for placed in group.placed:
            candidate = placed.candidate
            by_chunks = f" ({CHUNKS})" if candidate.counts_chunks else ""
            for figure, unit in _MODEL_FIGURES.items():
                summary = getattr(candidate, figure)
                mark = by_chunks if "per_million_tokens" in figure else ""
                if summary is not None:
                    yield (
                        f"model ({group.basis})",
                        "",
                        candidate.name,
                        f"{figure}{mark}",
                        summary.value,
                        unit or candidate.currency,
                    )
