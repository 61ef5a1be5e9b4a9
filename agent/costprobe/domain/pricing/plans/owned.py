"""A device or host that was bought."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import Field, model_validator

from costprobe.core.config.fields import Duration, Money, key
from costprobe.core.units import MONTH_H, YEAR_H
from costprobe.domain.pricing.plans.plan import ExactShare, Plan, decimal_hours
from costprobe.domain.pricing.rate import Parts, Quote
from costprobe.domain.pricing.spot_prices import NO_SPOTS, Spots


class OwnedPlan(Plan):
    """Bought and depreciated over a lifetime, with monthly costs beside electricity."""

    plan: Literal["owned"] = Field(description="Kind of plan.", examples=["owned"])
    purchase_price: Money = Field(description="Purchase price.", examples=[Decimal(15000)])
    residual_value: Money = Field(
        Decimal(0), description="Value at the end of the lifetime.", examples=[Decimal(1500)]
    )
    lifetime_s: Duration = key(
        "lifetime", description="Depreciation period from `valid_from`.", examples=["3y"]
    )
    financing_rate: ExactShare = Field(
        Decimal(0),
        description="Yearly interest on the capital employed, as a share.",
        examples=[Decimal("0.05")],
    )
    monthly_costs: Money = Field(
        Decimal(0),
        description="Colocation, staff and similar costs per month, without electricity.",
        examples=[Decimal(120)],
    )
    electricity_included: bool = Field(
        False, description="Whether these costs include electricity."
    )

    @model_validator(mode="after")
    def _depreciates(self) -> OwnedPlan:
        if self.residual_value > self.purchase_price:
            raise ValueError("residual_value must not be above purchase_price")
        return self

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Quote:  # noqa: ARG002 - of the contract
        """Return straight-line depreciation, interest, and monthly costs over 730 h.

        Interest is on the mean capital employed: it falls evenly from the purchase price to the
        residual value (average-investment method of engineering economics).
        """
        lifetime_h = decimal_hours(self.lifetime_s)
        lost = self.purchase_price - self.residual_value
        parts: Parts = (("depreciation", lost / lifetime_h),)
        hours = f"{lifetime_h.normalize():f} h"
        origins: tuple[str, ...] = (f"({self.purchase_price} - {self.residual_value}) / {hours}",)
        if self.financing_rate:
            employed = (self.purchase_price + self.residual_value) / 2
            parts += (("financing", employed * self.financing_rate / YEAR_H),)
            origins += (f"{employed} mean capital x {self.financing_rate} / {YEAR_H} h",)
        if self.monthly_costs:
            parts += (("monthly costs", self.monthly_costs / MONTH_H),)
            origins += (f"{self.monthly_costs} / {MONTH_H} h",)
        return Quote("owned", parts, origins=origins)
