"""Devices and probes with history, for advisors."""

from decimal import Decimal

from costprobe.core.records import Device
from costprobe.domain.advice.device_history import HOUR_NS, DeviceHistory, Hour
from costprobe.domain.advice.probe_history import BatchFigures, ProbeHistory
from costprobe.domain.pricing.book import Terms
from costprobe.domain.pricing.rate import Rate

# Monday, 2024-01-01 00:00 UTC, in hours since 1970.
MONDAY = 473_352
GIB = 1 << 30


def terms(per_hour="3.6", plan="on_demand", currency="USD", electricity_per_j=0.0):
    rate = Rate(plan, currency, Decimal(per_hour), electricity_per_j == 0, "test")
    return Terms(rate, electricity_per_j)


def device(
    name="gpu0", util_of=lambda _: 50.0, days=30, *, price=None, kind="gpu", model="", power_w=0
):
    """A device with a row a minute; `util_of` takes hours since the first Monday, None is off."""
    parent = name.partition(".")[0] if kind == "mig" else ""
    found = DeviceHistory(
        Device(name, kind, "uuid", model, parent=parent),
        terms() if price is None else price,
        (MONDAY + days * 24) * HOUR_NS,
    )
    for hour in range(days * 24):
        util_pct = util_of(hour)
        if util_pct is not None:
            found.hours[MONDAY + hour] = Hour(
                minutes=(1 << 60) - 1,
                util_pct_s=util_pct * 3600,
                util_s=3600.0,
                energy_j=power_w * 3600.0,
                power_s=3600.0 if power_w else 0.0,
            )
    return found


def figures(batch, latency_ms, *, source="runs", runs=10, throughput=None, energy_j=None):
    per_s = batch / latency_ms * 1000 if throughput is None else throughput
    return BatchFigures(batch, source, runs, latency_ms, per_s, energy_j)


def probe(present, *others, name="ranker", on="gpu0", model="m", bound_ms=None):
    return ProbeHistory(name, on, model, bound_ms, present, others)
