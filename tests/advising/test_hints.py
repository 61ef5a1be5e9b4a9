"""Each hint with an example worked by hand, and what is said where there is none."""

from decimal import Decimal

import pytest
from fakes.past import GIB, MONDAY, device, figures, probe, terms

from agent.advising import batch, cpu_instead, mig_slice, reserved
from agent.advising.device_history import HOUR_NS, Interval
from agent.advising.hint import Hint, Unsaid
from agent.advising.history import History, Offer
from agent.pricing.plans import Rate


def only(found):
    (one,) = found
    return one


def batch_advice(past, found):
    return only(batch.advise(History({"gpu0": past}, [found])))


def test_a_cheaper_batch_within_the_bound():
    # 3.60 an hour, 730 h: 2,628 a month; it works half of the time: 1,314. Batch 8 in 10 ms is
    # 800 a second, batch 16 in 16 ms is 1,000: an inference takes 0.8 of the time. 0.2 x 1,314.
    found = probe(figures(8, 10.0), figures(16, 16.0), figures(32, 25.0), bound_ms=20.0)
    hint = batch_advice(device(), found)
    assert isinstance(hint, Hint)
    assert (hint.saving_per_month, hint.currency) == (Decimal("262.80"), "USD")
    assert (hint.action, hint.devices) == ("batch 16 instead of 8", ("gpu0",))
    assert hint.evidence[0] == "an inference costs 20% less at today's price"
    assert "p50 16 ms instead of 10 ms, within 20 ms" in hint.evidence
    assert hint.had == (
        "batch 8: 10 runs; batch 16: 10 runs; batch 32: 10 runs; 30.0 days of gpu0's utilization"
    )


def test_hours_in_which_the_device_was_away_are_not_worked():
    found = probe(figures(8, 10.0), figures(16, 16.0), bound_ms=20.0)
    # The second half of every day it is off.
    past = device(util_of=lambda hour: 50.0 if hour % 24 < 12 else None)
    assert batch_advice(past, found).saving_per_month == Decimal("131.40")


@pytest.mark.parametrize(
    ("past", "found", "reason", "needed"),
    [
        (device(), probe(figures(8, 10.0, runs=4), figures(16, 16.0)), "too few runs", "5 runs"),
        (device(), probe(figures(8, 10.0)), "no other batch", "--sweep"),
        (
            device(days=6),
            probe(figures(8, 10.0), figures(16, 16.0)),
            "how busy the device is",
            "7.0 days",
        ),
        (
            device(price=terms(electricity_per_j=1e-7)),
            probe(figures(8, 10.0), figures(16, 16.0)),
            "energy is not known",
            "energy window",
        ),
    ],
)
def test_without_enough_data_no_batch_is_named(past, found, reason, needed):
    unsaid = batch_advice(past, found)
    assert isinstance(unsaid, Unsaid)
    assert reason in unsaid.reason
    assert needed in unsaid.needed
    assert unsaid.had


def test_where_no_batch_is_cheaper_that_is_said():
    slower = probe(figures(8, 10.0), figures(16, 16.0))
    unsaid = batch_advice(device(), slower)
    assert "no latency_bound" in unsaid.reason
    assert unsaid.needed == ""
    # 3 % is noise.
    same = probe(figures(8, 10.0), figures(16, 19.4), bound_ms=20.0)
    assert batch_advice(device(), same).needed == ""
    idle = batch_advice(device(util_of=lambda _: 0.0), probe(figures(8, 10.0), figures(16, 9.0)))
    assert "hardly works" in idle.reason
    away = only(batch.advise(History({}, [slower])))
    assert away.needed == "a price"


def hour_of(util_pct):
    return Interval(MONDAY * HOUR_NS, (MONDAY + 1) * HOUR_NS, util_pct)


def sliced(util_pct, used_gib, *, total_gib=40, **more):
    past = device(model="NVIDIA A100-SXM4-40GB", **more)
    past.mem_used_bytes_max, past.mem_total_bytes = used_gib * GIB, total_gib * GIB
    past.add(hour_of(util_pct))
    return past


