"""The figures of a fleet as the JSON of its page, with the keys of `costprobe fleet … --json`; its heat map."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, Literal, NamedTuple

from costprobe.core.periods import HOUR_NS
from costprobe.core.records import NS_PER_S, natural
from costprobe.drift.actions import action_of
from costprobe.fleet.hosts import HostState
from costprobe.fleet.outliers import GpuMap, MappedGpu
from costprobe.fleet.spend import FleetSpend, SpendByKey
from costprobe.fleet.unit_costs import UnitChange
from costprobe.ui.dashboard.fleet.figures import Figures, GpuFigures, MonthForecast
from costprobe.ui.dashboard.now import NS_PER_MS
from costprobe.ui.fleet_documents import (
    compare_document,
    forecast_document,
    outliers_document,
    part_document,
)

# Silent hosts that are named.
NAMED_MAX: Final = 20


def framed(figures: Figures, document: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return figures with their age, period and problems; `figures` is null before the first answer."""
    head = figures.head
    return {
        "every_s": figures.every_s,
        "age_s": figures.age_s,
        "error": figures.error,
        "since_ms": None if not head else head["since_ns"] // NS_PER_MS,
        "until_ms": None if not head else head["until_ns"] // NS_PER_MS,
        "is_partial": bool(head and head["is_partial"]),
        "problems": head["problems"] if head else [],
        "figures": document,
    }


def now_document(figures: Figures) -> dict[str, Any]:
    """Return the spend of the last hour, and its rates."""
    total: FleetSpend | None = figures.value
    if total is None:
        return framed(figures, None)
    hours = _hours(figures)
    document = part_document(total)
    return framed(
        figures,
        {
            **document,
            "costs": [{**one, "cost_per_h": one["cost"] / hours} for one in document["costs"]],
            "power_w": None if total.energy_j is None else total.energy_j / (hours * 3600),
        },
    )


def _hours(figures: Figures) -> float:
    return float(figures.head["until_ns"] - figures.head["since_ns"]) / HOUR_NS


def status_document(figures: Figures) -> dict[str, Any]:
    """Return the numbers of hosts, and which are silent."""
    states: Sequence[HostState] | None = figures.value
    if states is None:
        return framed(figures, None)
    silent = [state for state in states if state.is_silent]
    end_ns = figures.head["until_ns"]
    return framed(
        figures,
        {
            "hosts": len(states),
            "silent": len(silent),
            "devices": sum(state.devices for state in states),
            "faults": sum(state.faults for state in states),
            "firing": sum(state.firing for state in states),
            "versions": dict(Counter(state.version for state in states).most_common()),
            "silent_hosts": [
                {"host": state.host, "silent_s": (end_ns - state.newest_ns) / NS_PER_S}
                for state in sorted(silent, key=lambda state: -state.newest_ns)[:NAMED_MAX]
            ],
        },
    )


def month_document(
    figures: Figures, timezone: str, amounts: Mapping[str | None, float]
) -> dict[str, Any]:
    """Return the spend of the month, and its forecast against the planned amount.

    Args:
        figures: A `MonthForecast`.
        timezone: IANA name of its time zone.
        amounts: Planned amounts by currency; None for the only currency of the fleet.
    """
    month: MonthForecast | None = figures.value
    if month is None:
        return framed(figures, None)
    only = amounts.get(None) if len(month.currencies) == 1 else None
    return framed(
        figures,
        {
            "timezone": timezone,
            "period_start_ms": month.period.start_ns // NS_PER_MS,
            "period_end_ms": month.period.end_ns // NS_PER_MS,
            "currencies": [
                forecast_document(one, amounts.get(one.currency) if only is None else only)
                for one in month.currencies
            ],
        },
    )


def units_document(figures: Figures) -> dict[str, Any]:
    """Return the unit costs of all models with their changes."""
    found: Sequence[UnitChange] | None = figures.value
    if found is None:
        return framed(figures, None)
    units = [
        {
            **asdict(one.now),
            "unit": one.unit,
            "cost": one.cost,
            "scale_samples": one.scale,
            "change_24h_pct": one.change_24h_pct,
            "change_7d_pct": one.change_7d_pct,
            "spread_share": one.spread,
            "cost_per_h": one.cost_per_h,
        }
        for one in found
    ]
    return framed(figures, {"units": units})


def spend_document(figures: Figures, by: str, shown: int) -> dict[str, Any]:
    """Return the spend of the largest groups, the rest, and the total."""
    spend: SpendByKey | None = figures.value
    if spend is None:
        return framed(figures, None)
    left: dict[str, float] = {}
    for part in spend.parts[shown:]:
        for one in part.costs:
            left[one.currency] = left.get(one.currency, 0.0) + one.cost
    return framed(
        figures,
        {
            "by": by,
            "total": part_document(spend.total),
            "parts": [part_document(part) for part in spend.parts[:shown]],
            "rest": None if spend.rest is None else part_document(spend.rest)["costs"],
            "left_out": max(0, len(spend.parts) - shown),
            "left_out_costs": [
                {"currency": currency or None, "cost": cost} for currency, cost in left.items()
            ],
        },
    )


