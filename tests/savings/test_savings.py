"""The cost of workloads on each supply, by hand-computed examples."""

from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from costprobe.savings.evidence import ExpectedLoad
from costprobe.savings.savings import savings
from costprobe.savings.supply import MonthlyCost, interval
from fakes.cases import check_all
from fakes.past import device, figures, history, price, probe, service

UTC = ZoneInfo("UTC")
MONTH_H = 730
# A T4 at 794 a month, and a CPU at 292.
T4, CPU = f"{Decimal(794) / MONTH_H:.10f}", "0.4"


def answer(past, name="gpu0"):
    (found,) = [each for each in savings(past) if each.workload.name.endswith(name)]
    return found


def offers(found):
    """The action and the saving of each supply."""
    return {supply.action: float(supply.saving_per_month) for supply in found.supplies}


def office(hour):
    """Busy from Monday to Friday, from 8 to 20."""
    return 60.0 if hour % 168 < 120 and 8 <= hour % 24 < 20 else 0.0


def two(util_of, second=None, days=30, *, prices=None, **more):
    """Two devices with these utilizations, each at the same prices."""
    devices = (device("gpu0", util_of, days), device("gpu1", second or util_of, days))
    each = prices and dict.fromkeys(("gpu0", "gpu1"), prices)
    return history(*devices, prices=each, zone=UTC, **more)


def host_with_cpu(cpu_latency_ms, *, util_pct=15.0, bound_ms=None, now=None, cpu=CPU, **more):
    """A T4 that is busy for 15 % of the time at 100 a second, and a CPU."""
    on_cpu = cpu_latency_ms and probe(figures(1, cpu_latency_ms), on="cpu")
    return history(
        device(util_of=lambda _: util_pct),
        device("cpu", lambda _: 5.0, kind="cpu", model="EPYC"),
        prices={"gpu0": [now or price(T4)], "cpu": [price(cpu)]},
        probes=[probe(figures(1, 10.0), bound_ms=bound_ms), *([on_cpu] if on_cpu else [])],
        **more,
    )


def test_savings_of_supplies_by_hand():
    one, of_two = "gpu0", "gpu0 and gpu1"
    shared = "1 of gpu0 and gpu1; on_demand"
    cpu, two_cpus = "cpu, batch 1; on_demand", "2 x cpu, batch 1; on_demand"
    # Their memory does not fit into one.
    large = history(
        device(used_gib=8, util_of=lambda _: 10.0), device("gpu1", lambda _: 5.0, used_gib=7)
    )
    # The device is idle now; 50 a second are expected, half of what it can do: one CPU at a quarter of
    # its speed cannot, three can: 50 / 25 / 0.8 = 2.5.
    load = ExpectedLoad("ranker", (50.0,) * 168)
    expected = host_with_cpu(40.0, util_pct=0.0, cpu="0.1", expected=[load])
    cases = (
        # The T4 is given back: 794 - 292 = 502, at any cost of an inference while busy.
        ("as fast", host_with_cpu(10.0), one, {cpu: 502.0}),
        ("half as fast", host_with_cpu(20.0), one, {cpu: 502.0}),
        # 2.95 times dearer per inference: 27.2 times as slow x 292 / 794; 15 % of a T4 are 1.2 CPUs,
        # with 20 % free 1.5: two of them, 794 - 584 = 210.
        ("2.95 times dearer", host_with_cpu(80.2), one, {two_cpus: 210.0}),
        ("too many CPUs", host_with_cpu(160.0), one, {}),
        ("beyond the latency bound", host_with_cpu(20.0, bound_ms=15.0), one, {}),
        ("expected", expected, "ranker on gpu0", {"3 x cpu, batch 1; on_demand": 794 - 3 * 73.0}),
        # Until a reservation ends both are paid.
        ("reserved", host_with_cpu(20.0, now=price("2", "reserved")), one, {cpu: 1168.0}),
        # 30 % and 25 % at the same time: 55 % of one, with 20 % free 69 %. A month is 2,628.
        ("half idle", two(lambda _: 30.0, lambda _: 25.0), of_two, {shared: 2628.0}),
        ("full", two(lambda _: 60.0, lambda _: 25.0), of_two, {}),
        ("large", large, of_two, {}),
        (
            "by turns",
            two(lambda hour: hour % 2 * 70.0, lambda hour: 70.0 - hour % 2 * 70.0),
            of_two,
            {shared: 2628.0},
        ),
    )  # fmt: skip

    def check(_, past, name, expected):
        assert offers(answer(past, name)) == expected

    check_all(check, cases)
    assert answer(expected, "ranker on gpu0").workload.origin == "[[workload]] of ranker"
    leaving = host_with_cpu(20.0, now=price("2", "reserved"))
    (found,) = answer(leaving).supplies
    assert found.assumptions[0] == "the devices of now are given back: until then they are paid too"
    (found,) = answer(two(lambda _: 30.0, lambda _: 25.0), of_two).supplies
    assert found.capacity_share == 1 / 0.55


