"""Shifts of what a unit of work takes, beside a load that leaves its known range."""

import math
import random

import pytest
from costprobe.drift.load_model import EffortCurve, LoadSample
from costprobe.drift.production import EffortSeries
from costprobe.drift.settings import DetectionConfig

START_S, BLOCK_S = 1_772_409_600, 1800


def shifts_of(blocks, effort_of, load_of):
    """Feed a series of a server that batches; return (block, start in blocks, size) of each shift."""
    rng, series, found = (
        random.Random(1),
        EffortSeries(DetectionConfig().serving_detector, -0.2),
        [],
    )
    for index in range(blocks):
        load = load_of(index)
        effort = -0.3 * load + effort_of(index) + rng.gauss(0, 0.004)
        sample = LoadSample(START_S + index * BLOCK_S, load, (0.0, 0.0), effort)
        for since_s, change in series.update(sample):
            found.append((index, (since_s - START_S) / BLOCK_S, change))
    return found


def daily(index):
    return -7 + math.sin(index / 48 * 2 * math.pi)


def test_load_beyond_the_known_range_does_not_revert_a_shift():
    found = shifts_of(
        440,
        lambda index: 0.1 if index >= 330 else 0.0,
        lambda index: daily(index) - (0.8 if index >= 345 else 0.0),
    )
    assert len(found) == 1, found
    assert found[0][2] == pytest.approx(0.1, abs=0.02)


def test_shift_beyond_the_known_range_has_its_expected_size():
    """It is detected by the least that it may be, which is smaller."""
    found = shifts_of(
        350,
        lambda index: 0.15 if index >= 324 else 0.0,
        lambda index: daily(index) - (0.15 if index >= 320 else 0.0),
    )
    assert found[0][2] == pytest.approx(0.15, abs=0.04)
    assert found[0][1] == pytest.approx(324, abs=2)


def test_shift_at_a_load_that_was_never_seen_is_found_within_six_hours():
    """Since hours at that load; in the hours in which it is left; growing away."""
    loads = {
        "since hours": lambda index: daily(index) - (1.2 if index >= 325 else 0.0),
        "left since": lambda index: daily(index) - max(0.0, 0.05 * (index - 336)),
        "far": lambda index: daily(index) + (1.3 if index >= 320 else 0.0),
    }
    late = {}
    for name, load_of in loads.items():
        found = shifts_of(350, lambda index: 0.095 * (index >= 338), load_of)
        shift = sum(size for _, _, size in found)
        if not found or found[0][0] > 338 + 12 or shift != pytest.approx(0.095, abs=0.03):
            late[name] = found
    assert not late


def test_curve_that_bends_at_an_unknown_load_is_no_shift():
    """The server batches more, or less, at a load to which it rises at once or within hours."""
    found = {}
    for bend, width in ((-0.4, 1), (0.3, 8)):

        def load_of(index, width=width):
            return daily(index) + 0.8 * min(1.0, max(0, index - 320) / width)

        def effort_of(index, bend=bend, load_of=load_of):
            return bend * max(0.0, load_of(index) + 6)

        shifts = shifts_of(370, effort_of, load_of)
        if shifts:
            found[bend, width] = shifts
    assert not found


def energy_shifts(power_of):
    """Feed time and energy of a service with idle power whose load falls to a third; return energy's shifts."""
    rng, settings = random.Random(2), DetectionConfig().serving_detector
    time = EffortSeries(settings, -0.2)
    energy, found = EffortSeries(settings, -0.4, time), []
    for index in range(380):
        # Office hours, and a holiday.
        load = (-6.0 if 16 <= index % 48 < 36 else -8.2) - (1.1 if index >= 330 else 0.0)
        load += rng.gauss(0, 0.05)
        busy_s = math.exp(5.5 + rng.gauss(0, 0.004))
        energy_j = (90 * (math.exp(-load) - busy_s) + 400 * busy_s) * power_of(index)
        at_s = START_S + index * BLOCK_S
        time.update(LoadSample(at_s, load, (0.0, 0.0), math.log(busy_s)))
        sample = LoadSample(at_s, load, (0.0, 0.0), math.log(energy_j) + rng.gauss(0, 0.004))
        found += [(index, change) for _, change in energy.update(sample)]
    return found


def test_idle_power_at_a_load_that_was_never_seen_is_no_shift_of_energy():
    assert not energy_shifts(lambda _: 1.0)
    found = energy_shifts(lambda index: 1.12 if index >= 350 else 1.0)
    assert 350 < found[0][0] < 362
    assert sum(size for _, size in found) == pytest.approx(math.log(1.12), abs=0.02)


