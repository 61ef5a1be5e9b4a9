"""A device or host rented by the hour."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import Field

from costprobe.core.config.fields import Money
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.rate import Quote
from costprobe.domain.pricing.spot_prices import NO_SPOTS, Spots


class OnDemandPlan(Plan):
    """Rented by the hour; the price includes electricity unless configured otherwise."""

    plan: Literal["on_demand"] = Field(description="Kind of plan.", examples=["on_demand"])
    per_hour: Money = Field(
        description="Price per hour, by default of the whole host.", examples=[Decimal("2.176")]
    )

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Quote:  # noqa: ARG002 - of the contract
        """Return the price per hour."""
        return Quote("on_demand", (("rent", self.per_hour),), origins=("per_hour",))
