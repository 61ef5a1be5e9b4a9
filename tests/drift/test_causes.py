"""Signals correlated with a drift are listed as causes, most likely first."""

from costprobe.drift.before_after import Levels
from costprobe.drift.causes import causes
from costprobe.drift.runs import DetectionRun

NORMAL = {
    "sm_clock_mhz": 1980.0,
    "power_limit_w": 700.0,
    "throttled_power_pct": 0.0,
    "throttled_thermal_pct": 0.0,
    "temp_max_c": 61.0,
    "contended": 0.0,
    "cpu_wait_pct": 0.5,
    "ecc_uncorrected": 0,
    "mem_used_pct": 40.0,
}
VERSIONS = {"driver": "550.54", "torch": "2.13", "weights": "aa"}


def side(count=12, software=VERSIONS, batch=8, **changed):
    """Runs whose signals scatter by half a percent, or by what a pair says, and the software."""
    signals = {
        name: value if isinstance(value, tuple) else (value, 0.005 * max(abs(value), 0.5))
        for name, value in {**NORMAL, **changed}.items()
        if value is not None
    }
    runs = []
    for index in range(count):
        device = {
            name: value if name == "ecc_uncorrected" else value + spread * (-1) ** index
            for name, (value, spread) in signals.items()
        }
        runs.append(DetectionRun(index, batch, 1e-3, 0.5, None, 0.0, "", device))
    return runs, software


GOOD = side(300)


def found(before, after, sign=1):
    (old, old_software), (new, new_software) = before, after
    return causes(Levels("throughput", old, new, old, sign, (old_software, new_software)))


CASES = [
    ({"throttled_thermal_pct": 11.0, "sm_clock_mhz": 1815.0}, "thermal throttling", "11 %"),
    (
        {"throttled_thermal_pct": 30.0, "temp_max_c": 89.0, "sm_clock_mhz": 1500.0},
        "cooling",
        "61 → 89 °C",
    ),
    ({"sm_clock_mhz": 1410.0}, "clock", "1980 → 1410 MHz"),
    ({"throttled_power_pct": 40.0, "sm_clock_mhz": 1700.0}, "power limit", "40 %"),
    ({"power_limit_w": 500.0, "sm_clock_mhz": 1700.0}, "power limit", "700 → 500 W"),
    ({"contended": 0.8, "temp_max_c": 70.0}, "neighbour", "80 %"),
    ({"contended": 1.0, "cpu_wait_pct": 30.0}, "neighbour", "a processor 30 % of the time"),
    ({"software": {**VERSIONS, "driver": "560.1"}}, "software: driver", "560.1"),
    ({"software": {**VERSIONS, "weights": "bb"}}, "software: weights", "aa → bb"),
    ({"software": {**VERSIONS, "board": "GPU-1"}, "batch": 4}, "board", "none → GPU-1"),
    ({"batch": 4, "sm_clock_mhz": 1900.0}, "batch", "8 → 4"),
    ({"ecc_uncorrected": 3}, "memory errors", "3 new"),
    ({"mem_used_pct": 97.0}, "memory pressure", "97 % full"),
]


def test_each_cause_is_named_first():
    first = [found(GOOD, side(**changed))[0] for changed, _, _ in CASES]
    assert [cause.name for cause in first] == [name for _, name, _ in CASES]
    assert [
        words for cause, (*_, words) in zip(first, CASES, strict=True) if words not in cause.text
    ] == []


def test_small_or_unknown_differences_are_not_a_cause():
    for after in (
        side(),
        side(sm_clock_mhz=1965.0, temp_max_c=64.0, throttled_power_pct=0.5),
        side(contended=0.1, mem_used_pct=60.0),
        (side(**dict.fromkeys(NORMAL))[0], {}),
    ):
        assert found(GOOD, after) == ()


def test_difference_within_the_noise_of_its_signal_is_not_a_cause():
    """A signal is judged against its own noise; the cause behind it is named."""
    noisy = {
        "throttled_power_pct": (4.0, 3.0),
        "throttled_thermal_pct": (2.0, 2.0),
        "temp_max_c": (64.0, 4.0),
        "contended": (0.1, 0.3),
    }
    moved = {
        "throttled_power_pct": (8.0, 2.0),
        "throttled_thermal_pct": (5.0, 2.0),
        "temp_max_c": (70.0, 1.0),
        "contended": (1 / 3, 0.47),
    }
    after = side(3, **moved, sm_clock_mhz=1500.0)
    assert [cause.name for cause in found(side(300, **noisy), after)] == ["clock"]


def test_recovery_names_the_signal_that_fell():
    names = {}
    for worse in (
        side(throttled_thermal_pct=30.0, temp_max_c=89.0, sm_clock_mhz=1500.0),
        side(throttled_power_pct=40.0),
        side(contended=0.9),
        side(sm_clock_mhz=1400.0),
    ):
        (first, *_) = found(worse, side(), sign=-1)
        names[first.name] = first.text
        assert found(worse, side()) == ()
    assert list(names) == ["cooling", "power limit", "neighbour", "clock"]
    assert "30 → 0 %" in names["cooling"]


def test_software_is_named_by_what_was_deployed():
    for keys, name in (
        (("cuda", "torch"), "torch"),
        (("cuda", "cudnn", "driver"), "driver"),
        (("torch", "weights"), "weights"),
        (("flags", "cudnn"), "cudnn"),
    ):
        before, after = (side(software=dict.fromkeys(keys, value)) for value in ("old", "new"))
        assert found(before, after)[0].name == f"software: {name}"


def test_heat_without_a_counter_of_throttling_is_cooling():
    before = side(throttled_thermal_pct=None)
    names = [
        found(before, side(throttled_thermal_pct=None, temp_max_c=temp_c, sm_clock_mhz=1600.0))[
            0
        ].name
        for temp_c in (87.0, 55.0)
    ]
    assert names == ["cooling", "clock"]
