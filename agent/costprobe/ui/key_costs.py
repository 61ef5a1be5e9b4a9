"""The cost of tenants, namespaces, services or models as JSON and as a table, the same in the command and in the report."""

from __future__ import annotations

from typing import Any, Final

from costprobe.core.money import cents, cents_of_parts
from costprobe.core.outside import one_line
from costprobe.core.periods import TimeSpan
from costprobe.core.units import KWH_J, percent
from costprobe.spend.query import Key, KeyAllocation, KeyCost
from costprobe.spend.server import ServerOthers

_HEADS: Final = ("share", "cost", "while waiting")
_CACHE_HEADS: Final = ("tokens in cached", "cache saved")


def document(
    key: Key, span: TimeSpan, allocation: KeyAllocation, server: ServerOthers | None = None
) -> dict[str, Any]:
    """Return an allocation as JSON, with what the server used beside its devices if that is known."""
    others = {} if server is None else {"server_others": _of_server(server, allocation.currency)}
    return {
        "by": key,
        "since_ns": span.start_ns,
        "until_ns": span.end_ns,
        "currency": allocation.currency or None,
        "cost_total": allocation.total,
        "coverage": allocation.coverage,
        "parts": [
            {
                "name": part.name,
                "rest": part.rest,
                "cost": part.cost,
                "cost_share": _share(part.cost, allocation.total),
                "cost_idle": part.idle,
                "cached_share": part.cached_share,
                "cost_cache_saved": part.cache_saved,
            }
            for part in allocation.parts
        ],
        **others,
    }


def _of_server(server: ServerOthers, currency: str) -> dict[str, Any]:
    cost = server.costs.get(currency)
    return {"energy_j": server.energy_j, "coverage": server.coverage, "cost": cost}


def server_words(server: ServerOthers) -> str:
    """Return what the server used beside its devices, for people."""
    costs = [f", {cents(cost, currency)} of electricity" for currency, cost in server.costs.items()]
    return (
        f"server besides its devices, in none of the lines above: {server.energy_j / KWH_J:,.3g} kWh"
        f"{''.join(costs)}; {percent(server.coverage)} of the time covered"
    )


def heads(allocation: KeyAllocation) -> tuple[str, ...]:
    """Return the heads of a table but that of the name; those of a cache only if one was used."""
    has_cache = any(part.cached_share for part in allocation.parts)
    return (*_HEADS, *(_CACHE_HEADS if has_cache else ()))


def table(allocation: KeyAllocation) -> list[tuple[str, ...]]:
    """Return name and figures of each line that has a cost, in the order of `heads`, then the total."""
    currency, total = allocation.currency, allocation.total
    shown = [part for part in allocation.parts if is_shown(part)]
    costs = cents_of_parts([part.cost for part in shown], total, currency)
    rows = [_row(*row, total, currency) for row in zip(shown, costs, strict=True)]
    last = ("total", _percent(total, total), cents(total, currency), *[""] * 3)
    return [row[: 1 + len(heads(allocation))] for row in (*rows, last)]


def is_shown(part: KeyCost) -> bool:
    """Return whether a line has a key or a cost."""
    return part.rest is None or part.cost != 0


def name_of(part: KeyCost) -> str:
    """Return the name of a line; that of one without a key in parentheses."""
    return one_line(part.name) if part.rest is None else f"({part.rest})"


def _row(part: KeyCost, cost: str, total: float, currency: str) -> tuple[str, ...]:
    idle = "-" if part.idle is None else cents(part.idle, currency)
    return (
        name_of(part),
        _percent(part.cost, total),
        cost,
        idle,
        "-" if part.cached_share is None else percent(part.cached_share),
        "-" if part.cache_saved is None else cents(part.cache_saved, currency),
    )


def _percent(cost: float, total: float) -> str:
    share = _share(cost, total)
    return "-" if share is None else percent(share, 1)


def _share(cost: float, total: float) -> float | None:
    return cost / total if total > 0 else None
