"""The price of one device-hour under each kind of plan, exact in decimals, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from agent.config_price import (
    OnDemandPlanConfig,
    OwnedPlanConfig,
    PlanConfig,
    ReservedPlanConfig,
    SpotPlanConfig,
)
from agent.model import NS_PER_S
from agent.pricing.spot import NO_SPOTS, Spots
from agent.units import HOUR_S, MONTH_H, YEAR_H

Parts = tuple[tuple[str, Decimal], ...]


@dataclass(frozen=True, slots=True)
class Rate:
    """What holding one device costs while a plan is in force.

    Attributes:
        plan: Kind of the plan: on_demand, reserved, spot, owned, or assumed where the operator
            named none.
        currency: ISO 4217 code.
        per_hour: Currency per device-hour, exact.
        electricity_included: False if electricity is paid for apart.
        source: Where the figure comes from, in words.
        parts: What it is made of, as names and currency per device-hour; their sum is `per_hour`.
        is_stale: Whether a spot price is older than it may be.
        origins: Where each part comes from, in the order of `parts`.
        is_lapsed: Whether a reserved term is over, so that the list price holds.
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

    @property
    def per_s(self) -> float:
        """Currency per device-second."""
        return float(self.per_hour) / HOUR_S

    @property
    def price(self) -> tuple[str, Decimal, bool]:
        """What makes two rates the same price, whatever their plans are called."""
        return (self.currency, self.per_hour, self.electricity_included)


class Quote(NamedTuple):
    """What a plan asks at an instant for what it is for: a host, a device or a slice.

    Attributes:
        plan: Kind that is in force: a reserved plan that has ended is on_demand.
        parts: What the price is made of, in currency per hour.
        words: On where it comes from.
        is_stale: Whether a spot price is older than it may be.
        origins: Where each part comes from, in their order.
        is_lapsed: Whether a reserved term is over.
    """

    plan: str
    parts: Parts
    words: str = ""
    is_stale: bool = False
    origins: tuple[str, ...] = ()
    is_lapsed: bool = False

    @property
    def per_hour(self) -> Decimal:
        """Currency per hour, all parts together."""
        return sum((amount for _, amount in self.parts), Decimal(0))


def _on_demand(plan: OnDemandPlanConfig, time_ns: int, spots: Spots) -> Quote:  # noqa: ARG001 - as all
    return Quote("on_demand", (("rent", plan.per_hour),), origins=("per_hour",))


def reserved_until_ns(plan: ReservedPlanConfig) -> int:
    """UTC ns at which a reserved plan's term is over."""
    began = datetime.combine(plan.valid_from, time(), UTC)
    ends = began + timedelta(seconds=plan.term_s)
    return int(ends.timestamp()) * NS_PER_S


