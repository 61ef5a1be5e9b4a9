"""Advise a reservation instead of hourly billing, at the device's past hours of operation."""

from __future__ import annotations

from collections.abc import Iterator

from costprobe.core.money_text import money
from costprobe.core.units import MONTH_H
from costprobe.domain.advice.device_history import DeviceHistory
from costprobe.domain.advice.hint import Hint, NoHint, in_cents
from costprobe.domain.advice.history import BY_THE_HOUR, History, Offer, days
from costprobe.domain.costing.comparison.what_if import break_even_share
from costprobe.domain.costing.money import exact
from costprobe.domain.pricing.book import Terms
from costprobe.domain.pricing.rate import Rate

KIND = "reserved"
LEAST_DAYS = 14.0


def advise(history: History) -> Iterator[Hint | NoHint]:
    """Compare each device's hourly cost with every reservation on offer."""
    for device in history.devices.values():
        terms = device.terms
        if terms is None or terms.rate.plan not in BY_THE_HOUR:
            continue  # no price, or already reserved or owned
        yield _of_device(device, terms, history)


def _of_device(device: DeviceHistory, terms: Terms, history: History) -> Hint | NoHint:
    had = f"{days(device.known_days)} of telemetry"
    if terms.rate.plan == "assumed":
        reason = "its price is only assumed"
        return NoHint(KIND, device.name, reason, had, "its price, in [[price]]")
    rates = [
        (offer.rates[device.name].per_hour, offer.name, offer)
        for offer in history.offers
        if device.name in offer.rates
        and offer.rates[device.name].currency == terms.rate.currency
        and offer.rates[device.name].electricity_included == terms.rate.electricity_included
    ]
    if not rates:
        reason = "no comparable reservation is on offer"
        needed = 'a [[price]] with plan = "reserved" in the configuration or the file of --plans'
        return NoHint(KIND, device.name, reason, had, needed)
    if device.known_days < LEAST_DAYS:
        reason = "too little data for its hours of operation"
        return NoHint(KIND, device.name, reason, had, f"{days(LEAST_DAYS)} of telemetry")
    _, _, best = min(rates, key=lambda entry: entry[:2])
    return _compared(device, terms.rate, best, had)


def _compared(device: DeviceHistory, now: Rate, offer: Offer, had: str) -> Hint | NoHint:
    reserved = offer.rates[device.name]
    up = exact(device.up_share)
    saving = in_cents((now.per_hour * up - reserved.per_hour) * MONTH_H)
    from_share = break_even_share(reserved.per_hour, now.per_hour)
    even = (
        "never breaks even"
        if from_share is None or from_share > 1
        else f"breaks even at {from_share:.0%} of the hours"
    )
    if saving <= 0:
        reason = f"{offer.name} {even}; it ran {up:.0%} of the hours"
        return NoHint(KIND, device.name, reason, had)
    busy = device.busy_share
    works = () if busy is None else (f"it is busy {busy:.0%} of the hours in which it runs",)
    fixed, hourly = (money(rate.per_hour, rate.currency) for rate in (reserved, now))
    return Hint(
        kind=KIND,
        subject=device.name,
        devices=(device.name,),
        action=f"{offer.name} instead of {now.plan.replace('_', ' ')}",
        saving_per_month=saving,
        currency=now.currency,
        evidence=(
            f"{fixed} for every hour, {hourly} per hour on demand",
            f"it ran {up:.0%} of the hours; the reservation {even}",
            *works,
        ),
        had=had,
        assumes=("the device is needed for the whole term",),
    )
