"""Past samples under other prices, by hand-computed examples."""

from decimal import Decimal

import pytest
from costprobe.core.records import Point
from costprobe.domain.costing.comparison.what_if import (
    WhatIfSample,
    as_if,
    break_even_share,
    other_batches,
    repriced,
    samples_of,
    typical,
)
from costprobe.domain.pricing.book import Terms
from costprobe.domain.pricing.rate import Rate

S = 10**9


def terms(per_hour, electricity_per_j=0.0):
    rate = Rate("on_demand", "USD", Decimal(per_hour), electricity_per_j == 0, "test")
    return Terms(rate, electricity_per_j)


def row(time_ns=S, **fields):
    return Point("probe", {"device": "gpu0", "probe": "p"}, fields, time_ns)


def test_sample_has_time_and_energy_per_inference():
    rows = [
        row(throughput_per_s=200.0, energy_per_inference_j=1.5),
        row(throughput_per_s=100.0),
        row(throughput_per_s=100.0, contended=True),
        row(throughput_per_s=0.0),
        row(latency_p50_ms=3.0),
    ]
    assert samples_of(rows) == [
        WhatIfSample("gpu0", "p", S, 0.005, 1.5),
        WhatIfSample("gpu0", "p", S, 0.01, None),
    ]


def test_median_cost_under_a_plan():
    # 3.60 an hour is a thousandth a second; 0.36 a kWh is 1e-7 a joule.
    samples = [WhatIfSample("gpu0", "p", i, t, 2.0) for i, t in enumerate((0.01, 0.02, 0.5))]
    assert repriced(samples, lambda *_: terms("3.6")).per_inference == pytest.approx(20e-6)
    metered = repriced(samples, lambda *_: terms("3.6", 1e-7))
    assert metered.per_inference == pytest.approx(20e-6 + 2e-7)


def test_samples_without_a_price_are_counted_not_estimated():
    samples = [WhatIfSample("gpu0", "p", i, 0.01, None) for i in range(3)]
    metered = repriced(samples, lambda *_: terms("3.6", 1e-7))
    assert (metered.per_inference, metered.samples, metered.unpriced) == (None, 0, 3)
    late = repriced(samples, lambda _, time_ns: terms("3.6") if time_ns > 1 else None)
    assert (late.samples, late.unpriced) == (1, 2)


def test_break_even_utilization_of_a_reservation():
    # 1.30 per hour always against 2.00 per hour of use: break-even at 65 %.
    assert break_even_share(Decimal("1.30"), Decimal("2.00")) == Decimal("0.65")
    assert break_even_share(Decimal(1), Decimal(0)) is None


def test_electricity_is_saved_in_unused_hours():
    # 1.20 always against 2.00 in use, of which 0.40 is drawn by the own device too.
    assert break_even_share(Decimal("1.20"), Decimal(2), Decimal("0.40")) == Decimal("0.75")
    assert break_even_share(Decimal("1.20"), Decimal(2), Decimal(2)) is None


def run(batch, time_ns, time_s=0.01, energy_j=2.0, latency_ms=4.0, fingerprint="aa"):
    return WhatIfSample("gpu0", "p", time_ns, time_s, energy_j, batch, latency_ms, fingerprint)


def test_samples_have_batch_latency_and_software_oldest_first():
    tags = {"device": "gpu0", "probe": "p", "batch": "8"}
    fields = {"throughput_per_s": 100.0, "latency_p50_ms": 4.0, "fingerprint": "aa"}
    newer, older = (Point("sweep", tags, fields, time_ns) for time_ns in (9, 3))
    assert samples_of([newer, older]) == [run("8", 3, energy_j=None), run("8", 9, energy_j=None)]


def test_typical_sample_has_the_medians():
    samples = [run("8", 1, 0.01, 2.0), run("8", 2, 0.02, None), run("8", 3, 0.09, 4.0)]
    assert typical(samples) == run("8", 3, 0.02, 3.0)
    assert typical(samples).power_w == 150
    assert run("8", 1, energy_j=None).power_w is None


def test_other_batches_have_the_same_software_and_prefer_sweeps():
    samples = [
        run("4", 1, 0.5, fingerprint="old"),
        run("16", 2, 0.016),
        run("32", 3, 0.032),
        run("8", 4, 0.008),
    ]
    swept = [
        run("8", 5, 0.8),
        run("16", 5, 0.9),
        run("16", 6, 0.0155),
        run("64", 6, 0.064, fingerprint="old"),
    ]
    found = other_batches(samples, swept)
    assert [(one.batch, one.time_per_inference_s) for one in found] == [
        ("16", 0.0155),
        ("32", 0.032),
    ]
    # A server chooses its own batch: there are no other batches to compare.
    assert other_batches([run("", 1)], []) == []


def test_samples_at_the_same_times_under_another_plan():
    other = run("16", 77, 0.0155)
    found = as_if([run("8", 1), run("8", 2)], other)
    assert [one.time_ns for one in found] == [1, 2]
    assert {one.time_per_inference_s for one in found} == {0.0155}
