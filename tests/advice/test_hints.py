"""Each kind of hint by a hand-computed example, and the reason where there is no hint."""

from decimal import Decimal

import pytest
from costprobe.domain.advice import batch, cpu_instead, mig_slice, reserved
from costprobe.domain.advice.device_history import HOUR_NS, Interval
from costprobe.domain.advice.hint import Hint, NoHint
from costprobe.domain.advice.history import History, Offer
from costprobe.domain.pricing.rate import Rate
from fakes.past import GIB, MONDAY, device, figures, probe, terms


def only(found):
    (one,) = found
    return one


def batch_advice(past, found):
    return only(batch.advise(History({"gpu0": past}, [found])))


def test_cheaper_batch_within_the_latency_bound():
    # 3.60 an hour, 730 h: 2,628 a month; it is busy half of the time: 1,314. Batch 8 in 10 ms is
    # 800 a second, batch 16 in 16 ms is 1,000: an inference takes 0.8 of the time. 0.2 x 1,314.
    found = probe(figures(8, 10.0), figures(16, 16.0), figures(32, 25.0), bound_ms=20.0)
    hint = batch_advice(device(), found)
    assert isinstance(hint, Hint)
    assert (hint.saving_per_month, hint.currency) == (Decimal("262.80"), "USD")
    assert (hint.action, hint.devices) == ("batch 16 instead of 8", ("gpu0",))
    assert hint.evidence[0] == "cost per inference is 20% lower at today's price"
    assert "p50 16 ms instead of 10 ms, within 20 ms" in hint.evidence
    assert hint.had == (
        "batch 8: 10 runs; batch 16: 10 runs; batch 32: 10 runs; 30.0 days of gpu0's utilization"
    )


def test_hours_without_the_device_are_not_busy():
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
            "too little utilization data",
            "7.0 days",
        ),
        (
            device(price=terms(electricity_per_j=1e-7)),
            probe(figures(8, 10.0), figures(16, 16.0)),
            "energy is unknown",
            "energy window",
        ),
    ],
)
def test_insufficient_data_gives_no_batch_hint(past, found, reason, needed):
    no_hints = batch_advice(past, found)
    assert isinstance(no_hints, NoHint)
    assert reason in no_hints.reason
    assert needed in no_hints.needed
    assert no_hints.had


def test_missing_cheaper_batch_is_reported():
    slower = probe(figures(8, 10.0), figures(16, 16.0))
    no_hints = batch_advice(device(), slower)
    assert "without a latency_bound" in no_hints.reason
    assert no_hints.needed == ""
    # 3 % is noise.
    same = probe(figures(8, 10.0), figures(16, 19.4), bound_ms=20.0)
    assert batch_advice(device(), same).needed == ""
    idle = batch_advice(device(util_of=lambda _: 0.0), probe(figures(8, 10.0), figures(16, 9.0)))
    assert "almost idle" in idle.reason
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


def test_smaller_slice_that_fits_the_peaks():
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
def test_smallest_slice_that_fits_both_peaks(util_pct, used_gib, slices):
    assert f"of {slices} slice" in mig_advice(sliced(util_pct, used_gib)).action


def test_slice_that_may_exceed_the_latency_bound_is_excluded():
    # 10 ms on seven slices are at most 35 ms on two and 23.4 ms on three.
    past = sliced(20.0, 8)
    for bound_ms, slices in ((35.0, 2), (34.9, 3), (17.5, 4)):
        history = History({"gpu0": past}, [probe(figures(8, 10.0), bound_ms=bound_ms)])
        assert f"of {slices} slices" in only(mig_slice.advise(history)).action
    tight = History({"gpu0": past}, [probe(figures(8, 10.0), bound_ms=17.0)])
    assert "within the latency bound" in only(mig_slice.advise(tight)).reason


def test_peaks_that_fit_no_slice_or_are_unknown():
    assert "do not fit a smaller instance" in mig_advice(sliced(60.0, 8)).reason
    assert "17.0 GiB" in mig_advice(sliced(5.0, 17)).reason
    assert mig_advice(sliced(5.0, 4, days=6)).needed == "7.0 days of utilization"
    assert mig_advice(device(model="NVIDIA H100 80GB HBM3")).needed == "memory in use"


