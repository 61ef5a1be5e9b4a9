"""Daily profile, decision boundaries and the memory of past levels."""

import math
import random

import pytest
from costprobe.drift.normal import (
    DAY_S,
    HOUR_S,
    WeekMemory,
)


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
