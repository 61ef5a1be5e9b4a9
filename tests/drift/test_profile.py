"""Daily profile, decision boundaries and the memory of past levels."""

import math
import random

import pytest
from costprobe.core.statistics import decision_interval, noise_of
from costprobe.drift.normal import (
    DAY_S,
    HOUR_S,
    DayProfile,
    WeekMemory,
    slot_of,
)


def learnt(pattern, noise, days=6):
    rng = random.Random(4)
    profile = DayProfile(300)
    for slot in range(288):
        profile.values[slot] = pattern(slot / 288) + rng.gauss(0, noise)
    profile.settle(0.0, noise, 0.0)
    for _ in range(days):
        for slot in range(288):
            value, usual = pattern(slot / 288) + rng.gauss(0, noise), profile.values[slot]
            profile.product += value * usual
            profile.square += usual * usual
            profile.values[slot] += profile.gain * (value - usual)
        profile.end_day()
    return profile


def test_daily_pattern_is_learned():
    profile = learnt(lambda t: 0.05 * math.sin(2 * math.pi * t), 0.01)
    assert profile.weight > 0.9
    assert profile.values[72] == pytest.approx(0.05, abs=0.015)


def test_noise_is_not_learned_as_a_pattern():
    assert learnt(lambda _: 0.0, 0.01).weight == 0


@pytest.mark.parametrize(("interval_s", "slots"), [(60, 288), (300, 288), (900, 96), (7200, 24)])
def test_slot_length_is_the_sampling_interval(interval_s, slots):
    assert len(DayProfile(slot_of(interval_s)).values) == slots


def test_empty_slots_are_interpolated_from_their_neighbours():
    profile = DayProfile(3600)
    for hour in range(24):
        profile.values[hour] = math.nan if hour in {3, 4} else float(hour)
    profile.settle(0.0, 1e-9, 0.0)
    assert not any(math.isnan(value) for value in profile.values)


def test_noise_is_estimated_from_differences():
    rng = random.Random(8)
    for phi in (0.0, 0.6):
        x, values = 0.0, []
        for _ in range(5000):
            x = phi * x + rng.gauss(0, math.sqrt(1 - phi * phi) * 0.01)
            values.append(x)
        sigma, found = noise_of(values)
        assert found == pytest.approx(phi, abs=0.12)
        assert sigma == pytest.approx(0.01, rel=0.15)


def remembered(value_of):
    week = WeekMemory()
    for hour in range(10 * 24):
        week.end_hour(hour)
        week.total, week.count = value_of(hour), 1
    week.end_hour(10 * 24)
    return week


def test_shift_of_a_week_ago_is_in_the_memory():
    week = remembered(lambda hour: -0.05 if 50 <= hour < 98 else 0.0)
    assert week.shift_before((50 + 168) * HOUR_S, 168) == pytest.approx(-0.05)
    assert week.shift_before((60 + 168) * HOUR_S, 168) == pytest.approx(0)
    assert week.shift_before(100 * DAY_S, 24) is None


def test_wander_is_the_variance_beyond_the_noise():
    rng = random.Random(3)
    still = remembered(lambda _: rng.gauss(0, 0.01 / math.sqrt(12)))
    moving = remembered(lambda hour: 0.014 * math.sin(hour / 24))
    assert still.wander(0.01 / math.sqrt(12), 0) == 0
    assert moving.wander(0.001, 0) == pytest.approx(0.014, rel=0.3)


@pytest.mark.parametrize("reference", [0.5, 1.0])
def test_boundary_has_the_configured_false_alarm_rate(reference):
    rng, wanted, crossed = random.Random(1), 500, []
    boundary = decision_interval(reference, wanted)
    for _ in range(200):
        total, count = 0.0, 0
        while total <= boundary:
            total = max(0.0, total + rng.gauss(0, 1) - reference)
            count += 1
        crossed.append(count)
    assert sum(crossed) / len(crossed) == pytest.approx(wanted, rel=0.3)


def test_boundary_increases_with_run_length_and_decreases_with_reference_length():
    assert decision_interval(0.5, 1e6) > decision_interval(0.5, 1e4)
    assert decision_interval(0.5, 1e6) > decision_interval(1.0, 1e6)
