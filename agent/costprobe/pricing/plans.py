"""Price plans ([[price]]): on demand, reserved, spot, owned, list price; rate of a device-hour.

Spot and list prices are read from a source; spot prices have several formats. A new kind is a
class here and a line in PLANS.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from costprobe.adapters.clouds.price_lists import PriceListConfig, aws_price_list, only_price
from costprobe.adapters.clouds.regions import AWS_LOCATIONS
from costprobe.core.config.fields import (
    Currency,
    Day,
    Duration,
    ExactShare,
    Money,
    Name,
    Pause,
    Section,
    key,
)
from costprobe.core.outside import bounded_object
from costprobe.core.periods import utc_day
from costprobe.core.records import NS_PER_S
from costprobe.core.units import HOUR_S, MONTH_H, YEAR_H
from costprobe.pricing.timed import FigureFormat, TimedValue, TimedValues, parse_timed

# Names and amounts that sum to a price.
Parts = tuple[tuple[str, Decimal], ...]
FORMAT = FigureFormat(
    noun="price",
    example="time,per_hour",
    # A higher price per hour is an error.
    largest=10**9,
    unit="currency per hour",
    units=re.compile(r"(?P<currency>(?!per)[a-z]{3})?(/|per)?1?h((ou)?rs?)?"),
    time_keys=("time", "timestamp"),
    # The last key is that of AWS.
    value_keys=("per_hour", "price", "spotprice"),
    # Format of `aws ec2 describe-spot-price-history`.
    list_keys=("SpotPriceHistory",),
)
Spots = Mapping[str, TimedValues]
NO_SPOTS: Spots = {}
# An exact share: it is multiplied with money.
# The first day of a plan without one.
ALWAYS: Final = date(1970, 1, 1)
# Keys that an API requires, beside those that it may have.
_REQUIRED: dict[str, tuple[str, ...]] = {
    "aws": ("instance", "region"),
    "azure": ("instance", "region"),
    "gcp": ("skus", "key"),
    "catalogue": ("instance", "region"),
}
_API_KEYS = ("instance", "region", "skus", "key")


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of holding one device, or the unit of a plan, while the plan is in force.

    Attributes:
        plan: Kind in force: a reserved plan after its term is on_demand; "list" or "assumed" if none
            is configured.
        currency: ISO 4217 code.
        per_hour: Currency per device-hour, exact.
        electricity_included: False if electricity is paid separately.
        source: Origin of the price, for people.
        parts: Names and currency per device-hour; their sum is `per_hour`.
        is_stale: True if a spot price is older than it may be.
        origins: Origin of each part, in the order of `parts`.
        is_lapsed: True if a reserved term is over, so that the list price applies.
        low_per_hour, high_per_hour: Range of an assumed price; None for any other.
    """

    plan: str
    currency: str
    per_hour: Decimal
    electricity_included: bool
    source: str
    parts: Parts = ()
    is_stale: bool = False
    origins: tuple[str, ...] = ()
    is_lapsed: bool = False
    low_per_hour: Decimal | None = None
    high_per_hour: Decimal | None = None

    @property
    def per_s(self) -> float:
        """Currency per device-second."""
        return float(self.per_hour) / HOUR_S

    def scaled(self, numerator: int, denominator: int) -> Rate:
        """Return the rate of a share of the device."""

        def share(amount: Decimal) -> Decimal:
            return amount * numerator / denominator

        return replace(
            self,
            per_hour=share(self.per_hour),
            parts=tuple((name, share(amount)) for name, amount in self.parts),
            low_per_hour=None if self.low_per_hour is None else share(self.low_per_hour),
            high_per_hour=None if self.high_per_hour is None else share(self.high_per_hour),
        )

    @property
    def price(self) -> tuple[str, Decimal, bool]:
        """Values that two rates of the same price share, whatever their plans."""
        return (self.currency, self.per_hour, self.electricity_included)


def parse_spot(text: str, now_ns: int, currency: str | None = None) -> list[TimedValue]:
    """Parse prices per hour in any format of `parse_timed`.

    Args:
        text: Output of the source.
        now_ns: UTC in ns since 1970.
        currency: The plan's currency.

    Raises:
        ValueError: It contains no price or an invalid one; the message states the expected format.
    """
    if text.lstrip().startswith("{") and '"PriceList"' in text:
        # Output of `aws pricing get-products`.
        document = bounded_object(text)
        if isinstance(document.get("PriceList"), list):
            prices = aws_price_list(document, currency, now_ns)
            price = only_price(prices, "one instance on demand")
            return [TimedValue(now_ns, price)]
    return parse_timed(text, now_ns, FORMAT, currency)


