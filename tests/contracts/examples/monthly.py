"""A device or host rented for a flat monthly fee."""

from decimal import Decimal
from typing import Literal

from costprobe.core.config.fields import Money
from costprobe.core.units import MONTH_H
from costprobe.pricing.plans import NO_SPOTS, Plan, Rate, Spots
from pydantic import Field


class MonthlyPlan(Plan):
    """Rented for a flat monthly fee."""

    plan: Literal["monthly"] = Field(description="Kind of plan.", examples=["monthly"])
    per_month: Money = Field(description="Fee a month.", examples=[Decimal(730)])

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Rate:
        """Return the fee per hour of an average month (730 h)."""
        parts = (("rent", self.per_month / MONTH_H),)
        return self.priced(parts, (f"{self.per_month} / {MONTH_H} h",))
