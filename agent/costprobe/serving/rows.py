"""A service's window as rows of the series, and as JSON for `costprobe status`.

It has the served requests, their cost and its allocation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costprobe import __version__
from costprobe.core.records import NS_PER_S, TOGETHER, Energy, FieldValue, Point
from costprobe.core.schema import MEASURES, make_point
from costprobe.pricing.electricity import Emission
from costprobe.serving.allocation import Line
from costprobe.serving.cost import (
    THOUSAND,
    RolledRatio,
    ServedCost,
    ServedEmission,
    ServiceCost,
    TenantSplit,
    served_energy,
)
from costprobe.serving.meter import Counts, ServedWindow

MAX_DETAIL_CHARS = 500
# Counts that a row of `cost` repeats: databases divide sums of one measurement only.
UNITS = ("requests", "inferences", "tokens_in", "tokens_out", "cached_tokens", "fresh_tokens")


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
        "window_s": _length_s(window),
        "requests": counts.requests,
        "errors": counts.errors,
        "tokens_in": counts.tokens_in,
        "cached_tokens": counts.cached_tokens,
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
            **_cached_prices(total),
            "cost_per_million_tokens_out": total.per_million_tokens_out,
            "token_split": total.tokens.split if total.tokens else None,
            "idle_share": total.idle_share,
        },
        "energy": None
        if energy is None
        else {**energy.fields(), "energy_scope": energy.total.scope},
        "tenants": None if split is None else tenants_document(split),
        "rolling": _rolling(rolled),
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
                "cached_tokens": part.counts.cached_tokens,
                "tokens_out": part.counts.tokens_out,
                "requests": part.counts.requests,
                "cost_cache_saved": part.cache_saved,
            }
            for part in split.tenants
        ],
    }


def serving_points(
    cost: ServiceCost, busy_share: float | None, tags: Mapping[str, str], time_ns: int
) -> list[Point]:
    """Return rows of `serving`: the service's, and one for each of several models.

    Args:
        cost: Counts and cost of a service.
        busy_share: Share of the window in which its devices were busy; None if unknown.
        tags: Host and static labels.
        time_ns: UTC in ns of the window's end.
    """
    window = cost.window
    all_tags = {**tags, "service": window.service, "engine": window.engine}
    named_models = {model: counts for model, counts in window.models.items() if model}
    return [
        make_point(
            "serving",
            {**all_tags, "served_model": model},
            {
                **{name: getattr(counts, name) for name in MEASURES},
                "busy_share": busy_share,
                **{gauge: None if model else value for gauge, value in window.gauges.items()},
                "window_s": _length_s(window),
                "complete": cost.is_complete,
                "restarts": window.restarts,
                "readings": window.readings,
                "problem": _joined(cost.problems),
                "missing": _joined(window.missing),
            },
            time_ns,
        )
        for model, counts in {
            "": window.total,
            **(named_models if len(named_models) > 1 else {}),
        }.items()
    ]


def serving_cost_points(  # noqa: PLR0913 - what a row of `cost` states
    cost: ServiceCost,
    plan: str,
    currency: str,
    rolled: Mapping[str, RolledRatio],
    tags: Mapping[str, str],
    time_ns: int,
    *,
    emitted: ServedEmission | None = None,
    drawn: Energy | None = None,
) -> list[Point]:
    """Return rows of `cost` on the serving basis: the service's, and one for each of several models.

    Args:
        cost: Cost of a service; an incomplete window has no row.
        plan: Kinds of the price plans in force.
        currency: ISO 4217 code.
        rolled: Rolling cost of the service, by the name of the rolling window.
        tags: Host and static labels.
        time_ns: UTC in ns of the window's end.
        emitted: Emissions of the service; None if unknown.
        drawn: Energy of the service; None where that is not known.
    """
    if cost.total is None:
        return []
    all_tags = {
        **tags,
        "device": TOGETHER.join(cost.devices),
        "service": cost.window.service,
        "basis": "serving",
        "plan": plan,
        "currency": currency,
    }
    window_s = _length_s(cost.window)
    total_fields = {**_cost_fields(cost.total), **_rolling(rolled), "window_s": window_s}
    total_fields |= _carbon_fields(cost.total, emitted.service if emitted else None)
    total_fields |= served_energy(cost.total, drawn).fields() if drawn else {}
    points = [make_point("cost", all_tags, total_fields, time_ns)]
    for model_cost in cost.models:
        fields = {**_cost_fields(model_cost), "window_s": window_s, "model_split": cost.model_split}
        fields |= _carbon_fields(
            model_cost, emitted.models.get(model_cost.model) if emitted else None
        )
        fields |= served_energy(model_cost, drawn).fields() if drawn else {}
        points.append(
            make_point("cost", {**all_tags, "served_model": model_cost.model}, fields, time_ns)
        )
    return points


def allocation_points(lines: Sequence[Line], tags: Mapping[str, str], time_ns: int) -> list[Point]:
    """Return rows of `allocation`: a device's cost in a window, by service and purpose.

    Args:
        lines: The parts of the cost of devices.
        tags: Host and static labels.
        time_ns: UTC in ns of the window's end.
    """
    return [
        make_point(
            "allocation",
            {
                **tags,
                "device": line.device,
                "service": line.service,
                "part": line.part,
                "currency": line.currency,
            },
            {
                "cost": float(line.cost),
                "cost_hardware": float(line.hardware),
                "cost_energy": float(line.energy),
            },
            time_ns,
        )
        for line in lines
    ]


def tenant_points(
    split: TenantSplit,
    tags: Mapping[str, str],
    time_ns: int,
    drawn: Energy | None = None,
) -> list[Point]:
    """Return rows of `tenant`: a service's cost in a window by tenant.

    Args:
        split: The parts.
        tags: Host, static labels, service and currency.
        time_ns: UTC in ns of the window's end.
        drawn: Energy of the service, divided like its cost; None where not known.
    """
    return [
        make_point(
            "tenant",
            {**tags, "tenant": part.tenant},
            {
                "cost": float(part.cost),
                "cost_cache_saved": part.cache_saved,
                "tokens_in": part.counts.tokens_in,
                "cached_tokens": part.counts.cached_tokens,
                "tokens_out": part.counts.tokens_out,
                "requests": part.counts.requests,
                "energy_j": None if drawn is None else drawn.energy_j * float(part.share),
            },
            time_ns,
        )
        for part in split.tenants
    ]


def _rolling(rolled: Mapping[str, RolledRatio]) -> dict[str, FieldValue | None]:
    """Return the rolling cost under the names of the series."""
    fields: dict[str, FieldValue | None] = {}
    for name, summary in rolled.items():
        fields[f"rolling_{name}"] = summary.per_inference
        fields[f"rolling_{name}_coverage"] = summary.coverage
    return fields


def _cost_fields(cost: ServedCost) -> dict[str, FieldValue | None]:
    inferred = cost.counts.inferred
    per_inference = cost.per_inference
    share = {"hardware": cost.hardware, "energy": cost.energy}
    return {
        "cost_total": float(cost.cost),
        "cost_idle": None if cost.idle is None else float(cost.idle),
        "idle_share": cost.idle_share,
        "cost_per_inference": per_inference,
        "cost_per_thousand_inferences": per_inference and per_inference * THOUSAND,
        "cost_per_request": cost.per_request,
        **{
            f"cost_{name}": float(amount) / inferred if inferred else None
            for name, amount in share.items()
        },
        # What ratios over several windows are computed from.
        **{name: getattr(cost.counts, name) for name in UNITS},
        "inferences": inferred,
        "cost_total_hardware": float(cost.hardware),
        "cost_total_energy": float(cost.energy),
        "device_s": cost.device_s,
        "device_busy_s": cost.device_busy_s,
        "decode_request_s": cost.counts.decode_request_s,
        **_token_costs(cost),
        "cost_per_million_tokens_in": cost.per_million_tokens_in,
        **_cached_prices(cost),
        "cost_per_million_tokens_out": cost.per_million_tokens_out,
        "token_split": cost.tokens.split if cost.tokens else None,
    }


def _cached_prices(cost: ServedCost) -> dict[str, float | None]:
    """Return what fresh and cached tokens cost apart, and what the cache saved."""
    return {
        "cost_per_million_tokens_fresh": cost.per_million_tokens_fresh,
        "cost_per_million_tokens_cached": cost.per_million_tokens_cached,
        "cached_share": cost.cached_share,
        "cost_cache_saved": cost.cache_saved,
    }


def _token_costs(cost: ServedCost) -> dict[str, FieldValue | None]:
    """Return the cost of each kind of token; 0 of a kind that was not served."""
    if cost.counts.tokens_in is None and cost.counts.tokens_out is None:
        return {}
    return {
        "cost_tokens_in": float(cost.tokens_in_cost or 0),
        "cost_tokens_fresh": float(cost.tokens_fresh_cost or 0),
        "cost_tokens_cached": float(cost.tokens_cached_cost or 0),
        "cost_tokens_out": float(cost.tokens_out_cost or 0),
    }


def _carbon_fields(cost: ServedCost, emitted: Emission | None) -> dict[str, FieldValue | None]:
    inferred = cost.counts.inferred
    if emitted is None or inferred is None:
        return {}
    return {
        "carbon_per_inference_g": emitted.g / inferred if inferred else None,
        "carbon_g": emitted.g,
        "carbon_inferences": inferred,
        "carbon_method": emitted.method,
    }


def _length_s(window: ServedWindow) -> float:
    return (window.end_ns - window.start_ns) / NS_PER_S


def _joined(problems: Sequence[str]) -> str | None:
    return "; ".join(problems)[:MAX_DETAIL_CHARS] or None
