"""Probe reports and price terms as JSON, and the process's own resource use."""

from __future__ import annotations

import os
import resource
from decimal import Decimal
from typing import Any

from costprobe.core.records import present
from costprobe.domain.costing.probe.points import (
    latency_fields,
    per_million_tokens,
    token_fields,
)
from costprobe.domain.costing.probe.run import ProbeReport
from costprobe.domain.pricing.book import Terms

# Fields of a latency; a percentile that too few samples support is None.
LATENCIES = ("latency_p50_ms", "latency_mean_ms", "latency_cv", "latency_p90_ms", "latency_p99_ms")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rss_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - one small read
        return int(file.read().split()[1]) * PAGE_BYTES


def cpu_s() -> float:
    """Return the CPU seconds that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def report_document(report: ProbeReport) -> dict[str, Any]:
    """Return a probe report as JSON, as `costprobe status --json` and `probe --json` print it.

    Args:
        report: The report of a probe run.
    """
    result, energy, cost, terms = report.result, report.energy, report.cost, report.terms
    document: dict[str, Any] = {
        "time_ns": report.time_ns,
        "device": result.device,
        "probe": result.probe,
        "batch": result.batch,
        **dict.fromkeys(LATENCIES),
        **latency_fields(result),
        "samples": result.samples,
        "stop_reason": result.stop_reason,
        "throughput_per_s": result.throughput_per_s,
        "h2d_ms": result.h2d_ms,
        "latency_rel_err": result.latency_rel_err,
        "outliers": result.outliers,
        "contended": report.contended,
        "threads": result.threads,
        "tags": dict(result.tags),
        "fields": present({**result.fields, **token_fields(result, energy)}),
        "fingerprint": result.fingerprint,
        "software": dict(result.software),
        "energy": None,
        "energy_absent": report.energy_absent or None,
        "cost": None,
        "price": None,
        "carbon": None,
        "rolling": {},
    }
    if energy is not None:
        document["energy"] = {
            "energy_per_inference_j": energy.per_inference_j,
            "energy_above_idle_j": energy.above_idle_j,
            "energy_method": energy.method,
            "energy_rel_err": energy.rel_err,
            "energy_scope": energy.scope,
            "energy_suspect": energy.suspect,
        }
    if report.emitted is not None:
        document["carbon"] = {
            "carbon_per_inference_g": report.emitted.g,
            "carbon_method": report.emitted.method,
        }
    if terms is not None:
        document["price"] = terms_document(terms)
    if cost is not None:
        document["cost"] = {
            "currency": cost.currency,
            "cost_per_inference": cost.per_inference,
            "cost_hardware": cost.hardware,
            "cost_energy": cost.energy,
            "cost_reference": cost.reference,
            "cost_per_million_tokens_in": per_million_tokens(
                cost.per_inference, result, result.tokens_in
            ),
            "cost_per_million_tokens_out": per_million_tokens(
                cost.per_inference, result, result.tokens_out
            ),
        }
        for name, rolled in report.rolled.items():
            document["rolling"] |= {
                f"rolling_{name}": rolled.median,
                f"rolling_{name}_iqr": rolled.iqr,
                f"rolling_{name}_coverage": rolled.coverage,
                f"rolling_{name}_samples": rolled.samples,
            }
    return document


def terms_document(terms: Terms) -> dict[str, Any]:
    """Return price terms as JSON."""
    return {
        "plan": terms.rate.plan,
        "price_rate_per_h": str(terms.rate.per_hour),
        "price_rate_low_per_h": optional_text(terms.rate.low_per_hour),
        "price_rate_high_per_h": optional_text(terms.rate.high_per_hour),
        "currency": terms.rate.currency,
        "source": terms.rate.source,
        "electricity_included": terms.rate.electricity_included,
    }


def optional_text(amount: Decimal | None) -> str | None:
    """Return an exact amount as JSON has it; None for none."""
    return None if amount is None else str(amount)
