"""The heat map of GPUs as JSON: the hosts that are shown, each with the deviation of its GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from costprobe.core.records import natural
from costprobe.drift.actions import action_of
from costprobe.fleet.outliers import GpuMap, MappedGpu
from costprobe.ui.dashboard.fleet.documents import framed
from costprobe.ui.dashboard.fleet.figures import Figures
from costprobe.ui.outlier_documents import outliers_document

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
