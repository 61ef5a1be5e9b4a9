"""The configuration of prices: what devices are rented or bought for, and what electricity costs."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from agent.config_fields import (
    ClockTime,
    Currency,
    Duration,
    Money,
    Name,
    Section,
    Weekday,
    Zone,
    key,
)
from agent.config_source import SourceConfig

# An exact share: what it multiplies is money.
ExactShare = Annotated[Decimal, Field(ge=0, lt=1)]


class _PlanConfig(Section):
    """What all plans have.

    Attributes:
        currency: ISO 4217 code.
        device: The only device that the plan is for, by name.
        per: What the price is for: the whole host, each accelerator, or each MIG slice.
        host_overhead: Share of a host's price that its processors, memory and network are taken to
            cost; it is in the price of each device, and shown apart.
        valid_from: Day, in UTC, from which the plan holds.
    """

    currency: Currency = "USD"
    device: Name | None = None
    per: Literal["host", "device", "slice"] | None = None
    valid_from: date = date(1970, 1, 1)
    host_overhead: ExactShare = Decimal(0)

    @model_validator(mode="after")
    def _a_device_is_priced_as_one(self) -> _PlanConfig:
        if self.device is not None and self.per not in (None, "device"):
            raise ValueError('a plan that names its device is per = "device"; remove per')
        if self.host_overhead and self.of_what != "host":
            raise ValueError("host_overhead is a share of a host's price; remove it")
        return self

    @property
    def of_what(self) -> Literal["host", "device", "slice"]:
        """What the price is for."""
        return self.per or ("host" if self.device is None else "device")


class OnDemandPlanConfig(_PlanConfig):
    """Rented by the hour; electricity is in the price unless said otherwise.

    Attributes:
        per_hour: Price an hour.
        electricity_included: Whether the price holds the electricity.
    """

    plan: Literal["on_demand"]
    per_hour: Money
    electricity_included: bool = True


class ReservedPlanConfig(_PlanConfig):
    """Rented for a term at a lower price; at its end the list price holds again.

    Attributes:
        per_hour: List price an hour, which holds once the term is over.
        discount: Share off the list price.
        effective_per_hour: Price an hour in its place, where the contract states one.
        upfront: Paid at the beginning, spread evenly over the term.
        term_s: Length of the term in seconds, from `valid_from` on.
        electricity_included: Whether the price holds the electricity.
    """

    plan: Literal["reserved"]
    per_hour: Money
    discount: ExactShare | None = None
    effective_per_hour: Money | None = None
    upfront: Money = Decimal(0)
    term_s: Duration = key("term")
    electricity_included: bool = True

    @model_validator(mode="after")
    def _begins_and_is_cheaper(self) -> ReservedPlanConfig:
        if "valid_from" not in self.model_fields_set:
            raise ValueError("a term begins on a day; add valid_from")
        if (self.discount is None) == (self.effective_per_hour is None):
            raise ValueError("give discount or effective_per_hour, one of the two")
        return self


class SpotPlanConfig(_PlanConfig, SourceConfig):
    """Rented at a price that moves: read from a file, a command or an HTTP endpoint.

    Attributes:
        name: What the prices are remembered by.
        electricity_included: Whether the price holds the electricity.
    """

    plan: Literal["spot"]
    name: Name = "spot"
    electricity_included: bool = True

    @model_validator(mode="after")
    def _one_source(self) -> SpotPlanConfig:
        if self.sources != 1:
            raise ValueError("give one of file, command and url")
        return self


class OwnedPlanConfig(_PlanConfig):
    """Bought, written off over a lifetime, with monthly running costs beside electricity.

    Attributes:
        purchase_price: Paid for it.
        residual_value: Worth at the end of its lifetime.
        lifetime_s: Time over which it is written off, from `valid_from` on.
        financing_rate: Yearly interest on the capital that is bound, as a share.
        monthly_costs: Colocation, staff and the like in a month, without electricity.
        electricity_included: Whether these costs hold the electricity.
    """

    plan: Literal["owned"]
    purchase_price: Money
    residual_value: Money = Decimal(0)
    lifetime_s: Duration = key("lifetime")
    financing_rate: ExactShare = Decimal(0)
    monthly_costs: Money = Decimal(0)
    electricity_included: bool = False

    @model_validator(mode="after")
    def _worth_less_at_the_end(self) -> OwnedPlanConfig:
        if self.residual_value > self.purchase_price:
            raise ValueError("residual_value must not be above purchase_price")
        return self


def _plan_kind(value: Any) -> str:
    return str(value.get("plan") if isinstance(value, dict) else getattr(value, "plan", None))


PlanConfig = Annotated[
    Annotated[OnDemandPlanConfig, Tag("on_demand")]
    | Annotated[ReservedPlanConfig, Tag("reserved")]
    | Annotated[SpotPlanConfig, Tag("spot")]
    | Annotated[OwnedPlanConfig, Tag("owned")],
    Discriminator(_plan_kind),
]


class TariffHoursConfig(Section):
    """Hours of the week with a tariff of their own; the end may lie on the next day.

    Attributes:
        days: Days on which the hours begin.
        start: Beginning, by the clocks of `timezone`.
        end: End, likewise; at or before `start` it is on the next day.
        tariff_per_kwh: Currency per kWh at the meter in these hours.
    """

    days: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    start: ClockTime
    end: ClockTime
    tariff_per_kwh: Money


class TariffConfig(Section):
    """What a kilowatt-hour costs and how much of it the building adds.

    Attributes:
        tariff_per_kwh: Currency per kWh at the meter; with `hours`, in all other hours.
        pue: What the building adds, as a factor.
        timezone: IANA name of the place whose clocks `hours` are of.
        hours: Hours with a tariff of their own; the first that fits holds.
    """

    tariff_per_kwh: Money
    pue: Annotated[Decimal, Field(ge=1, le=10)] = Decimal(1)
    timezone: Zone = "UTC"
    hours: tuple[TariffHoursConfig, ...] = ()


class EarlierTariffConfig(TariffConfig):
    """A tariff of the past.

    Attributes:
        until: Day, in UTC, on which it no longer held.
    """

    until: date


class ElectricityConfig(TariffConfig):
    """The tariff of now, and those before it.

    Attributes:
        currency: ISO 4217 code.
        earlier: Tariffs of the past, so that old samples keep the price of their day.
    """

    currency: Currency = "USD"
    earlier: tuple[EarlierTariffConfig, ...] = Field((), max_length=200)

    @model_validator(mode="after")
    def _each_ends_on_its_own_day(self) -> ElectricityConfig:
        if len({tariff.until for tariff in self.earlier}) < len(self.earlier):
            raise ValueError("two earlier tariffs end on the same day; give each its own until")
        return self
