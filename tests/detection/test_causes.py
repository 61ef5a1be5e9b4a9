"""Signals correlated with a drift are listed as causes, most likely first."""

import pytest
from costprobe.domain.costing.comparison.change import CostFactors, split_change
from costprobe.domain.detection.causes import Conditions, causes, explain

GOOD = Conditions(
    software={"driver": "550.54", "torch": "2.13", "weights": "aa"},
    batch=8,
    sm_clock_mhz=1980.0,
    throttled_power_pct=0.0,
    throttled_thermal_pct=0.0,
    temp_c=61.0,
    contended_share=0.0,
    ecc_uncorrected=0,
    mem_used_share=0.4,
)


def changed(**values):
    names = {name: getattr(GOOD, name) for name in Conditions.__slots__}
    return Conditions(**{**names, **values})


@pytest.mark.parametrize(
    ("after", "name", "words"),
    [
        (changed(throttled_thermal_pct=11.0, sm_clock_mhz=1815.0), "thermal throttling", "11 %"),
        (
            changed(throttled_thermal_pct=30.0, temp_c=89.0, sm_clock_mhz=1500.0),
            "cooling",
            "61 → 89 °C",
        ),
        (changed(sm_clock_mhz=1410.0), "clock", "1980 → 1410 MHz"),
        (changed(throttled_power_pct=40.0, sm_clock_mhz=1700.0), "power limit", "40 %"),
        (changed(contended_share=0.8, temp_c=70.0), "neighbour", "80 %"),
        (changed(software={**GOOD.software, "driver": "560.1"}), "software: driver", "560.1"),
        (changed(software={**GOOD.software, "weights": "bb"}), "software: weights", "aa → bb"),
        (changed(software={**GOOD.software, "board": "GPU-1"}, batch=4), "board", "none → GPU-1"),
        (changed(batch=4, sm_clock_mhz=1900.0), "batch", "8 → 4"),
        (changed(ecc_uncorrected=3), "memory errors", "3 new"),
        (changed(mem_used_share=0.97), "memory pressure", "97 % full"),
    ],
)
def test_each_cause_is_named_first(after, name, words):
    first = causes(GOOD, after)[0]
    assert first.name == name
    assert words in first.text


@pytest.mark.parametrize(
    "after",
    [
        GOOD,
        changed(sm_clock_mhz=1965.0, temp_c=64.0, throttled_power_pct=0.5),
        changed(contended_share=0.1, mem_used_share=0.6),
        Conditions(),
    ],
)
def test_small_or_unknown_differences_are_not_a_cause(after):
    assert causes(GOOD, after) == ()


def test_explanation_has_size_start_and_cause():
    change = split_change(
        CostFactors(0.001, 0.010, 1e-7, 2.0), CostFactors(0.001, 0.01075, 1e-7, 2.03)
    )
    after = changed(sm_clock_mhz=1815.0, throttled_thermal_pct=11.0)
    cause, sentence = explain(7.4, change, GOOD, after, "14:05")
    assert cause == "thermal throttling"
    assert sentence == (
        "+7.4 % since 14:05: 100 % of it is time per inference;"
        " thermal throttling 11 % of the time, SM clock 1980 → 1815 MHz"
    )


def test_price_change_needs_no_further_cause():
    change = split_change(CostFactors(0.001, 0.01), CostFactors(0.002, 0.01))
    cause, sentence = explain(100.0, change, GOOD, GOOD, "midnight")
    assert cause == "price plan"
    assert sentence == "+100.0 % since midnight: 100 % of it is hardware price"


def test_change_without_a_known_cause_is_reported_as_such():
    change = split_change(CostFactors(0.001, 0.01), CostFactors(0.001, 0.011))
    cause, sentence = explain(10.0, change, GOOD, GOOD, "09:00")
    assert cause == "unknown"
    assert "no other monitored signal changed" in sentence


def test_latency_drift_is_explained_without_a_cost_split():
    cause, sentence = explain(12.0, None, GOOD, changed(sm_clock_mhz=1700.0), "09:00")
    assert cause == "clock"
    assert sentence == "+12.0 % since 09:00; SM clock 1980 → 1700 MHz"


def test_drift_during_a_price_change_is_still_explained():
    change = split_change(CostFactors(0.001, 0.01), CostFactors(0.002, 0.0105))
    cause, sentence = explain(5.0, change, GOOD, changed(sm_clock_mhz=1700.0), "09:00")
    assert cause == "clock"
    assert "hardware price" in sentence
