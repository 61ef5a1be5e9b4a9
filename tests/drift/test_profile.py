"""Daily profile, decision boundaries and the memory of past levels."""

import math
import random

import pytest
from costprobe.core.statistics import decision_interval, noise_of
from costprobe.drift.normal import (
    DAY_S,
    HOUR_S,
    WeekMemory,
)


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
