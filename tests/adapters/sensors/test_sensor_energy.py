"""Energy of a window from counters and powers, and idle power: arithmetic by hand and its bounds."""

import json
import math

import pytest
from costprobe.adapters.sensors.energy import IdlePower, mean_rel_err
from costprobe.adapters.sensors.messages import Absent, EnergyReading, WatchedReadings
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


def test_energy_of_a_window_from_a_counter_or_from_powers_by_hand():
    """The record has the energy of readings, with its relative error, or the reason why there is none."""

    def energy(text):
        _, method, pairs, window = json.loads(text)
        if method in ("poll", "samples"):
            watts = [(int(t_s * S), power_w) for t_s, power_w in pairs]
            found = from_powers(watts, region(*window), method)
        else:
            found = from_counter(readings(*pairs, method=method), region(*window))
        return getattr(found, "reason", None) or [found.energy_j, found.method, found.rel_err]

    check_outcomes("window_energies.json", energy)
    noise = 2.776 * math.sqrt(250) / math.sqrt(5) / 135
    assert mean_rel_err([110, 120, 130, 140, 150, 160]) == pytest.approx(noise)


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
