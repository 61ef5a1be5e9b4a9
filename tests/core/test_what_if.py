"""The past under other prices, by hand."""

from decimal import Decimal

import pytest

from agent.costing.what_if import Sample, break_even_share, repriced, samples_of
from agent.model import Point
from agent.pricing.book import Terms
from agent.pricing.plans import Rate

S = 10**9


def terms(per_hour, electricity_per_j=0.0):
    rate = Rate("on_demand", "USD", Decimal(per_hour), electricity_per_j == 0, "test")
    return Terms(rate, electricity_per_j)


def row(time_ns=S, **fields):
    return Point("probe", {"device": "gpu0", "probe": "p"}, fields, time_ns)


def test_samples_are_what_an_inference_took():
    rows = [
        row(throughput_per_s=200.0, energy_per_inference_j=1.5),
        row(throughput_per_s=100.0),
        row(throughput_per_s=100.0, contended=True),
        row(throughput_per_s=0.0),
        row(latency_p50_ms=3.0),
    ]
    assert samples_of(rows) == [
        Sample("gpu0", "p", S, 0.005, 1.5),
        Sample("gpu0", "p", S, 0.01, None),
    ]


def test_the_median_cost_under_a_plan():
    # 3.60 an hour is a thousandth a second; 0.36 a kWh is 1e-7 a joule.
    samples = [Sample("gpu0", "p", i, t, 2.0) for i, t in enumerate((0.01, 0.02, 0.5))]
    assert repriced(samples, lambda *_: terms("3.6")).per_inference == pytest.approx(20e-6)
    metered = repriced(samples, lambda *_: terms("3.6", 1e-7))
    assert metered.per_inference == pytest.approx(20e-6 + 2e-7)


def test_what_cannot_be_priced_is_counted_and_not_guessed():
    samples = [Sample("gpu0", "p", i, 0.01, None) for i in range(3)]
    metered = repriced(samples, lambda *_: terms("3.6", 1e-7))
    assert (metered.per_inference, metered.samples, metered.unpriced) == (None, 0, 3)
    late = repriced(samples, lambda _, time_ns: terms("3.6") if time_ns > 1 else None)
    assert (late.samples, late.unpriced) == (1, 2)


def test_the_share_of_hours_from_which_a_reservation_pays():
    # 1.30 an hour always against 2.00 an hour in use: from 65 % on.
    assert break_even_share(Decimal("1.30"), Decimal("2.00")) == Decimal("0.65")
    assert break_even_share(Decimal(1), Decimal(0)) is None
