"""Devices and probes with history, for savings."""

from array import array
from decimal import Decimal

from costprobe.core.hours import MINUTE_NS, MINUTES, DeviceHistory, Hour
from costprobe.core.periods import HOUR_NS
from costprobe.core.records import Device
from costprobe.pricing.book import Terms
from costprobe.pricing.catalogue import Offer
from costprobe.pricing.plans import Rate
from costprobe.savings.evidence import History
from costprobe.savings.history import BatchFigures, ProbeHistory, ServiceHistory
from costprobe.savings.supply import DevicePrice

# Monday, 2024-01-01 00:00 UTC, in hours since 1970.
MONDAY = 473_352
GIB = 1 << 30


def rate(per_hour="3.6", plan="on_demand", currency="USD", *, included=True):
    return Rate(plan, currency, Decimal(per_hour), included, "test")


def terms(per_hour="3.6", plan="on_demand", currency="USD", electricity_per_j=0.0):
    included = electricity_per_j == 0
    return Terms(rate(per_hour, plan, currency, included=included), electricity_per_j)


def price(per_hour="3.6", plan="on_demand", words="", **more):
    found = rate(per_hour, plan, included="electricity_per_j" not in more)
    is_always_paid = plan in ("reserved", "owned")
    return DevicePrice(words or plan, found, is_always_paid=is_always_paid, **more)


def offer(model, per_hour):
    """An offer of a GPU in the catalogue of list prices."""
    return Offer(
        "cloud", f"i-{model}", "all", model, Decimal(1), None, None, "USD", Decimal(per_hour), None,
        None, None, "2026-11", "", "here",
    )  # fmt: skip


def device(name="gpu0", util_of=lambda _: 50.0, days=30, *, kind="gpu", model="T4", used_gib=2):
    """A device with a row a minute; `util_of` takes hours since the first Monday, None is off."""
    parent = name.partition(".")[0] if kind == "mig" else ""
    found = DeviceHistory(
        Device(name, kind, "uuid", model, parent=parent), (MONDAY + days * 24) * HOUR_NS
    )
    found.mem_used_bytes_max, found.mem_total_bytes = used_gib * GIB, 16 * GIB
    for hour in range(days * 24):
        util_pct = util_of(hour)
        if util_pct is not None:
            found.hours[MONDAY + hour] = Hour(
                minutes=(1 << MINUTES) - 1,
                util_pct_s=util_pct * 3600,
                util_s=3600.0,
                busy_s_by_minute=array("f", [0.6 * util_pct] * MINUTES),
            )
    return found


def service(requests_of, *, name="chat", on=("gpu0",), days=28, unit="requests", start_s=None):
    """A service with a row a minute; `requests_of` takes minutes since the first Monday.

    A device on which it runs is busy in the minutes with requests only: see `busy_with`.
    """
    found = ServiceHistory(name, on, start_s)
    for minute in range(days * 24 * MINUTES):
        start_ns = MONDAY * HOUR_NS + minute * MINUTE_NS
        count = requests_of(minute)
        found.add(
            start_ns,
            start_ns + MINUTE_NS,
            {"requests": count, unit: count},
            is_active=count > 0,
            is_complete=True,
        )
    return found


def busy_with(requests_of, util_of, name="gpu0", *, days=28, **more):
    """A device with a utilization by the requests of the minute."""
    found = device(name, lambda _: 0.0, days, **more)
    for number, hour in found.hours.items():
        first = (number - MONDAY) * MINUTES
        for minute in range(MINUTES):
            util_pct = util_of(requests_of(first + minute))
            hour.busy_s_by_minute[minute] = 0.6 * util_pct
            hour.util_pct_s += 60 * util_pct
    return found


def figures(batch, latency_ms, *, source="runs", runs=10, throughput=None, **energy):
    per_s = batch / latency_ms * 1000 if throughput is None else throughput
    return BatchFigures(
        batch, source, runs, latency_ms, per_s, energy.pop("energy_j", None), **energy
    )


def probe(present, *others, name="ranker", on="gpu0", model="m", bound_ms=None):
    return ProbeHistory(name, on, model, bound_ms, present, others)


def history(*devices, prices=None, **more):
    """A host with these devices, each at 3.60 an hour if no price is given."""
    names = {found.name: found for found in devices}
    own = {name: [price()] for name in names} if prices is None else prices
    services = {found.name: found for found in more.pop("served", ())}
    return History(names, prices=own, services=services, **more)
