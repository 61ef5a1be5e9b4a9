"""Cost per inference, by hand-computed examples."""

from decimal import Decimal

import pytest
from costprobe.core.records import NS_PER_S, Energy
from costprobe.core.statistics import RollingCosts, RollingSample, RollingWindows
from costprobe.pricing.book import Terms
from costprobe.pricing.plans import Rate
from costprobe.probing.cost import (
    cost_sample,
    energy_per_inference,
)
from fakes.runs import probe_run

HOUR_NS = 3600 * NS_PER_S


def terms(per_hour, electricity_per_j=0.0):
    rate = Rate("on_demand", "USD", Decimal(per_hour), electricity_per_j == 0, "test")
    return Terms(rate, electricity_per_j)


def measured(energy):
    return probe_run(window_energy=energy)


def test_cost_of_a_g4dn_8xlarge_against_an_owned_server():
    # One region: 100 s, 50,000 inferences, 300 W = 30,000 J.
    # On demand: 2.176 / 3600 x 100 / 50,000 = 1.208889e-6, electricity included.
    # Bought: 0.570776 / 3600 x 100 / 50,000 = 3.170979e-7
    #   and 0.12 x 1.5 / 3.6e6 x 30,000 / 50,000 = 3.0e-8.
    rented = cost_sample(terms("2.176"), terms("2.176"), 100 / 50_000, 0.6)
    own = terms(Decimal(15000) / 26280, electricity_per_j=0.12 * 1.5 / 3.6e6)
    bought = cost_sample(own, own, 100 / 50_000, 0.6)
    assert rented.per_inference == pytest.approx(1.208889e-6, rel=1e-6)
    assert bought.hardware == pytest.approx(3.170979e-7, rel=1e-6)
    assert bought.energy == pytest.approx(3.0e-8, rel=1e-9)


def test_energy_per_inference_and_its_idle_part():
    # 1,000 J over 10 s and 1,000 inferences; 40 W idle is 400 J of it.
    energy = energy_per_inference(measured(Energy(1000.0, "counter", 0.06, idle_power_w=40.0)))
    assert energy.per_inference_j == 1.0
    assert energy.above_idle_j == pytest.approx(0.6)
    below = energy_per_inference(measured(Energy(100.0, "poll", 0.06, idle_power_w=40.0)))
    assert below.above_idle_j is None


def test_rolling_windows_contain_their_duration():
    windows = RollingWindows(every_s=900)
    for quarter, value in enumerate([5.0, 1.0, 2.0, 3.0, 4.0]):
        windows = windows.with_sample(quarter * HOUR_NS // 4, value)
    rolled = windows.summaries(HOUR_NS)
    # A sample exactly one hour old is excluded: (0, 60 min].
    assert rolled["1h"].median == 2.5
    assert rolled["1h"].iqr == pytest.approx(1.5)
    assert rolled["1h"].coverage == 1.0
    assert rolled["24h"].median == 3.0
    assert rolled["24h"].coverage == pytest.approx(5 / 96)


def test_contended_samples_count_only_where_there_are_no_others():
    costs = RollingCosts.of(every_s=900)
    for quarter, (value, is_contended) in enumerate([(9.0, True), (1.0, False), (9.0, True)]):
        costs = costs.with_sample(RollingSample(quarter * HOUR_NS // 4, value, is_contended))
    rolled = costs.summaries(HOUR_NS // 2)["1h"]
    assert (rolled.median, rolled.samples, rolled.coverage) == (1.0, 1, 0.25)
    # Two hours later the window has only the contended ones of a busy host.
    for hour in (2.0, 2.5):
        costs = costs.with_sample(RollingSample(int(hour * HOUR_NS), 9.0, is_contended=True))
    summaries = costs.summaries(int(2.5 * HOUR_NS))
    assert (summaries["1h"].median, summaries["24h"].median) == (9.0, 1.0)
    assert costs.newest_ns == int(2.5 * HOUR_NS)


def test_rolling_windows_of_a_fast_probe_are_bounded():
    """More samples than a week has at one a minute: the oldest go."""
    windows = RollingWindows(1, ((second * NS_PER_S, second % 7) for second in range(11_000)))
    for second in range(11_000, 11_007):
        windows = windows.with_sample(second * NS_PER_S, second % 7)
        rolled = windows.summaries(windows.newest_ns)
        found = rolled["1h"].samples, rolled["7d"].samples, rolled["7d"].median
        assert found == (3600, 10_080, 3.0)
