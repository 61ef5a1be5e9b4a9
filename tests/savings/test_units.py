"""The load of a service in its own unit, by hand-computed examples."""

from decimal import Decimal
from zoneinfo import ZoneInfo

from costprobe.core.periods import HOUR_NS
from costprobe.core.records import NS_PER_S
from costprobe.savings.history import ServiceHistory
from costprobe.savings.savings import savings
from fakes.cases import check_all
from fakes.past import MONDAY, device, figures, history, price, probe, service

UTC = ZoneInfo("UTC")
MINUTE_NS = 60 * NS_PER_S
T4, CPU = f"{Decimal(794) / 730:.10f}", "0.4"


def answer(past, name):
    (found,) = [each for each in savings(past) if each.workload.name == name]
    return found


def offers(found):
    return {supply.action: float(supply.saving_per_month) for supply in found.supplies}


def t4_with(per_min_of, *, unit="inferences", util_pct=60.0, days=14, cpu_latency_ms=20.0):
    """A T4 of which the probe does 100 a second, and a CPU that does half of it."""
    return history(
        device(util_of=lambda _: util_pct, days=days),
        device("cpu", lambda _: 5.0, days, kind="cpu", model="EPYC"),
        served=[service(per_min_of, unit=unit, days=days)],
        models={"chat": "ranker"},
        prices={"gpu0": [price(T4)], "cpu": [price(CPU)]},
        probes=[probe(figures(1, 10.0)), probe(figures(1, cpu_latency_ms), on="cpu")],
        zone=UTC,
    )


def bursts(minute):
    """15 a second on average, and 75 in one minute of an hour."""
    return 4500 if minute % 60 == 7 else 840


def test_load_is_the_work_of_the_highest_minute_or_utilization_if_that_is_less():
    # A device does 100 inferences a second, and a CPU 50; utilization is the upper bound.
    one_cpu, two_cpus = "cpu, batch 1; on_demand", "2 x cpu, batch 1; on_demand"
    cases = (
        # 15 of 100 are 15 %, although it is 60 % busy: one CPU, 794 - 292.
        ("inferences", lambda _: 900, 60.0, (15.0, 0.15), {one_cpu: 502.0}),
        # The highest minute decides: 0.75 / 0.5 / 0.8 are two CPUs.
        ("inferences", bursts, 90.0, (75.0, 0.75), {two_cpus: 210.0}),
        ("inferences", lambda _: 900, 10.0, (15.0, 0.1), {one_cpu: 502.0}),
        # No probe measures requests and tokens: the highest minute says no more.
        ("requests", lambda _: 900, 15.0, (15.0, 0.15), {one_cpu: 502.0}),
        ("requests", lambda _: 900, 100.0, (15.0, 1.0), {}),
        ("tokens_out", lambda _: 900, 100.0, (15.0, 1.0), {}),
    )

    def check(unit, per_min_of, util_pct, load, expected):
        found = answer(t4_with(per_min_of, unit=unit, util_pct=util_pct), "chat on gpu0")
        workload = found.workload
        assert (workload.units_max_per_s, round(workload.peak, 6)) == load
        assert offers(found) == expected

    check_all(check, cases)
    found = answer(t4_with(lambda _: 900), "chat on gpu0")
    workload = found.workload
    assert (workload.unit.name, workload.unit.per_device_s) == ("inferences", 100.0)
    assert (workload.units_per_h, round(workload.mean, 9)) == (54_000.0, 0.15)
    assert found.supplies[0].assumptions[0] == (
        "a device can do 100 inferences a second (ranker on gpu0, batch 1), and nothing else runs"
        " on it"
    )


def test_a_row_is_spread_over_its_minutes():
    found = ServiceHistory("chat", ("gpu0",))
    start_ns = MONDAY * HOUR_NS + 58 * MINUTE_NS
    found.add(
        start_ns,
        start_ns + 5 * MINUTE_NS,
        {"requests": 10.0, "tokens_out": 500.0},
        is_active=True,
        is_complete=True,
    )
    first, second = found.hours[MONDAY], found.hours[MONDAY + 1]
    assert (first.requests, second.requests) == (4.0, 6.0)
    assert (first.active, second.active) == (0b11 << 58, 0b111)
    assert (found.row_s, found.unit, found.most_per_s("tokens_out")) == (
        300.0,
        "tokens_out",
        100 / 60,
    )
    assert (first.is_known, first.idle) == (False, 0)
    # An incomplete row is neither work nor idleness; a unit that a complete row lacks is none.
    found.add(start_ns, start_ns + MINUTE_NS, {}, is_active=False, is_complete=False)
    assert (first.is_doubtful, found.unit) == (True, "tokens_out")
    found.add(start_ns, start_ns + MINUTE_NS, {"requests": 0.0}, is_active=False, is_complete=True)
    assert found.unit == "requests"
    # Work of several services does not add up.
    shared = history(device(days=8), served=[service(lambda _: 6, days=8, name=n) for n in "ab"])
    assert answer(shared, "a, b on gpu0").workload.unit is None


def test_a_device_is_loaded_by_the_configured_model():
    past = history(
        device(days=8),
        models_of_devices={"gpu0": "second"},
        probes=[probe(figures(1, 10.0), name=name) for name in ("first", "second")],
    )
    assert [each.workload.name for each in savings(past)] == ["second on gpu0"]
