"""The contract of a price plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import date
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from costprobe.core.config.fields import Currency, Day, Name, Section
from costprobe.core.units import HOUR_S
from costprobe.domain.pricing.rate import Parts, Quote, Rate
from costprobe.domain.pricing.spot_prices import NO_SPOTS, Spots

# An exact share: it is multiplied with money.
ExactShare = Annotated[Decimal, Field(ge=0, lt=1)]
# The first day of a plan without one.
ALWAYS: Final = date(1970, 1, 1)


class Plan(Section, ABC):
    """A `[[price]]` section: options of all price plans.

    A kind of plan is a subclass with `plan: Literal["<kind>"]`, its own keys, a default for
    `electricity_included`, and `quote`; it is listed in `costprobe.domain.pricing.registry.PLANS`.
    """

    plan: str = Field(description="Kind of the plan.", examples=["on_demand"])
    electricity_included: bool = Field(True, description="Whether the price includes electricity.")
    currency: Currency = Field("USD", description="ISO 4217 code.", examples=["USD"])
    device: Name | None = Field(
        None, description="The only device that the plan applies to, by name.", examples=["gpu0"]
    )
    per: Literal["host", "device", "slice"] | None = Field(
        None,
        description="Unit of the price: the whole host, each accelerator, or each MIG slice.",
        examples=["host"],
    )
    valid_from: Day = Field(
        ALWAYS,
        description="First day (UTC) on which the plan applies; several plans form a history.",
        examples=[date(2026, 1, 1)],
    )
    name: Name | None = Field(
        None,
        description="Name in comparisons; by default the kind of plan.",
        examples=["committed"],
    )
    host_overhead: ExactShare = Field(
        Decimal(0),
        description=(
            "Share of a host's price that is allocated to its CPUs, memory and network; "
            "it is included in the price of each device and shown separately."
        ),
        examples=[0.15],
    )

    @property
    def source(self) -> str:
        """The plan as the source of a price: "reserved plan of 2026-01-01"."""
        return f"{self.plan} plan" + (f" of {self.valid_from}" if self.valid_from > ALWAYS else "")

    @abstractmethod
    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Quote | None:
        """Return the price in force at an instant, for the unit of the plan.

        A pure function: the same arguments return the same quote. Amounts are exact decimals in
        `currency` per hour and not negative; each part has its origin.

        Args:
            time_ns: UTC in ns since 1970; not before `valid_from`.
            spots: Known spot prices by their names.

        Returns:
            The quote; None if the price is unknown at that instant, so that an earlier plan applies.
        """

    @model_validator(mode="after")
    def _device_and_unit_agree(self) -> Plan:
        if self.device is not None and self.per not in (None, "device"):
            raise ValueError('a plan that names its device is per = "device"; remove per')
        if self.host_overhead and self.unit != "host":
            raise ValueError("host_overhead is a share of a host's price; remove it")
        return self

    @property
    def unit(self) -> Literal["host", "device", "slice"]:
        """Unit of the price: `per`, or its default."""
        return self.per or ("host" if self.device is None else "device")


def device_rate(plan: Plan, quote: Quote, sharing: int, slices: int = 1) -> Rate:
    """Return the price of one device-hour under a plan.

    Args:
        plan: The plan in force.
        quote: Its price, for its own unit.
        sharing: Number of devices that share a host's price equally; ignored for other units.
        slices: Slices of the device; ignored unless the price is per slice.
    """
    factor, divisor = Decimal(1), Decimal(1)
    unit = f"device {plan.device}" if plan.device else "each device"
    if plan.unit == "host":
        divisor, unit = Decimal(sharing), f"1/{sharing} of the host"
    elif plan.unit == "slice":
        factor, unit = Decimal(slices), f"{slices} slices"
    parts = tuple((name, amount * factor / divisor) for name, amount in quote.parts)
    origins = tuple(_scaled_origin(origin, factor, divisor) for origin in quote.origins)
    if plan.unit == "host":
        parts = _with_overhead(parts, plan.host_overhead)
        origins += (f"host_overhead = {plan.host_overhead} of each part",)
    note = f", {quote.note}" if quote.note else ""
    return Rate(
        plan=quote.plan,
        currency=plan.currency,
        per_hour=quote.per_hour * factor / divisor,
        electricity_included=plan.electricity_included,
        source=f"{plan.source}, {unit}{note}",
        parts=parts,
        is_stale=quote.is_stale,
        origins=origins,
        is_lapsed=quote.is_lapsed,
    )


def decimal_hours(seconds: float) -> Decimal:
    """Return seconds as exact hours."""
    return Decimal(str(seconds)) / Decimal(int(HOUR_S))


def _with_overhead(parts: Parts, share: Decimal) -> Parts:
    """Split the cost of CPUs, memory and network off each part of a host's price.

    The overhead is listed even if it is 0, to show that the accelerators bear the whole price.
    """
    overhead = sum((amount * share for _, amount in parts), Decimal(0))
    return (
        *((name, amount - amount * share) for name, amount in parts),
        ("host overhead", overhead),
    )


def _scaled_origin(origin: str, factor: Decimal, divisor: Decimal) -> str:
    if factor != 1:
        return f"{origin}, x {factor} slices"
    return f"{origin}, / {divisor} devices" if divisor != 1 else origin