def gpu_document(figures: Figures, host: str, device: str, url: str | None) -> dict[str, Any]:
    """Return what a GPU cost, and the address of its host's page."""
    found: GpuFigures | None = figures.value
    document = None
    if found is not None:
        document = {
            "total": part_document(found.total),
            "models": compare_document(found.unit_costs),
        }
    return {**framed(figures, document), "host": host, "device": device, "url": url}


# Outliers that are listed, the most expensive first.
OUTLIERS_MAX: Final = 50
# With more devices in all, such as MIG devices, those of hosts do not stand in common columns.
COLUMNS_MAX: Final = 16
_DIGITS: Final = 4

Metric = Literal["time", "energy"]
# A cell: the device, its excess in percent, and whether it is listed; null for a device that a host lacks.
Cell = tuple[str, float | None, bool] | None
LinkOf = Callable[[str, str], str | None]


class MapView(NamedTuple):
    """What of the map is shown.

    Attributes:
        metric: Deviation of the time or the energy per inference.
        order: `worst` for the hosts with the largest excess first, or `name`.
        shown: Most hosts.
        model: Only GPUs with this product name; empty for all.
        label: Label that hosts are grouped by; empty for none.
        within: Label whose levels are removed; empty for none.
    """

    metric: Metric
    order: Literal["worst", "name"]
    shown: int
    model: str
    label: str
    within: str


def map_document(
    figures: Figures, silent_s: Mapping[str, float], view: MapView, link_of: LinkOf
) -> dict[str, Any]:
    """Return the shown hosts, and all outliers up to OUTLIERS_MAX.

    Args:
        figures: A `GpuMap`.
        silent_s: Silent hosts, and for how long.
        view: What is shown.
        link_of: Address of a host's page for a device, or None.
    """
    found: GpuMap | None = figures.value
    if found is None:
        return framed(figures, None)
    gpus = [gpu for gpu in found.gpus if view.model in ("", gpu.model)]
    columns = sorted({gpu.device for gpu in gpus}, key=natural)
    hosts: dict[str, list[MappedGpu]] = defaultdict(list)
    for gpu in gpus:
        hosts[gpu.host].append(gpu)

    def worst(host: str) -> float:
        return max((_excess(gpu, view.metric) or 0.0 for gpu in hosts[host]), default=0.0)

    def listed(host: str) -> bool:
        return any(gpu.excess.is_listed for gpu in hosts[host])

    order: Callable[[str], Any] = natural
    if view.order == "worst":
        order = lambda host: (not listed(host), -worst(host), natural(host))  # noqa: E731 - one of two
    shown = sorted(hosts, key=order)[: view.shown]
    if view.label:
        # Stable: within a group the order remains; groups follow their first host.
        places = {label: n for n, label in reversed(list(enumerate(_labels(shown, hosts))))}
        shown.sort(key=lambda host: places[hosts[host][0].label])
    outliers = outliers_document(
        replace(found.outliers, outliers=found.outliers.outliers[:OUTLIERS_MAX]),
        [view.within] if view.within else [],
    )
    for one in outliers["outliers"]:
        one["url"] = link_of(one["host"], one["device"] or "")
        one["action"] = action_of(one["cause"])
    return framed(
        figures,
        {
            **outliers,
            "outliers_left_out": max(0, len(found.outliers.outliers) - OUTLIERS_MAX),
            "outliers_total": len(found.outliers.outliers),
            "outliers_costs": _costs(found),
            "metric": view.metric,
            "gpus": len(gpus),
            "gpu_models": sorted({gpu.model for gpu in found.gpus}),
            "hosts": len(hosts),
            "columns": columns if len(columns) <= COLUMNS_MAX else None,
            "rows": [
                {
                    "host": host,
                    "group": hosts[host][0].label or None,
                    "silent_s": silent_s.get(host),
                    "cells": _cells(hosts[host], columns, view.metric),
                }
                for host in shown
            ],
        },
    )


def _costs(found: GpuMap) -> list[dict[str, Any]]:
    """Return what all outliers cost a month, by currency."""
    costs: dict[str, float] = defaultdict(float)
    for one in found.outliers.outliers:
        if one.cost is not None:
            costs[one.cost.currency] += one.cost.mean
    return [{"currency": currency, "cost_per_month": cost} for currency, cost in costs.items()]


def _labels(hosts: Sequence[str], gpus: Mapping[str, Sequence[MappedGpu]]) -> list[str]:
    return [gpus[host][0].label for host in hosts]


def _cells(gpus: Sequence[MappedGpu], columns: Sequence[str], metric: Metric) -> list[Cell]:
    cells: dict[str, Cell] = {
        gpu.device: (gpu.device, _pct(_excess(gpu, metric)), gpu.excess.is_listed) for gpu in gpus
    }
    if len(columns) > COLUMNS_MAX:
        return [cells[device] for device in sorted(cells, key=natural)]
    return [cells.get(device) for device in columns]


def _excess(gpu: MappedGpu, metric: Metric) -> float | None:
    return gpu.excess.time if metric == "time" else gpu.excess.energy


def _pct(share: float | None) -> float | None:
    return None if share is None else round(share * 100, _DIGITS)
