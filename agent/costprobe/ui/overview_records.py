"""The overview and the largest change as plain records; unknown values are None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costprobe.spend.now import Spending
from costprobe.unit_costs.now import UnitGroup


@dataclass(frozen=True, slots=True)
class MainChange:
    """The largest change that lasts, as the event reported it.

    Attributes:
        kind: Kind of the event: drift or price.
        title: What changed, in one line.
        detail: Causes and what to do.
        cause: Named cause; empty if unknown.
        change_pct: Change in percent; None for a price.
        cost_per_month: Change of spend in a month at the present rate, in the currency.
        currency: ISO 4217 code.
        since_ns: Start of the change, UTC in ns.
        tags: Tags of its series.
        others: Number of other series that changed.
    """

    kind: str
    title: str
    detail: str
    cause: str
    change_pct: float | None
    cost_per_month: float | None
    currency: str
    since_ns: int
    tags: Mapping[str, str]
    others: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The answers at an instant.

    Attributes:
        time_ns: UTC in ns.
        host: Name of the host; empty before the first status.
        spending: One entry per currency, the largest first.
        power_w: Present power of all devices; None if it is unknown.
        units: Models and services, the most expensive unit first within each basis.
        change: The largest change; None if nothing changed.
        firing: Firing alerts that are not silenced, as stored, the worst first.
    """

    time_ns: int
    host: str
    spending: Sequence[Spending]
    power_w: float | None
    units: Sequence[UnitGroup]
    change: MainChange | None
    firing: Sequence[Mapping[str, Any]]
