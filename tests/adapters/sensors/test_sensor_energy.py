import math

import pytest
from costprobe.adapters.sensors.energy import IdlePower, mean_rel_err
from costprobe.adapters.sensors.messages import Absent, EnergyReading, WatchedReadings
from costprobe.core.records import Energy
from costprobe.devices.use import SteadyWindow, from_counter, from_powers, window_energy
from hypothesis import given
from hypothesis import strategies as st

S = 10**9


def region(start_s, end_s, lead_s=1.0):
    edges = (start_s, end_s, start_s - lead_s, end_s + lead_s)
    return SteadyWindow(*(int(edge * S) for edge in edges))


def readings(*pairs, method="counter"):
    return [EnergyReading(int(t_s * S), energy_j, method) for t_s, energy_j in pairs]


def test_counter_energy_by_hand():
    # 300 W between 9.8 s and 15.8 s, over a region of 5 s.
    energy = from_counter(readings((9.8, 1000.0), (15.8, 2800.0)), region(10, 15))
    assert energy == Energy(pytest.approx(1500), "counter", pytest.approx(0.1 / 6 + 0.05))


def test_outermost_steady_readings_count_without_the_rise():
    power_changed_before, rising, power_changed_after = (8.9, 0.0), (9.1, 1000.0), (16.1, 90000.0)
    steady = [(9.9, 1240.0), (12.0, 1870.0), (15.2, 2830.0), (15.9, 3040.0)]
    energy = from_counter(
        readings(power_changed_before, rising, *steady, power_changed_after),
        region(10, 15),
    )
    assert energy.energy_j == pytest.approx((3040 - 1240) / 6 * 5)
    assert energy.rel_err == pytest.approx(0.1 / 6 + 0.05)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([], "was not read"),
        ([(3.0, 1.0), (20.0, 5.0)], "was not read"),
        ([(10.0, 1.0)], "span 0.00 s"),
        ([(10.0, 1.0), (12.0, 500.0)], "span 2.00 s"),
        ([(10.0, 900.0), (15.0, 100.0)], "was reset"),
        ([(10.0, 900.0), (12.0, 5.0), (15.0, 1000.0)], "was reset"),
        ([(10.0, 900.0), (15.0, 900.0)], "did not advance"),
    ],
)
def test_unusable_counter_gives_the_reason(pairs, reason):
    answer = from_counter(readings(*pairs), region(10, 15))
    assert isinstance(answer, Absent)
    assert reason in answer.reason


@pytest.mark.parametrize(
    ("method", "rel_err"),
    [("counter", 0.1 / 5 + 0.05), ("rapl", 0.001 / 5 + 0.05), ("modelled", 0.01 / 5 + 0.5)],
)
def test_each_method_has_its_own_uncertainty(method, rel_err):
    energy = from_counter(readings((10, 5.0), (15, 505.0), method=method), region(10, 15))
    assert (energy.method, energy.rel_err) == (method, pytest.approx(rel_err))


@given(
    power_w=st.floats(1, 2000),
    step_ms=st.sampled_from([1, 10, 20, 50, 100]),
    region_s=st.floats(5, 60),
    early_s=st.floats(0, 0.25),
    late_s=st.floats(0, 1),
    phase_s=st.floats(0, 1),
)
def test_energy_of_a_stepping_counter_is_within_its_uncertainty(
    power_w, step_ms, region_s, early_s, late_s, phase_s
):
    start_s = 100 + phase_s
    end_s = start_s + region_s

    def counter(t_s):
        return math.floor(t_s * 1000 / step_ms) * step_ms / 1000 * power_w

    edges = (start_s - early_s, end_s + late_s)
    pairs = [(edge, counter(edge)) for edge in edges]
    energy = from_counter(readings(*pairs), region(start_s, end_s))
    true_j = power_w * region_s
    # The board's own error is no part of this script.
    assert abs(energy.energy_j / true_j - 1) <= energy.rel_err - 0.05 + 1e-6


@pytest.mark.parametrize("method", ["poll", "samples"])
def test_energy_of_powers_by_hand(method):
    # 100 W, rising by 10 W a second from 10 s on; what was read within 1.1 s of the load's
    # beginning at 9.5 s may hold what was before it.
    powers = [(t * S, 100.0 + 10 * max(0, t - 10)) for t in range(5, 20)]
    energy = from_powers(powers, region(10.5, 15.5), method)
    watts = [110, 120, 130, 140, 150, 160]
    assert energy.energy_j == pytest.approx(5 * 135)
    assert energy.method == method
    noise = 2.776 * math.sqrt(250) / math.sqrt(5) / 135
    assert mean_rel_err(watts) == pytest.approx(noise)
    assert energy.rel_err == pytest.approx(1 / 5 + 0.05 + noise)


def test_power_averages_over_the_rise_are_excluded():
    # The sensor shows the mean of its last second: too little until 10.5 s.
    powers = [(int(t * S / 10), 200.0 * min(1, max(0, t - 95) / 10)) for t in range(90, 160)]
    energy = from_powers(powers, region(10, 15, lead_s=0.5), "poll")
    assert energy.energy_j == pytest.approx(1000)


