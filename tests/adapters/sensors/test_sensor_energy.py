"""Energy of a window from counters and powers, and idle power: arithmetic by hand and its bounds."""

import json
import math

import pytest
from costprobe.adapters.sensors.energy import IdlePower, mean_rel_err
from costprobe.adapters.sensors.messages import Absent, EnergyReading, WatchedReadings
from costprobe.core.records import Energy
from costprobe.devices.use import SteadyWindow, from_counter, from_powers, window_energy
from record.record_files import check_outcomes

S = 10**9


def region(start_s, end_s, lead_s=1.0):
    edges = (start_s, end_s, start_s - lead_s, end_s + lead_s)
    return SteadyWindow(*(int(edge * S) for edge in edges))


def readings(*pairs, method="counter"):
    return [EnergyReading(int(t_s * S), energy_j, method) for t_s, energy_j in pairs]


def powers(times_s, watts=300.0):
    return [(int(t_s * S), watts) for t_s in times_s]


def test_counter_energy_is_that_of_the_outermost_steady_readings():
    # 300 W between 9.8 s and 15.8 s, over a region of 5 s.
    energy = from_counter(readings((9.8, 1000.0), (15.8, 2800.0)), region(10, 15))
    assert energy == Energy(pytest.approx(1500), "counter", pytest.approx(0.1 / 6 + 0.05))
    changed_before, rising, changed_after = (8.9, 0.0), (9.1, 1000.0), (16.1, 90000.0)
    steady = [(9.9, 1240.0), (12.0, 1870.0), (15.2, 2830.0), (15.9, 3040.0)]
    found = readings(changed_before, rising, *steady, changed_after)
    assert from_counter(found, region(10, 15)).energy_j == pytest.approx((3040 - 1240) / 6 * 5)
    for method, rel_err in (("rapl", 0.001 / 5 + 0.05), ("modelled", 0.01 / 5 + 0.5)):
        energy = from_counter(readings((10, 5.0), (15, 505.0), method=method), region(10, 15))
        assert (energy.method, energy.rel_err) == (method, pytest.approx(rel_err))


def test_energy_of_powers_by_hand():
    # 100 W, rising by 10 W a second from 10 s on; what was read within 1.1 s of the load's
    # beginning at 9.5 s may hold what was before it.
    rising = [(t * S, 100.0 + 10 * max(0, t - 10)) for t in range(5, 20)]
    noise = 2.776 * math.sqrt(250) / math.sqrt(5) / 135
    assert mean_rel_err([110, 120, 130, 140, 150, 160]) == pytest.approx(noise)
    for method in ("poll", "samples"):
        energy = from_powers(rising, region(10.5, 15.5), method)
        assert (energy.method, energy.energy_j) == (method, pytest.approx(5 * 135))
        assert energy.rel_err == pytest.approx(1 / 5 + 0.05 + noise)
    # The sensor shows the mean of its last second: too little until 10.5 s.
    lagging = [(int(t * S / 10), 200.0 * min(1, max(0, t - 95) / 10)) for t in range(90, 160)]
    energy = from_powers(lagging, region(10, 15, lead_s=0.5), "poll")
    assert energy.energy_j == pytest.approx(1000)
    # Readings after the window count while the load lasts.
    lasting = [(8 * S, 20.0), *powers(range(11, 17), 200.0), (17 * S, 20.0)]
    assert from_powers(lasting, region(9.5, 15.5), "poll").energy_j == pytest.approx(1200)


def test_unusable_readings_give_the_reason():
    """The record has the reason for readings of a counter or of powers between 10 and 15 s."""

    def reason(text):
        method, pairs = json.loads(text)
        if method == "counter":
            return from_counter(readings(*pairs), region(10, 15)).reason
        watts = [(int(t_s * S), power_w) for t_s, power_w in pairs]
        return from_powers(watts, region(10, 15), method).reason

    check_outcomes("unusable_energies.json", reason)


def test_most_accurate_method_that_has_readings_counts():
    history = WatchedReadings()
    history.powers.extend(powers(range(9, 17)))
    history.idle_power_w = 60.0
    found = [window_energy(history, region(10, 15))]
    history.buffered.extend(powers((t / 50 for t in range(9 * 50, 17 * 50)), 310.0))
    history.counter.extend(readings((10, 900.0), (15, 100.0)))  # was reset
    found.append(window_energy(history, region(10, 15)))
    history.counter.clear()
    history.counter.extend(readings((10, 0.0), (15, 500.0)))
    found.append(window_energy(history, region(10, 15)))
    assert [(energy.method, energy.energy_j) for energy in found] == [
        ("poll", pytest.approx(1500)),
        ("samples", pytest.approx(1550)),
        ("counter", pytest.approx(500)),
    ]
    assert {energy.idle_power_w for energy in found} == {60.0}
    # A counter that disagrees with the power is suspect, and less certain.
    history.disagreement, history.suspect = 0.04, False
    assert window_energy(history, region(10, 15)).rel_err == found[2].rel_err
    history.disagreement, history.suspect = 0.25, True
    after = window_energy(history, region(10, 15))
    assert (found[2].suspect, after.suspect) == (None, True)
    assert after.rel_err == pytest.approx(found[2].rel_err + 0.25)
    short = window_energy(history, region(10, 14.99))
    assert short == Absent("the window lasted 4.99 s, and needs 5")
    absent = WatchedReadings()
    absent.counter.extend(readings((3, 900.0)))
    assert window_energy(absent, region(10, 15)) == Absent(
        "the energy counter was not read in the window; power was polled 0 times in the window"
    )


def test_idle_power_is_the_tenth_percentile_of_the_last_ten_minutes():
    for added, expected in (
        ([50.0] * 9, None),
        ([50.0] * 10, 50.0),
        ([*range(200, 100, -10), *[60.0] * 20], 60.0),
        ([*[50.0] * 600, *[70.0] * 600], 70.0),
    ):
        idle = IdlePower()
        idle.add(*added)
        assert idle.value_w() == expected