def test_what_was_not_measured_is_asked_for():
    found = answer(host_with_cpu(None))
    assert not found.supplies
    assert (
        "a measurement of ranker on cpu; run: costprobe probe ranker --device cpu --sweep"
    ) in found.needs
    assert "a price of its devices in [[price]]" in answer(history(device(), prices={})).needs
    short = answer(history(device(days=6)))
    assert short.now is None
    assert "a week of utilization; known: 144 of 168 hours" in short.needs
    unknown_power = history(device(), prices={"gpu0": [price(electricity_per_j=1e-7)]})
    assert any("the power of its devices" in need for need in answer(unknown_power).needs)


def test_nights_and_weekends_off():
    # 108 of 168 h are idle: 108 / 168 x 2,628, tested on the last week.
    found = answer(history(device(util_of=office, days=28), zone=UTC))
    (off,) = found.supplies
    assert off.saving_per_month == Decimal("1689.43")
    assert off.action == (
        "gpu0; off fri 20:00 to mon 08:00, mon tue wed thu 20:00 to 08:00 1 day later; on_demand"
    )
    assert (off.held_out.hours, off.held_out.hours_short) == (168, 0)
    assert (off.held_out.refused_per_week, off.held_out.refused_per_week_max) == (0.0, 0.0)
    # With requests in them they are not idle.
    asked = [service(lambda _: 1, days=28)]
    assert not answer(history(device(util_of=office, days=28), served=asked, zone=UTC)).supplies


def test_a_reservation_for_the_base_load():
    # Two devices in office hours and an hour before and after (70 of 168 h), one otherwise. One reserved
    # at 2.00 for every hour and one on demand in these hours: 2.00 + 70 / 168 x 3.60 = 3.50, not 7.20.
    def busy(hour):
        return 80.0 if office(hour) else 30.0

    prices = [price(), price("2", "reserved")]
    past = two(busy, days=28, prices=prices)
    found = offers(answer(past, "gpu0 and gpu1"))
    assert found[
        "gpu0 and gpu1; scaled by the hour of the week; 1 reserved, the rest on_demand"
    ] == (round((7.20 - 2.00 - 70 / 168 * 3.60) * MONTH_H, 2))
    reserved = [s for s in answer(past, "gpu0 and gpu1").supplies if s.choice.price is prices[1]]
    assert {supply.break_even_share for supply in reserved} == {Decimal(2) / Decimal("3.6")}
    assert found["gpu0 and gpu1; reserved"] == round((7.20 - 4.00) * MONTH_H, 2)


def test_owned_devices_break_even():
    # 8,760 in cash instead of 2,628 a month, with 438 a month to run it: after 4 months.
    owned = price("1.6", "owned", cash=Decimal(8760), running_per_month=Decimal(438))
    prices = [price(), owned]
    (found,) = answer(history(device(util_of=lambda _: 90.0), prices={"gpu0": prices})).supplies
    assert (found.choice.cash, found.months_to_break_even) == (8760, 4.0)
    assert found.saving_per_month == Decimal("1460.00")
    # One owned device for the base at 438 a month to run, the rest on demand for 70 of 168 h: 1,095.
    # Now 5,256: 8,760 / (5,256 - 438 - 1,095) = 2.35 months.
    past = two(lambda hour: 80.0 if office(hour) else 30.0, days=28, prices=prices)
    (mixed,) = [s for s in answer(past, "gpu0 and gpu1").supplies if s.choice.base_price is owned]
    assert mixed.choice.cash == 8760
    assert round(mixed.months_to_break_even, 2) == 2.35


def test_interruptions_of_spot_devices_cost_lost_work():
    # 1.00 an hour, and 10 times a month 7.3 h are lost: a tenth of the month is paid twice.
    spot = price("1", "spot", interruptions_per_month=10.0, recovery_s=7.3 * 3600)
    past = history(device(util_of=lambda _: 90.0), prices={"gpu0": [price(), spot]})
    (found,) = answer(past).supplies
    assert found.cost_per_month == Decimal("803.00")
    assert "10 interruptions a month, each losing 26280 s of work" in found.assumptions