def test_readings_after_the_window_count_while_the_load_lasts():
    idle_before, idle_after = (8 * S, 20.0), (17 * S, 20.0)
    powers = [idle_before, *((t * S, 200.0) for t in range(11, 17)), idle_after]
    assert from_powers(powers, region(9.5, 15.5), "poll").energy_j == pytest.approx(1200)


@pytest.mark.parametrize(
    ("times_s", "watts", "reason"),
    [
        ([], 100.0, "polled 0 times"),
        ([11, 12], 100.0, "polled 2 times"),
        ([11.1, 11.2, 11.3], 100.0, "over 0.2 s"),
        ([11.1, 11.2, 11.3, 15], 100.0, "gap of 3.7 s"),
        ([11, 12, 13, 14], 0.0, "zero"),
    ],
)
def test_insufficient_polls_give_the_reason(times_s, watts, reason):
    answer = from_powers([(int(t * S), watts) for t in times_s], region(10, 15), "poll")
    assert isinstance(answer, Absent)
    assert reason in answer.reason


@given(
    watts=st.lists(st.floats(1, 1000), min_size=60, max_size=60),
    start_s=st.floats(102, 103),
    length_s=st.floats(5, 50),
)
def test_polled_energy_lies_between_the_extremes_of_power(watts, start_s, length_s):
    powers = [((100 + i) * S, w) for i, w in enumerate(watts)]
    energy = from_powers(powers, region(start_s, start_s + length_s), "poll")
    slack = 1e-6 * length_s * 1000
    assert min(watts) * length_s - slack <= energy.energy_j <= max(watts) * length_s + slack
    assert energy.rel_err > 0.05


@given(st.floats(1, 1000), st.integers(1, 20), st.floats(5, 30))
def test_steady_power_is_integrated_exactly(power_w, polls_per_s, length_s):
    powers = [(i * S // polls_per_s, power_w) for i in range(100 * polls_per_s)]
    energy = from_powers(powers, region(10, 10 + length_s), "poll")
    assert energy.energy_j == pytest.approx(power_w * length_s)


class TestHistory:
    def test_counter_is_preferred_to_polls(self):
        history = WatchedReadings()
        history.counter.extend(readings((10, 0.0), (15, 500.0)))
        history.powers.extend((t * S, 300.0) for t in range(9, 17))
        assert window_energy(history, region(10, 15)).method == "counter"
        history.counter.clear()
        assert window_energy(history, region(10, 15)).method == "poll"

    def test_polls_are_used_after_a_counter_reset(self):
        history = WatchedReadings()
        history.counter.extend(readings((10, 900.0), (15, 100.0)))
        history.powers.extend((t * S, 300.0) for t in range(9, 17))
        energy = window_energy(history, region(10, 15))
        assert (energy.method, energy.energy_j) == ("poll", pytest.approx(1500))

    def test_buffered_samples_are_preferred_to_polls(self):
        history = WatchedReadings()
        history.powers.extend((t * S, 300.0) for t in range(9, 17))
        history.buffered.extend((t * S // 50, 310.0) for t in range(9 * 50, 17 * 50))
        energy = window_energy(history, region(10, 15))
        assert (energy.method, energy.energy_j) == ("samples", pytest.approx(1550))
        assert energy.rel_err == pytest.approx(0.05 + 0.02 / 5)
        history.counter.extend(readings((10, 0.0), (15, 500.0)))
        assert window_energy(history, region(10, 15)).method == "counter"

    def test_counter_that_disagrees_with_power_is_suspect_and_less_certain(self):
        history = WatchedReadings()
        history.counter.extend(readings((10, 0.0), (15, 500.0)))
        before = window_energy(history, region(10, 15))
        history.disagreement, history.suspect = 0.04, False
        assert window_energy(history, region(10, 15)).rel_err == before.rel_err
        history.disagreement, history.suspect = 0.25, True
        after = window_energy(history, region(10, 15))
        assert (before.suspect, after.suspect) == (None, True)
        assert after.rel_err == pytest.approx(before.rel_err + 0.25)

    def test_absent_energy_has_both_reasons(self):
        history = WatchedReadings()
        history.counter.extend(readings((3, 900.0)))
        answer = window_energy(history, region(10, 15))
        assert answer == Absent(
            "the energy counter was not read in the window; power was polled 0 times in the window"
        )

    def test_window_under_five_seconds_has_no_energy(self):
        history = WatchedReadings()
        history.counter.extend(readings((10, 0.0), (14.99, 500.0)))
        answer = window_energy(history, region(10, 14.99))
        assert answer == Absent("the window lasted 4.99 s, and needs 5")


class TestIdlePower:
    def test_idle_power_is_unknown_before_ten_samples(self):
        idle = IdlePower()
        for _ in range(9):
            idle.add(50.0)
        assert idle.value_w() is None
        idle.add(50.0)
        assert idle.value_w() == 50.0

    def test_idle_power_is_the_tenth_percentile(self):
        idle = IdlePower()
        for watts in [*range(200, 100, -10), *[60.0] * 20]:
            idle.add(watts)
        assert idle.value_w() == 60.0

    def test_idle_power_follows_the_last_ten_minutes(self):
        idle = IdlePower()
        for watts in [*[50.0] * 600, *[70.0] * 600]:
            idle.add(watts)
        assert idle.value_w() == 70.0