def test_mig_device_is_sized_relative_to_its_board():
    name = "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    part = device("gpu0.mig0", kind="mig", model=name)
    part.mem_used_bytes_max, part.mem_total_bytes = 4 * GIB, 20 * GIB
    board = device("gpu0", model="NVIDIA A100-SXM4-40GB")
    no_hints = only(mig_slice.advise(History({"gpu0": board, part.name: part})))
    assert "reports none for MIG devices" in no_hints.reason
    # 4.8 GiB fit into 1/8 of the board's 40; 20 % of three slices are 60 % of one.
    part.add(hour_of(20.0))
    hint = only(mig_slice.advise(History({"gpu0": board, part.name: part})))
    assert hint.action == "a MIG instance of 1 slice instead of 3"
    assert hint.saving_per_month == Decimal("1752.00")


def test_boards_with_mig_support():
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


def test_reservation_saving_at_the_hours_present():
    # (2.00 x 100 % - 1.30) x 730 = 511; break-even at 65 % of the hours.
    hint = reserved_advice(device(price=terms("2.00")), offer("1.30"), offer("1.40", "dearer"))
    assert hint.saving_per_month == Decimal("511.00")
    assert hint.action == "reserved of 2024-01-01 instead of on demand"
    assert (
        "it ran 100% of the hours; the reservation breaks even at 65% of the hours" in hint.evidence
    )
    assert "it is busy 50% of the hours in which it runs" in hint.evidence
    # Present in three of four hours: (1.50 - 1.30) x 730.
    most = device(util_of=lambda hour: None if hour % 4 == 3 else 50.0, price=terms("2.00"))
    assert reserved_advice(most, offer("1.30")).saving_per_month == Decimal("146.00")


def test_reservation_without_saving_or_comparable_plan_gives_no_hint():
    half = device(util_of=lambda hour: None if hour % 2 else 50.0, price=terms("2.00"))
    no_hints = reserved_advice(half, offer("1.30"))
    assert no_hints.reason.endswith("breaks even at 65% of the hours; it ran 50% of the hours")
    assert no_hints.needed == ""
    assert "never breaks even" in reserved_advice(device(price=terms("1.00")), offer("1.30")).reason
    assert reserved_advice(device(days=13), offer("1.30")).needed == "14.0 days of telemetry"
    assert "[[price]]" in reserved_advice(device(price=terms(plan="assumed"))).needed
    for other in (offer("1.30", currency="EUR"), offer("1.30", included=False)):
        assert "no comparable reservation" in reserved_advice(device(), other).reason
    owned = History({"gpu0": device(price=terms(plan="owned"))}, offers=[offer("1.30")])
    assert list(reserved.advise(owned)) == []


def cpu_advice(gpu, *cpus, price=None, past=None):
    history = {"gpu0": past or device()}
    history["cpu"] = device("cpu", kind="cpu", price=price or terms("0.36"))
    return only(cpu_instead.advise(History(history, [gpu, *cpus])))


def test_cheaper_cpu():
    # On the GPU 1,000 a second for 0.001 a second; on the CPU 200 a second for 0.0001: half of it.
    # The GPU is busy for half of 2,628: 0.5 x 1,314. 500 a second keep 2.5 such CPUs busy.
    gpu = probe(figures(10, 10.0))
    cpu = probe(figures(10, 50.0), figures(100, 1000.0), on="cpu", name="ranker-cpu")
    hint = cpu_advice(gpu, cpu)
    assert (hint.saving_per_month, hint.devices) == (Decimal("657.00"), ("gpu0",))
    assert hint.action == "cpu instead of gpu0"
    assert "p50 50 ms (batch 10) instead of 10 ms" in hint.evidence
    assert "the load equals 2.5 such CPUs at full utilization" in hint.evidence


def test_cpu_without_a_saving():
    gpu = probe(figures(10, 10.0), bound_ms=20.0)
    slow, quick = (probe(figures(10, ms), on="cpu") for ms in (50.0, 15.0))
    assert "within its latency bound" in cpu_advice(gpu, slow).reason
    dear = cpu_advice(gpu, quick, price=terms("36"))
    assert "cost per inference is 15 times as high" in dear.reason
    assert dear.needed == ""
    assert 'devices = ["cpu"]' in cpu_advice(gpu).needed
    assert 'devices = ["cpu"]' in cpu_advice(gpu, probe(figures(1, 1), on="cpu", model="n")).needed
    few = probe(figures(10, 15.0, runs=2), on="cpu")
    assert cpu_advice(gpu, few).needed == "5 runs on each"
    assert cpu_advice(gpu, quick, past=device(days=2)).needed == "7.0 days of utilization"
    assert cpu_advice(gpu, quick, price=terms(currency="EUR")).needed == "one currency"
    metered = device(price=terms(electricity_per_j=1e-7))
    assert "energy window" in cpu_advice(gpu, quick, past=metered).needed
