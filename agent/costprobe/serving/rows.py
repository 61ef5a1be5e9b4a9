"""A service's window as rows of the series, and as JSON for `costprobe status`.

It has the served requests, their cost and its allocation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from costprobe import __version__
from costprobe.core.records import TOGETHER, Point
from costprobe.core.schema import MEASURES, make_point
from costprobe.serving.allocation import Line
from costprobe.serving.cost import KINDS, ServiceCost, TenantCost, TenantSplit

MAX_DETAIL_CHARS = 500
# The figures of a window that its JSON has.
_COST: Final = (
    "cost_total",
    "cost_per_request",
    "cost_per_inference",
    "cost_per_million_tokens_in",
    "cost_per_million_tokens_fresh",
    "cost_per_million_tokens_cached",
    "cached_share",
    "cost_cache_saved",
    "cost_per_million_tokens_out",
    "token_split",
    "idle_share",
)


def last_window(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the last window of a stored document; that of another version may have other keys."""
    last = document["last"] if document["version"] == __version__ else None
    return None if last is None else dict(last)


def window_document(cost: ServiceCost) -> dict[str, Any]:
    """Return a window as JSON, as `costprobe status --json` prints it."""
    window, counts, total = cost.window, cost.window.total, cost.total
    figures = {} if total is None else total.figures()
    energy = {name: value for name, value in figures.items() if name.startswith("energy_")}
    return {
        "time_ns": cost.time_ns,
        "window_s": cost.length_s,
        **{kind: getattr(counts, kind) for kind in ("requests", "errors", *KINDS)},
        "restarts": window.restarts,
        "busy_share": cost.busy_share,
        "problems": list(cost.problems),
        "cost_problems": [problem for problem in cost.problems if problem not in window.problems],
        "missing": list(window.missing),
        "currency": cost.currency or None,
        "cost": {name: figures.get(name) for name in _COST} if figures else None,
        "energy": {**energy, "energy_scope": total.drawn.scope} if total and total.drawn else None,
        "tenants": None if cost.tenants is None else tenants_document(cost.tenants),
        "rolling": dict(cost.rolled),
        "slo": [asdict(one) for one in cost.slo],
    }


def tenants_document(split: TenantSplit) -> dict[str, Any]:
    """Return the cost of a window by tenant as JSON."""
    return {
        "counted_share": split.counted_share,
        "problems": list(split.problems),
        "parts": [
            {
                "tenant": part.tenant,
                "cost": float(part.cost),
                "cost_share": part.share,
                **_counted(part),
            }
            for part in split.tenants
        ],
    }


def window_points(cost: ServiceCost, tags: Mapping[str, str]) -> list[Point]:
    """Return all rows of a window of a service.

    Args:
        cost: Counts and cost of the service.
        tags: Host and static labels.
    """
    return [
        *_tenant_points(cost, tags),
        *_slo_points(cost, tags),
        *_serving_points(cost, tags),
        *_cost_points(cost, tags),
    ]


def _serving_points(cost: ServiceCost, tags: Mapping[str, str]) -> list[Point]:
    """Return rows of `serving`: the service's, and one for each of several models."""
    window = cost.window
    all_tags = {**tags, "service": window.service, "engine": window.engine}
    named = {model: counts for model, counts in window.models.items() if model}
    return [
        make_point(
            "serving",
            {**all_tags, "served_model": model},
            {
                **{name: getattr(counts, name) for name in MEASURES},
                "busy_share": cost.busy_share,
                **{gauge: None if model else value for gauge, value in window.gauges.items()},
                "window_s": cost.length_s,
                "complete": cost.total is not None,
                "restarts": window.restarts,
                "readings": window.readings,
                "problem": _joined(cost.problems),
                "missing": _joined(window.missing),
            },
            cost.time_ns,
        )
        for model, counts in {"": window.total, **(named if len(named) > 1 else {})}.items()
    ]


def _cost_points(cost: ServiceCost, tags: Mapping[str, str]) -> list[Point]:
    """Return rows of `cost` on the serving basis: the service's, and one for each of several models.

    An incomplete window has none.
    """
    all_tags = {
        **tags,
        "device": TOGETHER.join(cost.devices),
        "service": cost.window.service,
        "basis": "serving",
        "plan": cost.plan,
        "currency": cost.currency,
    }
    return [
        make_point(
            "cost",
            {**all_tags, "served_model": served.model},
            {
                **served.figures(),
                **({"model_split": cost.model_split} if served.model else cost.rolled),
                "window_s": cost.length_s,
            },
            cost.time_ns,
        )
        for served in (cost.total, *cost.models)
        if served is not None
    ]


def _tenant_points(cost: ServiceCost, tags: Mapping[str, str]) -> list[Point]:
    """Return rows of `tenant`: a service's cost in a window by tenant; its energy is divided likewise."""
    drawn = None if cost.total is None else cost.total.drawn
    paid = {**tags, "service": cost.window.service, "currency": cost.currency}
    return [
        make_point(
            "tenant",
            {**paid, "tenant": part.tenant},
            {
                "cost": float(part.cost),
                **_counted(part),
                "energy_j": None if drawn is None else drawn.energy_j * part.share,
            },
            cost.time_ns,
        )
        for part in (cost.tenants.tenants if cost.tenants else ())
    ]


def _slo_points(cost: ServiceCost, tags: Mapping[str, str]) -> list[Point]:
    """Return rows of `slo`: the requests within each bound of the service level, also of incomplete windows."""
    return [
        make_point(
            "slo",
            {**tags, "service": cost.window.service, "bound": one.bound},
            {
                "requests": one.requests,
                "requests_met": one.requests_met,
                "bound_ms": one.bound_ms,
                "within_ms": one.within_ms,
            },
            cost.time_ns,
        )
        for one in cost.window.slo
    ]


def _counted(part: TenantCost) -> dict[str, float | None]:
    counts = {kind: getattr(part.counts, kind) for kind in KINDS}
    return {**counts, "cost_cache_saved": part.cache_saved}


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
                **({"basis": line.basis} if line.basis else {}),
            },
            time_ns,
        )
        for line in lines
    ]


def _joined(problems: Sequence[str]) -> str | None:
    return "; ".join(problems)[:MAX_DETAIL_CHARS] or None
