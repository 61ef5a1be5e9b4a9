"""The four answers as plain records; unknown values are None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from costprobe.app.budgeting.budget_status import BudgetOverview

# What a cost is divided by: an inference of a probe or a service, or an output token.
Unit = Literal["inference", "request", "token"]


@dataclass(frozen=True, slots=True)
class Spending:
    """What the host costs, in one currency.

    Attributes:
        currency: ISO 4217 code; empty if it is unknown.
        per_hour: Cost of the last hour's covered time, per hour.
        idle_share: Share of the last hour's cost in which devices did nothing: 1 minus utilization; None
            without a utilization.
        month: Spend and forecast of this month, or of the period of the host's budget.
        is_planned: Whether `month` has a configured amount.
    """

    currency: str
    per_hour: float | None
    idle_share: float | None
    month: BudgetOverview | None
    is_planned: bool


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What one unit of a model costs on one device, or of a service.

    Attributes:
        tags: Its tags: device and probe, or service and served_model; basis and currency.
        unit: What the cost is divided by.
        cost: Currency per unit in the last hour with a value.
        scale: How many units the cost is written for; constant for a series.
        change_24h_pct: Change of the last hour against the same hour a day before, in percent.
        change_7d_pct: The same against a week before.
        trend: Times in UTC ns and currency per unit, of the last seven days; services from a sample of
            windows.
        latency_ms: Median latency.
        energy_j: Joules per unit, of tokens per million output tokens.
        time_ns: UTC in ns of the newest row.
        is_contended: Whether others used the device.
        devices: Its device, or those of the service.
        device_model: Product name of the device; empty for a service.
    """

    tags: Mapping[str, str]
    unit: Unit
    cost: float
    scale: int
    change_24h_pct: float | None
    change_7d_pct: float | None
    trend: Sequence[tuple[int, float]]
    latency_ms: float | None
    energy_j: float | None
    time_ns: int
    devices: Sequence[str]
    is_contended: bool = False
    device_model: str = ""

    @property
    def name(self) -> str:
        """The model or service: "encoder", "chat", "chat/llama-3.1-8b"."""
        tags = self.tags
        parts = (tags.get("service") or tags.get("probe", ""), tags.get("served_model", ""))
        return "/".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """A model on identical devices, or a service.

    Attributes:
        typical: The member with the median cost, whose figures stand for all.
        members: All of them, by device.
        spread: Largest minus smallest cost, as a share of the median; 0 for one member.
        outliers: Devices whose cost deviates from the median.
        moved: The member with the largest change against 24 h.
    """

    typical: UnitCost
    members: Sequence[UnitCost]
    spread: float
    outliers: Sequence[str]
    moved: UnitCost

    @property
    def changed(self) -> UnitCost:
        """The member whose changes and trend stand for all.

        The one that changed most if it deviates from the median, which would hide it; else the
        typical one.
        """
        is_outlier = self.moved.tags.get("device", "") in self.outliers
        return self.moved if is_outlier else self.typical


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
class AllocatedCost:
    """A part of the last day's cost.

    Attributes:
        kind: service, model, idle, probing or remainder. The cost of models is part of their service's.
        name: Service or model; empty for the others.
        cost: Currency.
    """

    kind: Literal["service", "model", "idle", "probing", "remainder"]
    name: str
    cost: float


@dataclass(frozen=True, slots=True)
class DayAllocation:
    """What the host cost in the last 24 h, and for what.

    Attributes:
        currency: ISO 4217 code; empty if it is unknown.
        since_ns: Start of the day, a full hour, UTC in ns.
        total: Cost of all devices.
        coverage: Share of the day that rows cover.
        parts: Services, idle time, probing and the remainder add up to the total.
        by_device: Cost of each device.
    """

    currency: str
    since_ns: int
    total: float
    coverage: float
    parts: Sequence[AllocatedCost]
    by_device: Mapping[str, float]


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
