"""The price of one device-hour under each kind of plan, exact in decimals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agent.config import OnDemandPlanConfig, OwnedPlanConfig, PlanConfig
from agent.units import HOUR_S, MONTH_H


@dataclass(frozen=True, slots=True)
class Rate:
    """What holding one device costs while a plan is in force.

    Attributes:
        plan: Kind of the plan: on_demand, owned, or assumed where the operator named none.
        currency: ISO 4217 code.
        per_hour: Currency per device-hour, exact.
        electricity_included: False if electricity is paid for apart.
        source: Where the figure comes from, in words.
    """

    plan: str
    currency: str
    per_hour: Decimal
    electricity_included: bool
    source: str

    @property
    def per_s(self) -> float:
        """Currency per device-second."""
        return float(self.per_hour) / HOUR_S

    @property
    def price(self) -> tuple[str, Decimal, bool]:
        """What makes two rates the same price, whatever their plans are called."""
        return (self.currency, self.per_hour, self.electricity_included)


def _on_demand(plan: OnDemandPlanConfig) -> Decimal:
    return plan.per_hour


def _owned(plan: OwnedPlanConfig) -> Decimal:
    """Straight-line depreciation to the residual value, and the monthly costs of 730 hours."""
    lifetime_h = Decimal(str(plan.lifetime_s)) / Decimal(int(HOUR_S))
    return (plan.purchase_price - plan.residual_value) / lifetime_h + plan.monthly_costs / MONTH_H


_PER_HOUR: Mapping[str, Callable[[Any], Decimal]] = {
    "on_demand": _on_demand,
    "owned": _owned,
}


def plan_per_hour(plan: PlanConfig) -> Decimal:
    """Currency per hour of what the plan is for: the whole host, or its one device."""
    return _PER_HOUR[plan.plan](plan)


def device_rate(plan: PlanConfig, devices_sharing: int) -> Rate:
    """The plan's price of one device-hour.

    Args:
        plan: The plan in force.
        devices_sharing: Number of devices that share a host plan equally; ignored for a
            plan that names its device.
    """
    share = 1 if plan.device else devices_sharing
    whole = plan_per_hour(plan)
    of_what = f"device {plan.device}" if plan.device else f"1/{share} of the host"
    return Rate(
        plan=plan.plan,
        currency=plan.currency,
        per_hour=whole / share,
        electricity_included=plan.electricity_included,
        source=f"{plan.plan} plan of {plan.valid_from}, {of_what}",
    )