def mig_advice(past):
    return only(mig_slice.advise(History({past.name: past})))


def test_a_smaller_slice_where_the_peaks_fit():
    # 8 GiB x 1.2 = 9.6 fit into the 2/8 of 40 GiB that two of seven slices have, and 20 % x 7 / 2
    # = 70 % of their time. 5/7 of 2,628 are saved.
    hint = mig_advice(sliced(20.0, 8))
    assert hint.action == "a MIG instance of 2 slices instead of 7"
    assert hint.saving_per_month == Decimal("1877.14")
    assert "about 10.0" in hint.evidence[0]
    assert "at most 70 %" in hint.evidence[1]
    assert "3.5 times as long" in hint.assumes[1]


@pytest.mark.parametrize(
    ("util_pct", "used_gib", "slices"),
    [(10.0, 4, 1), (10.0, 5, 2), (20.0, 4, 2), (30.0, 4, 3), (40.0, 4, 4), (10.0, 16, 3)],
)
def test_the_smallest_that_holds_both_peaks(util_pct, used_gib, slices):
    assert f"of {slices} slice" in mig_advice(sliced(util_pct, used_gib)).action


def test_a_slice_on_which_the_latency_bound_may_be_passed_is_none():
    # 10 ms on seven slices are at most 35 ms on two and 23.4 ms on three.
    past = sliced(20.0, 8)
    for bound_ms, slices in ((35.0, 2), (34.9, 3), (17.5, 4)):
        history = History({"gpu0": past}, [probe(figures(8, 10.0), bound_ms=bound_ms)])
        assert f"of {slices} slices" in only(mig_slice.advise(history)).action
    tight = History({"gpu0": past}, [probe(figures(8, 10.0), bound_ms=17.0)])
    assert "to keep the latency bound" in only(mig_slice.advise(tight)).reason


def test_peaks_that_fit_nowhere_or_are_not_known():
    assert "fit into no smaller part" in mig_advice(sliced(60.0, 8)).reason
    assert "17.0 GiB" in mig_advice(sliced(5.0, 17)).reason
    assert mig_advice(sliced(5.0, 4, days=6)).needed == "7.0 days of utilization"
    assert mig_advice(device(model="NVIDIA H100 80GB HBM3")).needed == "memory in use"


def test_a_mig_device_is_a_part_of_its_board():
    name = "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    part = device("gpu0.mig0", kind="mig", model=name)
    part.mem_used_bytes_max, part.mem_total_bytes = 4 * GIB, 20 * GIB
    board = device("gpu0", model="NVIDIA A100-SXM4-40GB")
    unsaid = only(mig_slice.advise(History({"gpu0": board, part.name: part})))
    assert "tells none of MIG devices" in unsaid.reason
    # 4.8 GiB fit into 1/8 of the board's 40; 20 % of three slices are 60 % of one.
    part.add(hour_of(20.0))
    hint = only(mig_slice.advise(History({"gpu0": board, part.name: part})))
    assert hint.action == "a MIG instance of 1 slice instead of 3"
    assert hint.saving_per_month == Decimal("1752.00")


def test_which_boards_can_be_divided():
    divided = [
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H200",
        "NVIDIA GH200 480GB",
    ]
    assert all(max(mig_slice.profiles_of(name)) == 7 for name in divided)
    assert max(mig_slice.profiles_of("NVIDIA A30")) == 4
    whole = ["Tesla T4", "NVIDIA A10", "NVIDIA L40S", "NVIDIA A10G", "NVIDIA RTX A1000", "AMD EPYC"]
    assert not any(mig_slice.profiles_of(name) for name in whole)
    assert mig_slice.slices_of("NVIDIA H100 MIG 3g.40gb") == 3
    assert mig_slice.slices_of("NVIDIA H100") is None
    assert mig_slice.board_slices("NVIDIA A30 MIG 1g.6gb") == 4
    assert mig_slice.board_slices("Tesla T4") == 0


def offer(per_hour, name="reserved of 2024-01-01", *, currency="USD", included=True):
    return Offer(name, {"gpu0": Rate("reserved", currency, Decimal(per_hour), included, "test")})


