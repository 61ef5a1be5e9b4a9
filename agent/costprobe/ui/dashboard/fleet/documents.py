"""The figures of a fleet as the JSON of its page, with the keys of `costprobe fleet … --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from costprobe.core.periods import HOUR_NS
from costprobe.core.records import NS_PER_S
from costprobe.fleet.hosts import HostState
from costprobe.fleet.spend import FleetSpend, SpendByKey
from costprobe.fleet.unit_costs import UnitChange
from costprobe.ui.dashboard.fleet.figures import Figures
from costprobe.ui.dashboard.fleet.sections import GpuFigures, MonthForecast
from costprobe.ui.dashboard.now import NS_PER_MS
from costprobe.ui.fleet_documents import compare_document, forecast_document, part_document

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
