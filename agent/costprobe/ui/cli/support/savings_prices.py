"""The prices of devices for savings: those in force, and every plan as if it applied from today."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

from costprobe.core.records import NS_PER_S, Device
from costprobe.domain.advice.history import BY_THE_HOUR
from costprobe.domain.advice.supply import DevicePrice
from costprobe.domain.pricing.book import PriceBook, Terms
from costprobe.domain.pricing.plans.owned import OwnedPlan
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.plans.spot import SpotPlan
from costprobe.ui.cli.support.price_books import StoredPrices


def prices_of(
    stored: StoredPrices, devices: Sequence[Device], plans: Sequence[Plan], now_ns: int
) -> dict[str, list[DevicePrice]]:
    """Return the prices of each device, the one in force first.

    Args:
        stored: The prices of this host.
        devices: Every device of the host.
        plans: Plans besides those of the configuration.
        now_ns: UTC ns.
    """
    assumed = stored.assumed()
    spots = stored.spots(plans)
    book = PriceBook(stored.plans, stored.electricity, devices, assumed, lambda: spots)
    day = datetime.fromtimestamp(now_ns // NS_PER_S, tz=UTC).date()
    offers = []
    for plan in (*stored.plans, *plans):
        # A plan of the past or the future, as if it began today.
        alone = [plan.model_copy(update={"valid_from": day})]
        offers.append((plan, PriceBook(alone, stored.electricity, devices, None, lambda: spots)))
    prices: dict[str, list[DevicePrice]] = {}
    for device in devices:
        terms = book.terms(device.name, now_ns)
        found = (
            [] if terms is None else [_price(terms, _plan_in_force(stored.plans, terms), now_ns)]
        )
        for plan, offer in offers:
            other = offer.terms(device.name, now_ns)
            if other is not None and (terms is None or other.rate.price != terms.rate.price):
                found.append(_price(other, plan, now_ns))
        prices[device.name] = found
    return prices


def _plan_in_force(plans: Sequence[Plan], terms: Terms) -> Plan | None:
    """Return the configured plan of a rate, by the day in its source."""
    found = (plan for plan in plans if terms.rate.source.startswith(f"{plan.source},"))
    return next(found, None)


def _price(terms: Terms, plan: Plan | None, now_ns: int) -> DevicePrice:
    rate = terms.rate
    cash = running = Decimal(0)
    if isinstance(plan, OwnedPlan):
        quote = plan.quote(now_ns)
        # The share of a host's price that one of its devices pays.
        share = rate.per_hour / quote.per_hour if quote.per_hour else Decimal(0)
        cash, running = plan.purchase_price * share, plan.monthly_costs * share
    spot = plan if isinstance(plan, SpotPlan) else None
    return DevicePrice(
        words=rate.plan.replace("_", " ") if plan is None or not plan.name else plan.name,
        rate=rate,
        electricity_per_j=terms.electricity_per_j,
        is_always_paid=rate.plan not in BY_THE_HOUR,
        cash=cash,
        running_per_month=running,
        interruptions_per_month=None if spot is None else spot.interruptions_per_month,
        recovery_s=0.0 if spot is None else spot.recovery_s,
    )
