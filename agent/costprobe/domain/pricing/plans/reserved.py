"""A device or host rented for a term."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Literal

from pydantic import Field, model_validator

from costprobe.core.config.fields import Duration, Money, key
from costprobe.core.records import NS_PER_S
from costprobe.domain.pricing.plans.plan import ExactShare, Plan, decimal_hours
from costprobe.domain.pricing.rate import Parts, Quote
from costprobe.domain.pricing.spot_prices import NO_SPOTS, Spots


class ReservedPlan(Plan):
    """Rented for a term at a discount; after the term the list price applies again."""

    plan: Literal["reserved"] = Field(description="Kind of plan.", examples=["reserved"])
    per_hour: Money = Field(
        description="List price per hour, which applies again after the term.",
        examples=[Decimal("2.176")],
    )
    discount: ExactShare | None = Field(
        None, description="Share off the list price.", examples=[Decimal("0.4")]
    )
    effective_per_hour: Money | None = Field(
        None,
        description=(
            "Price per hour during the term, if the contract states one instead of a discount."
        ),
        examples=[Decimal("1.306")],
    )
    upfront: Money = Field(
        Decimal(0),
        description="Upfront payment, spread evenly over the term.",
        examples=[Decimal(1000)],
    )
    term_s: Duration = key(
        "term", description="Length of the term from `valid_from`.", examples=["1y"]
    )

    @model_validator(mode="after")
    def _has_a_start_and_one_price(self) -> ReservedPlan:
        if "valid_from" not in self.model_fields_set:
            raise ValueError("a term begins on a day; add valid_from")
        if (self.discount is None) == (self.effective_per_hour is None):
            raise ValueError("give discount or effective_per_hour, one of the two")
        return self

    @property
    def ends_ns(self) -> int:
        """UTC ns at which the term ends."""
        start = datetime.combine(self.valid_from, time(), UTC)
        return int((start + timedelta(seconds=self.term_s)).timestamp()) * NS_PER_S

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Quote:  # noqa: ARG002 - of the contract
        """Return the reduced price plus the upfront payment per hour; after the term the list price."""
        last_day = datetime.fromtimestamp(self.ends_ns // NS_PER_S, tz=UTC).date()
        if time_ns >= self.ends_ns:
            note = f"the reserved term ended on {last_day}: the list price applies again"
            rent = (("rent", self.per_hour),)
            return Quote("on_demand", rent, note, origins=("list price",), is_lapsed=True)
        parts: Parts
        if self.effective_per_hour is not None:
            parts = (("rent", self.effective_per_hour),)
            origins: tuple[str, ...] = ("effective_per_hour",)
        else:
            discount = self.discount or Decimal(0)
            parts = (("rent", self.per_hour * (1 - discount)),)
            origins = (f"{self.per_hour} x (1 - {discount})",)
        if self.upfront:
            hours = decimal_hours(self.term_s)
            parts += (("upfront", self.upfront / hours),)
            origins += (f"{self.upfront} / {hours.normalize():f} h",)
        return Quote("reserved", parts, f"until {last_day}", origins=origins)