def reserved_advice(past, *offers):
    return only(reserved.advise(History({"gpu0": past}, offers=offers)))


def test_a_reservation_at_the_hours_in_which_it_is_there():
    # (2.00 x 100 % - 1.30) x 730 = 511; it pays from 65 % of the hours.
    hint = reserved_advice(device(price=terms("2.00")), offer("1.30"), offer("1.40", "dearer"))
    assert hint.saving_per_month == Decimal("511.00")
    assert hint.action == "reserved of 2024-01-01 instead of on demand"
    assert "it was there 100% of the hours; the reservation pays from 65%" in hint.evidence
    assert "it works 50% of the time in which it is there" in hint.evidence
    # There three of four hours: (1.50 - 1.30) x 730.
    most = device(util_of=lambda hour: None if hour % 4 == 3 else 50.0, price=terms("2.00"))
    assert reserved_advice(most, offer("1.30")).saving_per_month == Decimal("146.00")


def test_where_it_does_not_pay_or_cannot_be_told():
    half = device(util_of=lambda hour: None if hour % 2 else 50.0, price=terms("2.00"))
    unsaid = reserved_advice(half, offer("1.30"))
    assert unsaid.reason.endswith("pays from 65% of the hours, and it was there 50% of them")
    assert unsaid.needed == ""
    assert "pays never" in reserved_advice(device(price=terms("1.00")), offer("1.30")).reason
    assert reserved_advice(device(days=13), offer("1.30")).needed == "14.0 days of telemetry"
    assert "[[price]]" in reserved_advice(device(price=terms(plan="assumed"))).needed
    for other in (offer("1.30", currency="EUR"), offer("1.30", included=False)):
        assert "no reservation that compares" in reserved_advice(device(), other).reason
    owned = History({"gpu0": device(price=terms(plan="owned"))}, offers=[offer("1.30")])
    assert list(reserved.advise(owned)) == []


def cpu_advice(gpu, *cpus, price=None, past=None):
    history = {"gpu0": past or device()}
    history["cpu"] = device("cpu", kind="cpu", price=price or terms("0.36"))
    return only(cpu_instead.advise(History(history, [gpu, *cpus])))


def test_a_processor_that_is_cheaper():
    # On the GPU 1,000 a second for 0.001 a second; on the CPU 200 a second for 0.0001: half of it.
    # The GPU works half of 2,628: 0.5 x 1,314. 500 a second keep 2.5 such processors busy.
    gpu = probe(figures(10, 10.0))
    cpu = probe(figures(10, 50.0), figures(100, 1000.0), on="cpu", name="ranker-cpu")
    hint = cpu_advice(gpu, cpu)
    assert (hint.saving_per_month, hint.devices) == (Decimal("657.00"), ("gpu0",))
    assert hint.action == "cpu instead of gpu0"
    assert "p50 50 ms (batch 10) instead of 10 ms" in hint.evidence
    assert "the work would keep 2.5 of such processors busy" in hint.evidence


def test_where_a_processor_is_no_help():
    gpu = probe(figures(10, 10.0), bound_ms=20.0)
    slow, quick = (probe(figures(10, ms), on="cpu") for ms in (50.0, 15.0))
    assert "within its latency bound" in cpu_advice(gpu, slow).reason
    dear = cpu_advice(gpu, quick, price=terms("36"))
    assert "an inference costs 15 times as much" in dear.reason
    assert dear.needed == ""
    assert 'devices = ["cpu"]' in cpu_advice(gpu).needed
    assert 'devices = ["cpu"]' in cpu_advice(gpu, probe(figures(1, 1), on="cpu", model="n")).needed
    few = probe(figures(10, 15.0, runs=2), on="cpu")
    assert cpu_advice(gpu, few).needed == "5 runs on each"
    assert cpu_advice(gpu, quick, past=device(days=2)).needed == "7.0 days of utilization"
    assert cpu_advice(gpu, quick, price=terms(currency="EUR")).needed == "one currency"
    metered = device(price=terms(electricity_per_j=1e-7))
    assert "energy window" in cpu_advice(gpu, quick, past=metered).needed
