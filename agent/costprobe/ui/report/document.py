"""The report as JSON: exact figures with units in the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from costprobe.domain.advice.exclusive import together
from costprobe.ui.report.model import Bucket, Outlook, Price, Report, ReportedChange, Spend, Trend
from costprobe.ui.text import iso


def document(report: Report) -> dict[str, Any]:
    """Convert a report to JSON types; sums of money become exact decimal text."""
    return {
        "host": report.host,
        "since": iso(report.since_ns),
        "until": iso(report.until_ns),
        "made": iso(report.made_ns),
        "spend": [_spend(one) for one in report.spend],
        "energy_kwh": report.drawn.energy_kwh,
        "energy_coverage": report.drawn.energy_coverage,
        "carbon_kg": report.drawn.carbon_kg,
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
        "left_out": [{"name": out.candidate.name, "reason": out.reason} for out in report.left_out],
        "trends": [_trend(one) for one in report.trends],
        "changes": [_change(one) for one in report.changes],
        "more_changes": report.more_changes,
        "savings": [hint.document() for hint in report.hints],
        "together": [
            {"currency": one.currency, "saving_per_month": str(one.saving_per_month)}
            for one in together(report.hints)
        ],
        "budgets": [_outlook(one) for one in report.outlooks],
        "prices": [_price(one) for one in report.prices],
    }


def _spend(one: Spend) -> Mapping[str, Any]:
    return {
        "currency": one.currency,
        "total": str(one.total),
        "before": None if one.before is None else str(one.before),
        "coverage": one.coverage,
        "coverage_before": one.coverage_before,
        "per_hour": one.per_hour,
        "per_hour_before": one.per_hour_before,
        "by_device": [{"device": part.name, "amount": str(part.amount)} for part in one.by_device],
        "by_day": _buckets(one.by_day, "amount"),
        "by_use": [
            {"service": use.service, "part": use.part, "amount": str(use.amount)}
            for use in one.by_use
        ],
    }


def _trend(one: Trend) -> Mapping[str, Any]:
    return {
        "name": one.name,
        "basis": one.basis,
        "device": one.device,
        "subject": one.subject,
        "currency": one.currency,
        "cost_per_thousand": one.now,
        "cost_per_thousand_before": one.before,
        "steps": _buckets(one.buckets, "cost_per_thousand"),
    }


def _change(one: ReportedChange) -> Mapping[str, Any]:
    return {
        "time": iso(one.time_ns),
        "since": iso(one.since_ns),
        "kind": one.kind,
        "severity": one.severity,
        "subject": one.subject,
        "title": one.title,
        "detail": one.detail,
        "cause": one.cause,
        "before": one.before,
        "after": one.after,
        "change_pct": one.change_pct,
        "times": one.times,
    }


def _outlook(one: Outlook) -> Mapping[str, Any]:
    return {
        "name": one.name,
        "currency": one.currency,
        "period": one.period,
        "planned": str(one.planned),
        "spent": str(one.spent),
        "expected": None if one.expected is None else str(one.expected),
        "low": None if one.low is None else str(one.low),
        "high": None if one.high is None else str(one.high),
        "method": one.method,
    }


def _price(one: Price) -> Mapping[str, Any]:
    per_kwh = one.electricity_per_kwh
    return {
        "device": one.device,
        "model": one.model,
        "plan": one.plan,
        "currency": one.currency,
        "per_hour": str(one.per_hour),
        "source": one.source,
        "assumed": one.is_assumed,
        "stale": one.is_stale,
        "electricity_included": one.electricity_included,
        "electricity_per_kwh": None if per_kwh is None else str(per_kwh),
    }


def _buckets(buckets: Sequence[Bucket], name: str) -> list[dict[str, Any]]:
    return [{"time": iso(one.time_ns), name: one.value} for one in buckets]