class Plan(Section, ABC):
    """A `[[price]]` section: options of all price plans.

    A kind of plan is a subclass with `plan: Literal["<kind>"]`, its own keys, a default for
    `electricity_included`, and `quote`; it is listed in `costprobe.pricing.plans.PLANS`.
    """

    plan: str = Field(description="Kind of the plan.", examples=["on_demand"])
    electricity_included: bool = Field(True, description="Whether the price includes electricity.")
    currency: Currency = Field("USD", description="ISO 4217 code.", examples=["USD"])
    device: Name | None = Field(
        None,
        description="The only device that the plan applies to, by name or UUID.",
        examples=["gpu0"],
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
    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Rate | None:
        """Return the price in force at an instant, for the unit of the plan, as of `priced`.

        A pure function: the same arguments return the same rate. Amounts are exact decimals in
        `currency` per hour and not negative; each part has its origin.

        Args:
            time_ns: UTC in ns since 1970; not before `valid_from`.
            spots: Known spot prices by their names.

        Returns:
            The rate; None if the price is unknown at that instant, so that an earlier plan applies.
        """

    def priced(
        self, parts: Parts, origins: tuple[str, ...], note: str = "", *, is_stale: bool = False
    ) -> Rate:
        """Return a price for the unit of the plan.

        Args:
            parts: Components of the price, in currency per hour.
            origins: Origin of each part, in the order of `parts`.
            note: Origin of the price, for people.
            is_stale: Whether it is older than it may be.
        """
        per_hour = sum((amount for _, amount in parts), Decimal(0))
        included = self.electricity_included
        return Rate(self.plan, self.currency, per_hour, included, note, parts, is_stale, origins)

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


def device_rate(plan: Plan, quote: Rate, sharing: int, slices: int = 1) -> Rate:
    """Return the price of one device-hour under a plan.

    Args:
        plan: The plan in force.
        quote: Its price, for its own unit.
        sharing: Number of devices that share a host's price equally; ignored for other units.
        slices: Slices of the device; ignored unless the price is per slice.
    """
    factor, divisor = 1, 1
    unit = f"device {plan.device}" if plan.device else "each device"
    if plan.unit == "host":
        divisor, unit = sharing, f"1/{sharing} of the host"
    elif plan.unit == "slice":
        factor, unit = slices, f"{slices} slices"
    rate = quote.scaled(factor, divisor)
    parts = rate.parts
    origins = tuple(_scaled_origin(origin, factor, divisor) for origin in quote.origins)
    if plan.unit == "host":
        parts = _with_overhead(parts, plan.host_overhead)
        origins += (f"host_overhead = {plan.host_overhead} of each part",)
    note = f", {quote.source}" if quote.source else ""
    return replace(rate, parts=parts, origins=origins, source=f"{plan.source}, {unit}{note}")


def _decimal_hours(seconds: float) -> Decimal:
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


def _scaled_origin(origin: str, factor: int, divisor: int) -> str:
    if factor != 1:
        return f"{origin}, x {factor} slices"
    return f"{origin}, / {divisor} devices" if divisor != 1 else origin


class FeedPlan(Plan, PriceListConfig):
    """A price that is read from a file, a command, an HTTP endpoint or a cloud's price list."""

    name: Name = Field("feed", description="Name under which the price history is stored.")

    @model_validator(mode="after")
    def _has_one_source(self) -> FeedPlan:
        if self.api is None:
            given = [key for key in _API_KEYS if getattr(self, key)]
            if given:
                raise ValueError(f"{given[0]} belongs to a price list; add api")
            if self.sources != 1:
                raise ValueError("give one of file, command, url and api")
            return self
        if self.api == "aws":
            self._check_aws()
        missing = [key for key in _REQUIRED[self.api] if not getattr(self, key)]
        if missing:
            raise ValueError(f'api = "{self.api}" needs {" and ".join(missing)}; add them')
        if self.api == "catalogue" and (self.sources != 1 or self.command is not None):
            raise ValueError('api = "catalogue" needs a table; give url or file')
        if self.api != "catalogue" and (self.file is not None or self.command is not None):
            raise ValueError(f'api = "{self.api}" is its own source; remove file and command')
        return self

    def _check_aws(self) -> None:
        if self.plan == "spot":
            raise ValueError(
                'api = "aws" has no spot prices; use command with'
                " `aws ec2 describe-spot-price-history`"
            )
        if self.currency != "USD":
            raise ValueError('api = "aws" has prices in USD; remove currency')
        if self.region is not None and self.region not in AWS_LOCATIONS:
            raise ValueError(f"{self.region} is no region of AWS, such as us-east-1")

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Rate | None:
        """Return the last known price; None before the first."""
        prices = spots.get(self.name)
        price = None if prices is None else prices.at(time_ns)
        if prices is None or price is None:
            return None
        is_stale = prices.is_stale(time_ns, self.stale_after_s)
        since = datetime.fromtimestamp(price.time_ns // NS_PER_S, tz=UTC)
        note = f"price of {since:%Y-%m-%d %H:%M} UTC{', stale' if is_stale else ''}"
        origin = f"{self.plan} price {self.name}"
        return self.priced((("rent", price.value),), (origin,), note, is_stale=is_stale)


class ListPlan(FeedPlan):
    """Rented on demand at the list price of its cloud, read from a source."""

    plan: Literal["list"] = Field(description="Kind of plan.", examples=["list"])
    name: Name = Field("list", description="Name under which the price history is stored.")
    every_s: Duration = key("every", 86_400.0, description="Time between two reads.")
    stale_after_s: Duration = key(
        "stale_after", 7 * 86_400.0, description="Age after which the last known value is stale."
    )


class OnDemandPlan(Plan):
    """Rented by the hour; the price includes electricity unless configured otherwise."""

    plan: Literal["on_demand"] = Field(description="Kind of plan.", examples=["on_demand"])
    per_hour: Money = Field(
        description="Price per hour, by default of the whole host.", examples=[Decimal("2.176")]
    )

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Rate:  # noqa: ARG002 - of the contract
        """Return the price per hour."""
        return self.priced((("rent", self.per_hour),), ("per_hour",))


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

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Rate:  # noqa: ARG002 - of the contract
        """Return straight-line depreciation, interest, and monthly costs over 730 h.

        Interest is on the mean capital employed: it falls evenly from the purchase price to the
        residual value (average-investment method of engineering economics).
        """
        lifetime_h = _decimal_hours(self.lifetime_s)
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
        return self.priced(parts, origins)


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

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Rate:  # noqa: ARG002 - of the contract
        """Return the reduced price plus the upfront payment per hour; after the term the list price."""
        last_day = utc_day(self.ends_ns)
        if time_ns >= self.ends_ns:
            note = f"the reserved term ended on {last_day}: the list price applies again"
            rent = (("rent", self.per_hour),)
            listed = self.priced(rent, ("list price",), note)
            return replace(listed, plan="on_demand", is_lapsed=True)
        parts: Parts
        if self.effective_per_hour is not None:
            parts = (("rent", self.effective_per_hour),)
            origins: tuple[str, ...] = ("effective_per_hour",)
        else:
            discount = self.discount or Decimal(0)
            parts = (("rent", self.per_hour * (1 - discount)),)
            origins = (f"{self.per_hour} x (1 - {discount})",)
        if self.upfront:
            hours = _decimal_hours(self.term_s)
            parts += (("upfront", self.upfront / hours),)
            origins += (f"{self.upfront} / {hours.normalize():f} h",)
        return self.priced(parts, origins, f"until {last_day}")


class SpotPlan(FeedPlan):
    """Rented at a price that changes over time, read from a source."""

    plan: Literal["spot"] = Field(description="Kind of plan.", examples=["spot"])
    name: Name = Field("spot", description="Name under which the price history is stored.")
    interruptions_per_month: Annotated[float, Field(ge=0, le=100_000)] | None = Field(
        None, description="Expected interruptions, for `costprobe savings`.", examples=[3.0]
    )
    recovery_s: Pause = key(
        "recovery",
        0.0,
        description="Time until work continues after an interruption, with the repeated work.",
        examples=["10m"],
    )


PLANS: dict[str, type[Plan]] = {
    "on_demand": OnDemandPlan,
    "reserved": ReservedPlan,
    "spot": SpotPlan,
    "list": ListPlan,
    "owned": OwnedPlan,
}
