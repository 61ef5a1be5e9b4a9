"""Signals correlated with a drift are listed as causes, most likely first."""

import pytest
from costprobe.drift.actions import action_of
from costprobe.drift.causes import causes
from costprobe.drift.runs import Comparison, Conditions, SignalSample

FIELDS = ("software", "batch", "ecc_uncorrected")


def conditions(spread=0.02, count=12, **values):
    """Conditions with a spread relative to each value."""
    signals = {
        name: SignalSample(value, spread * max(abs(value), 0.5), count)
        for name, value in values.items()
        if isinstance(value, float)
    }
    others = {name: values[name] for name in values.keys() - signals.keys() if name in FIELDS}
    return Conditions(**others, signals=signals)


NORMAL = {
    "software": {"driver": "550.54", "torch": "2.13", "weights": "aa"},
    "batch": 8,
    "sm_clock_mhz": 1980.0,
    "power_limit_w": 700.0,
    "throttled_power_pct": 0.0,
    "throttled_thermal_pct": 0.0,
    "temp_c": 61.0,
    "contended_share": 0.0,
    "cpu_wait_pct": 0.5,
    "ecc_uncorrected": 0,
    "mem_used_pct": 40.0,
}
GOOD = conditions(count=300, spread=0.005, **NORMAL)


def changed(**values):
    return conditions(spread=0.005, **{**NORMAL, **values})


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
        (changed(power_limit_w=500.0, sm_clock_mhz=1700.0), "power limit", "700 → 500 W"),
        (changed(contended_share=0.8, temp_c=70.0), "neighbour", "80 %"),
        (
            changed(contended_share=1.0, cpu_wait_pct=30.0),
            "neighbour",
            "a processor 30 % of the time",
        ),
        (changed(software={**NORMAL["software"], "driver": "560.1"}), "software: driver", "560.1"),
        (changed(software={**NORMAL["software"], "weights": "bb"}), "software: weights", "aa → bb"),
        (
            changed(software={**NORMAL["software"], "board": "GPU-1"}, batch=4),
            "board",
            "none → GPU-1",
        ),
        (changed(batch=4, sm_clock_mhz=1900.0), "batch", "8 → 4"),
        (changed(ecc_uncorrected=3), "memory errors", "3 new"),
        (changed(mem_used_pct=97.0), "memory pressure", "97 % full"),
    ],
)
def test_each_cause_is_named_first(after, name, words):
    first = causes(Comparison(GOOD, after))[0]
    assert first.name == name
    assert words in first.text


def test_small_or_unknown_differences_are_not_a_cause():
    for after in (
        changed(),
        changed(sm_clock_mhz=1965.0, temp_c=64.0, throttled_power_pct=0.5),
        changed(contended_share=0.1, mem_used_pct=60.0),
        Conditions(),
    ):
        assert causes(Comparison(GOOD, after)) == ()


def test_difference_within_the_noise_of_its_signal_is_not_a_cause():
    """A signal is judged against its own noise; the cause behind it is named."""
    noisy = {
        "throttled_power_pct": SignalSample(4.0, 3.0, 300),
        "throttled_thermal_pct": SignalSample(2.0, 2.0, 300),
        "temp_c": SignalSample(64.0, 4.0, 300),
        "contended_share": SignalSample(0.1, 0.3, 300),
    }
    moved = {
        "throttled_power_pct": SignalSample(8.0, 2.0, 3),
        "throttled_thermal_pct": SignalSample(5.0, 2.0, 3),
        "temp_c": SignalSample(70.0, 1.0, 3),
        "contended_share": SignalSample(1 / 3, 0.47, 3),
    }
    before = conditions(count=300, spread=0.005, **{**NORMAL, **noisy})
    after = conditions(count=3, spread=0.005, **{**NORMAL, **moved, "sm_clock_mhz": 1500.0})
    assert [cause.name for cause in causes(Comparison(before, after))] == ["clock"]


def test_recovery_names_the_signal_that_fell():
    names = {}
    for worse in (
        changed(throttled_thermal_pct=30.0, temp_c=89.0, sm_clock_mhz=1500.0),
        changed(throttled_power_pct=40.0),
        changed(contended_share=0.9),
        changed(sm_clock_mhz=1400.0),
    ):
        (first, *_) = causes(Comparison(worse, changed(), sign=-1))
        names[first.name] = first.text
        assert causes(Comparison(worse, changed(), sign=1)) == ()
    assert list(names) == ["cooling", "power limit", "neighbour", "clock"]
    assert "30 → 0 %" in names["cooling"]


def test_software_is_named_by_what_was_deployed():
    for keys, name in (
        (("cuda", "torch"), "torch"),
        (("cuda", "cudnn", "driver"), "driver"),
        (("torch", "weights"), "weights"),
        (("flags", "cudnn"), "cudnn"),
    ):
        software = dict.fromkeys(keys, "new")
        after = changed(software=software)
        before = changed(software=dict.fromkeys(keys, "old"))
        assert causes(Comparison(before, after))[0].name == f"software: {name}"


def test_heat_without_a_counter_of_throttling_is_cooling():
    before = changed(throttled_thermal_pct=None)
    hot = changed(throttled_thermal_pct=None, temp_c=87.0, sm_clock_mhz=1600.0)
    cold = changed(throttled_thermal_pct=None, temp_c=55.0, sm_clock_mhz=1600.0)
    assert [causes(Comparison(before, after))[0].name for after in (hot, cold)] == [
        "cooling",
        "clock",
    ]


def test_every_cause_has_an_action():
    for name, words in (
        ("cooling", "fan and airflow"),
        ("clock", "nvidia-smi -q -d CLOCK"),
        ("software: driver", "roll back"),
        ("neighbour", "move the other process"),
        ("unknown", "costprobe trend"),
    ):
        assert words in action_of(name)
