"""The four answers as plain records; unknown values are None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from costprobe.app.budgeting.budget_status import BudgetOverview


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