def _reserved(plan: ReservedPlanConfig, time_ns: int, spots: Spots) -> Quote:  # noqa: ARG001 - as all
    """The reduced price and the upfront payment spread over the term; the list price after it."""
    ends_ns = reserved_until_ns(plan)
    day = datetime.fromtimestamp(ends_ns // NS_PER_S, tz=UTC).date()
    if time_ns >= ends_ns:
        words = f"the reserved term ended on {day}: the list price holds again"
        rent = (("rent", plan.per_hour),)
        return Quote("on_demand", rent, words, origins=("list price",), is_lapsed=True)
    parts: Parts
    if plan.effective_per_hour is not None:
        parts = (("rent", plan.effective_per_hour),)
        origins: tuple[str, ...] = ("effective_per_hour",)
    else:
        discount = plan.discount or Decimal(0)
        parts = (("rent", plan.per_hour * (1 - discount)),)
        origins = (f"{plan.per_hour} x (1 - {discount})",)
    if plan.upfront:
        hours = _hours(plan.term_s)
        parts += (("upfront", plan.upfront / hours),)
        origins += (f"{plan.upfront} / {hours.normalize():f} h",)
    return Quote("reserved", parts, f"until {day}", origins=origins)


def _spot(plan: SpotPlanConfig, time_ns: int, spots: Spots) -> Quote | None:
    """The last known price of the market; None before the first."""
    known = spots.get(plan.name)
    price = None if known is None else known.at(time_ns)
    if known is None or price is None:
        return None
    is_stale = known.is_stale(time_ns, plan.stale_after_s)
    since = datetime.fromtimestamp(price.time_ns // NS_PER_S, tz=UTC)
    words = f"price of {since:%Y-%m-%d %H:%M} UTC{', stale' if is_stale else ''}"
    return Quote("spot", (("rent", price.value),), words, is_stale, (f"spot price {plan.name}",))


def _owned(plan: OwnedPlanConfig, time_ns: int, spots: Spots) -> Quote:  # noqa: ARG001 - as all
    """Straight-line depreciation, interest on the mean capital that is bound, monthly costs of 730 h.

    The capital falls evenly from the purchase price to the residual value, so that on average half
    of their sum is bound (the average-investment method of engineering economics).
    """
    lifetime_h = _hours(plan.lifetime_s)
    lost = plan.purchase_price - plan.residual_value
    parts: Parts = (("depreciation", lost / lifetime_h),)
    hours = f"{lifetime_h.normalize():f} h"
    origins: tuple[str, ...] = (f"({plan.purchase_price} - {plan.residual_value}) / {hours}",)
    if plan.financing_rate:
        bound = (plan.purchase_price + plan.residual_value) / 2
        parts += (("financing", bound * plan.financing_rate / YEAR_H),)
        origins += (f"{bound} bound on average x {plan.financing_rate} / {YEAR_H} h",)
    if plan.monthly_costs:
        parts += (("monthly costs", plan.monthly_costs / MONTH_H),)
        origins += (f"{plan.monthly_costs} / {MONTH_H} h",)
    return Quote("owned", parts, origins=origins)


_QUOTES: Mapping[str, Callable[[Any, int, Spots], Quote | None]] = {
    "on_demand": _on_demand,
    "reserved": _reserved,
    "spot": _spot,
    "owned": _owned,
}


def quote(plan: PlanConfig, time_ns: int, spots: Spots = NO_SPOTS) -> Quote | None:
    """What a plan asks at UTC time_ns; None where a spot price is not known then.

    Args:
        plan: The plan.
        time_ns: UTC in ns since 1970.
        spots: Prices of the spot plans, by their names.
    """
    return _QUOTES[plan.plan](plan, time_ns, spots)


def device_rate(plan: PlanConfig, asked: Quote, sharing: int, slices: int = 1) -> Rate:
    """A plan's price of one device-hour.

    Args:
        plan: The plan in force.
        asked: What it asks.
        sharing: Number of devices that share a host's price equally; ignored for any other price.
        slices: Slices of a device that is priced by them.
    """
    times, divided_by = Decimal(1), Decimal(1)
    of_what = f"device {plan.device}" if plan.device else "each device"
    if plan.of_what == "host":
        divided_by, of_what = Decimal(sharing), f"1/{sharing} of the host"
    elif plan.of_what == "slice":
        times, of_what = Decimal(slices), f"{slices} slices"
    parts = tuple((name, amount * times / divided_by) for name, amount in asked.parts)
    origins = tuple(_scaled_words(words, times, divided_by) for words in asked.origins)
    if plan.of_what == "host":
        parts = _with_overhead(parts, plan.host_overhead)
        origins += (f"host_overhead = {plan.host_overhead} of each part",)
    words = f", {asked.words}" if asked.words else ""
    return Rate(
        plan=asked.plan,
        currency=plan.currency,
        per_hour=asked.per_hour * times / divided_by,
        electricity_included=plan.electricity_included,
        source=f"{plan.plan} plan of {plan.valid_from}, {of_what}{words}",
        parts=parts,
        is_stale=asked.is_stale,
        origins=origins,
        is_lapsed=asked.is_lapsed,
    )


def _with_overhead(parts: Parts, share: Decimal) -> Parts:
    """The parts of a host's price, what its processors, memory and network cost shown apart.

    Also where it is nothing: a reader is to see that all of it is put on the accelerators.
    """
    overhead = sum((amount * share for _, amount in parts), Decimal(0))
    return (
        *((name, amount - amount * share) for name, amount in parts),
        ("host overhead", overhead),
    )


def _scaled_words(words: str, times: Decimal, divided_by: Decimal) -> str:
    if times != 1:
        return f"{words}, x {times} slices"
    return f"{words}, / {divided_by} devices" if divided_by != 1 else words


def _hours(seconds: float) -> Decimal:
    return Decimal(str(seconds)) / Decimal(int(HOUR_S))