def test_another_batch_saves_electricity_and_devices():
    # 100 W idle, 300 W busy. At batch 8 the device is busy half of the time: 200 W; batch 16 does the
    # same work in 0.8 of the time: 180 W. 20 W x 730 h x 0.36 per kWh = 5.26.
    def measured(batch, latency_ms):
        per_s = batch / latency_ms * 1000
        return figures(batch, latency_ms, energy_j=300 / per_s, above_idle_j=200 / per_s)

    past = history(
        device(),
        prices={"gpu0": [price("0.01", electricity_per_j=0.36 / 3.6e6)]},
        probes=[probe(measured(8, 10.0), measured(16, 16.0), bound_ms=20.0)],
        grams_per_kwh={"gpu0": 400.0},
    )
    found = answer(past)
    assert offers(found) == {"gpu0, batch 16; on_demand": 5.26}
    assert found.now.electricity_per_month == Decimal("52.56")
    assert round(found.now.carbon_kg_per_month, 3) == 58.4


def test_devices_rented_as_one_host_are_released_together():
    found = savings(two(lambda _: 5.0, rented_together=[("gpu0", "gpu1")]))
    assert not any(one.supplies for one in found)
    needs = "the answer for the whole host: gpu0 and gpu1 can only be released together"
    assert [one.needs[0] for one in found if len(one.workload.devices) == 1] == [needs] * 2


def test_a_supply_that_was_too_small_later_is_rejected():
    # The load doubles in the last of four weeks.
    def growing(hour):
        return 70.0 if hour >= 3 * 168 else 35.0

    found = answer(two(growing, days=28), "gpu0 and gpu1")
    assert not found.supplies
    ((action, reason),) = found.rejected
    assert action.startswith("1 of gpu0 and gpu1")
    assert reason.startswith("too small in 168 of the last 168 hours")


def test_one_week_advises_nothing_with_less_capacity_than_now():
    """A cheaper price for the same devices needs no other week; all else is tested on one."""

    def busy(hour):
        return 60.0 if office(hour) else 10.0

    def with_days(days):
        past = two(busy, days=days, prices=[price(), price("2", "reserved")])
        return answer(past, "gpu0 and gpu1")

    week = with_days(13)
    assert offers(week) == {"gpu0 and gpu1; reserved": (3.6 - 2) * 2 * MONTH_H}
    scaled = "gpu0 and gpu1; scaled by the hour of the week; on_demand"
    reason = "from 13.0 days of data, not tested on another week"
    assert (scaled, reason) in week.rejected
    assert "two weeks of utilization: each cheaper supply is tested on the last one" in week.needs
    assert scaled in offers(with_days(14))


def test_hours_of_the_week_that_one_week_did_not_have_are_not_scaled():
    """The first of four weeks, not only the last, is tested on the devices that the others needed."""

    def busy(hour):
        is_first_night = hour < 12
        return 80.0 if office(hour) or is_first_night else 30.0

    found = answer(two(busy, days=28), "gpu0 and gpu1")
    assert not found.supplies
    ((action, reason),) = found.rejected
    assert action == "gpu0 and gpu1; scaled by the hour of the week; on_demand"
    assert reason == "too small in 7 of 168 hours of a week, decided from the other weeks"


def test_weekends_are_no_uncertainty_of_a_saving_once_each_was_seen_twice():
    def cost(*by_day):
        return MonthlyCost(Decimal(0), None, None, dict(enumerate(by_day)))

    week = (10.0, 10.0, 10.0, 10.0, 10.0, 2.0, 2.0)
    cases = [
        ("one day", (10.0,), None),
        ("the same each week", week * 3, (54 / 7, 54 / 7)),
        # s = 2, and Student's 4.303 of two degrees of freedom.
        ("three days", (8.0, 10.0, 12.0), (10 - 4.303 * 2 / 3**0.5, 10 + 4.303 * 2 / 3**0.5)),
    ]

    def check(name, days, expected):
        found = interval(cost(*days), cost(*[0.0] * len(days)))
        assert found == (expected and pytest.approx(expected, rel=0.05)), name

    check_all(check, cases)
    low, high = interval(cost(*week), cost(*[0.0] * 7))
    assert low < 54 / 7 < high