def test_curve_of_a_server_that_saturates_is_right_at_its_highest_loads():
    """It bends most there, and few blocks show it: most are at night."""
    loads = [-3 + 2.9 * (index / 199) ** 3 for index in range(200)]
    efforts = [math.log((1 - math.exp(-1.5 * math.exp(load))) / math.exp(load)) for load in loads]
    curve = EffortCurve((loads[0], loads[-1]), -0.2)
    none = [0.0] * 200
    curve.fit(loads, (none, none), efforts, [1.0] * 200, 1e-4)
    assert curve.value(loads[-1], (0.0, 0.0)) == pytest.approx(efforts[-1], abs=0.015)


def test_one_block_off_the_curve_before_an_unknown_load_is_no_shift():
    """In it the load jumped, so that its mean effort is that of no load."""

    def load_of(index):
        return daily(index) + (0.8 if index > 349 else 0.0)

    found = shifts_of(
        370,
        lambda index: -0.12 * max(0.0, load_of(index) + 6) - 0.1 * (index == 349),
        load_of,
    )
    assert not found


def test_second_part_of_a_shift_is_found_although_it_continues_a_ramp():
    """The monitor adds up the parts, each of which may be too small to be reported."""
    found = shifts_of(
        500,
        lambda index: 0.05 * (index >= 330) + 0.08 * min(1.0, max(0.0, (index - 335) / 130)),
        daily,
    )
    assert len(found) > 1, found
    assert 0.08 < sum(size for _, _, size in found) < 0.14


def test_small_shift_that_reverts_is_taken_back():
    found = shifts_of(380, lambda index: 0.045 * (330 <= index < 360), daily)
    assert len(found) > 1, found
    assert sum(size for _, _, size in found) == pytest.approx(0, abs=0.01)


def test_shift_is_as_large_as_its_level_becomes():
    """Its first blocks are smaller: it came within one of them, or is there at some devices only."""
    first, sizes = (0.04, 0.055, 0.07, 0.085), {}
    for seed in (7, 8, 9, 11):
        rng, series = random.Random(seed), EffortSeries(DetectionConfig().serving_detector, -0.2)
        sizes[seed] = 0.0
        for index in range(350):
            part = 0.0 if index < 330 else first[min(3, index - 330)]
            effort = -0.3 * daily(index) + part + rng.gauss(0, 0.01)
            sample = LoadSample(START_S + index * BLOCK_S, daily(index), (0.0, 0.0), effort)
            sizes[seed] += sum(change for _, change in series.update(sample))
    assert all(0.07 < size < 0.1 for size in sizes.values()), sizes


def mix_shifts(effort_of):
    """Feed a service with another kind of requests from block 320 on, which takes longer; return the shifts."""
    rng, found = random.Random(3), []
    series = EffortSeries(DetectionConfig().serving_detector, -0.2)
    for index in range(600):
        launched = index >= 320
        mix = rng.gauss(-1 + 0.3 * launched, 0.05), rng.gauss(-7 - 0.2 * launched, 0.03)
        load = daily(index) + 0.5 * launched
        effort = -0.3 * load + 0.1 * launched + effort_of(index) + rng.gauss(0, 0.004)
        at_s = START_S + index * BLOCK_S
        found += [
            (index, change) for _, change in series.update(LoadSample(at_s, load, mix, effort))
        ]
    return found


def test_requests_that_were_never_seen_are_no_shift_but_do_not_hide_one():
    """Before they are learned as well as afterwards."""
    assert not mix_shifts(lambda _: 0.0)
    for at in (326, 500):
        found = mix_shifts(lambda index, at=at: 0.1 * (index >= at))
        assert at < found[0][0] < at + 12
        assert sum(size for _, size in found) == pytest.approx(0.1, abs=0.03)


def launch_shifts(effort_of, loads):
    """Feed a service with other requests from block 336 on, at loads of their own; return the shifts."""
    rng, found = random.Random(4), []
    series = EffortSeries(DetectionConfig().serving_detector, -0.2)
    for index in range(420):
        launched = index >= 336
        mix = rng.gauss(-1 - 0.8 * launched, 0.05), rng.gauss(-7 - 0.6 * launched, 0.03)
        load = (loads if launched else daily)(index)
        effort = effort_of(load, mix, launched) + rng.gauss(0, 0.004)
        sample = LoadSample(START_S + index * BLOCK_S, load, mix, effort)
        found += [(index, change) for _, change in series.update(sample)]
    return found


def test_requests_that_were_seen_at_other_loads_only_are_no_shift():
    """In their first night, or at the daily peak, what they take is unknown although it is known by day."""

    def effort_of(load, _mix, launched):
        return -0.3 * load + 0.06 * launched * (load + 8)

    assert not launch_shifts(effort_of, daily)


def test_load_and_requests_that_changed_together_are_told_apart_by_the_requests_before():
    """Otherwise the curve bends where they came, and is wrong at each other load."""

    def effort_of(load, mix, _launched):
        return -0.1 * load + 0.2 * mix[0]

    found = launch_shifts(effort_of, lambda index: -5.7 + 0.1 * math.sin(index / 48 * 2 * math.pi))
    assert not found
