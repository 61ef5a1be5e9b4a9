"""A service's window as JSON, as `costprobe status` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costprobe import __version__
from costprobe.core.records import NS_PER_S, Energy
from costprobe.domain.costing.serving.served import Counts
from costprobe.domain.costing.serving.serving_basis import ServiceCost
from costprobe.domain.costing.serving.serving_energy import served_energy
from costprobe.domain.costing.serving.serving_rolling import RolledRatio
from costprobe.domain.costing.serving.tenants import TenantSplit


def last_window(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the last window of a stored document; that of another version may have other keys."""
    last = document["last"] if document["version"] == __version__ else None
    return None if last is None else dict(last)


def window_document(
    cost: ServiceCost,
    rolled: Mapping[str, RolledRatio],
    currency: str,
    busy_share: float | None,
    time_ns: int,
    *,
    drawn: Energy | None,
    split: TenantSplit | None,
) -> dict[str, Any]:
    """Return a window as JSON, as `costprobe status --json` prints it.

    Args:
        cost: Counts and cost of the window.
        rolled: Rolling cost of the service.
        currency: ISO 4217 code; empty without a price.
        busy_share: Share of the window in which its devices were busy; None if unknown.
        time_ns: UTC in ns of its end.
        drawn: Energy of the service; None where not known.
        split: Its cost by tenant; None without tenants or cost.
    """
    window, total = cost.window, cost.total
    counts: Counts = window.total
    energy = served_energy(total, drawn) if total is not None and drawn is not None else None
    return {
        "time_ns": time_ns,
        "window_s": (window.end_ns - window.start_ns) / NS_PER_S,
        "requests": counts.requests,
        "errors": counts.errors,
        "tokens_in": counts.tokens_in,
        "tokens_out": counts.tokens_out,
        "restarts": window.restarts,
        "busy_share": busy_share,
        "problems": list(cost.problems),
        "cost_problems": [problem for problem in cost.problems if problem not in window.problems],
        "missing": list(window.missing),
        "currency": currency or None,
        "cost": None
        if total is None
        else {
            "cost_total": float(total.cost),
            "cost_per_request": total.per_request,
            "cost_per_inference": total.per_inference,
            "cost_per_million_tokens_in": total.per_million_tokens_in,
            "cost_per_million_tokens_out": total.per_million_tokens_out,
            "token_split": total.tokens.split if total.tokens else None,
            "idle_share": total.idle_share,
        },
        "energy": None
        if energy is None
        else {
            **energy.figures(),
            "energy_method": energy.total.method,
            "energy_rel_err": energy.total.rel_err,
            "energy_scope": energy.total.scope,
            "energy_suspect": energy.total.suspect,
        },
        "tenants": None if split is None else tenants_document(split),
        "rolling": {
            key: value
            for name, summary in rolled.items()
            for key, value in (
                (f"rolling_{name}", summary.per_inference),
                (f"rolling_{name}_coverage", summary.coverage),
            )
        },
    }


def tenants_document(split: TenantSplit) -> dict[str, Any]:
    """Return the cost of a window by tenant as JSON."""
    counted = split.counted_share
    return {
        "counted_share": None if counted is None else float(counted),
        "problems": list(split.problems),
        "parts": [
            {
                "tenant": part.tenant,
                "cost": float(part.cost),
                "cost_share": float(part.share),
                "tokens_in": part.counts.tokens_in,
                "tokens_out": part.counts.tokens_out,
                "requests": part.counts.requests,
            }
            for part in split.tenants
        ],
    }
