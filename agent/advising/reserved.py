"""A reservation instead of paying by the hour, at the hours in which a device was there."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from agent.advising.device_history import DeviceHistory
from agent.advising.hint import Hint, Unsaid, in_cents
from agent.advising.history import BY_THE_HOUR, History, Offer, days
from agent.costing.money import exact
from agent.costing.what_if import break_even_share
from agent.pricing.book import Terms
from agent.pricing.plans import Rate
from agent.units import MONTH_H

KIND = "reserved"
LEAST_DAYS = 14.0


def advise(history: History) -> Iterator[Hint | Unsaid]:
    """Compares what each device costs by the hour with every reservation that is on offer."""
    for device in history.devices.values():
        terms = device.terms
        if terms is None or terms.rate.plan not in BY_THE_HOUR:
            continue  # there is nothing to reserve, or it is reserved or owned already
        yield _of_device(device, terms, history)


def _of_device(device: DeviceHistory, terms: Terms, history: History) -> Hint | Unsaid:
    had = f"{days(device.known_days)} of telemetry"
    if terms.rate.plan == "assumed":
        reason = "what it costs is only assumed"
        return Unsaid(KIND, device.name, reason, had, "its price, in [[price]]")
    rates = [
        (offer.rates[device.name].per_hour, offer.name, offer)
        for offer in history.offers
        if device.name in offer.rates
        and offer.rates[device.name].currency == terms.rate.currency
        and offer.rates[device.name].electricity_included == terms.rate.electricity_included
    ]
    if not rates:
        reason = "no reservation that compares is on offer"
        needed = 'a [[price]] with plan = "reserved" in the configuration or the file of --plans'
        return Unsaid(KIND, device.name, reason, had, needed)
    if device.known_days < LEAST_DAYS:
        reason = "too little is known of the hours in which it is there"
        return Unsaid(KIND, device.name, reason, had, f"{days(LEAST_DAYS)} of telemetry")
    _, _, best = min(rates, key=lambda entry: entry[:2])
    return _compared(device, terms.rate, best, had)


def _compared(device: DeviceHistory, now: Rate, offer: Offer, had: str) -> Hint | Unsaid:
    reserved = offer.rates[device.name]
    up = exact(device.up_share)
    saving = in_cents((now.per_hour * up - reserved.per_hour) * MONTH_H)
    from_share = break_even_share(reserved.per_hour, now.per_hour)
    pays = "never" if from_share is None or from_share > 1 else f"from {from_share:.0%}"
    if saving <= 0:
        reason = f"{offer.name} pays {pays} of the hours, and it was there {up:.0%} of them"
        return Unsaid(KIND, device.name, reason, had)
    busy = device.busy_share
    works = () if busy is None else (f"it works {busy:.0%} of the time in which it is there",)
    return Hint(
        kind=KIND,
        subject=device.name,
        devices=(device.name,),
        action=f"{offer.name} instead of {now.plan.replace('_', ' ')}",
        saving_per_month=saving,
        currency=now.currency,
        evidence=(
            f"{_told(reserved.per_hour)} an hour in every hour, {_told(now.per_hour)} by the hour",
            f"it was there {up:.0%} of the hours; the reservation pays {pays}",
            *works,
        ),
        had=had,
        assumes=("it is needed for the whole term",),
    )


def _told(per_hour: Decimal) -> str:
    return f"{float(per_hour):.4g}"
