"""The report as JSON: exact figures with units in the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic_core import to_jsonable_python

from costprobe.core.periods import TimeSpan, iso
from costprobe.spend.budget import BudgetStatus
from costprobe.ui import hosted_apis, key_costs
from costprobe.ui.report.model import (
    Bucket,
    Report,
    ReportedChange,
    Spend,
    Trend,
)
from costprobe.ui.report.spend import rounded
from costprobe.ui.report.words import budget_method, budget_period
from costprobe.ui.savings import document as savings_document


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
        "energy_j": report.drawn.energy_j,
        "energy_coverage": report.drawn.energy_coverage,
        "carbon_g": report.drawn.carbon_g,
        "carbon_coverage": report.drawn.carbon_coverage,
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
        "by_use": [
            {"service": use.service, "part": use.part, "cost": str(use.amount)}
            for use in spend.by_use
        ],
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
