"""The damped trend: exact cases, gaps and outliers, and the coverage of its interval."""

import math
import random
import statistics

import pytest
from costprobe.savings.growth import LEAST_DAYS, damped_forecast

WEEK = [1.2, 1.2, 1.2, 1.2, 1.2, 0.5, 0.5]


def test_constant_load_with_a_weekly_pattern_continues():
    found = damped_forecast(WEEK * 5, 14)
    assert [day.expected for day in found] == pytest.approx(WEEK * 2)
    idle = damped_forecast([5.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0.0] * 5, 7)
    assert [day.expected for day in idle] == pytest.approx([5.0] * 5 + [0.0] * 2)


def test_gaps_and_a_burst_do_not_bend_the_trend():
    whole = [100.0 * math.exp(random.Random(day).gauss(0, 0.05)) for day in range(60)]
    gaps = [None if day % 9 == 4 else load for day, load in enumerate(whole)]
    burst = [*whole[:-3], whole[-3] * 20, *whole[-2:]]
    expected = statistics.fmean(day.expected for day in damped_forecast(whole, 30))
    for loads in (gaps, burst):
        found = statistics.fmean(day.expected for day in damped_forecast(loads, 30))
        assert found == pytest.approx(expected, rel=0.1)


def test_short_or_empty_history():
    assert damped_forecast([1.0] * (LEAST_DAYS - 1) + [None] * 10, 5) == []
    assert damped_forecast([], 5) == []
    (day,) = damped_forecast([0.0] * 30, 1)
    assert day == (0.0, 0.0, 0.0)


def test_interval_contains_seeded_loads():
    """Of 80 % that it states, over loads that grow, wander, burst, and have unknown days."""
    rng, inside = random.Random(5), []
    for _ in range(48):
        share, wander, burst = rng.uniform(-0.003, 0.01), rng.choice((0, 0.015)), rng.random() < 0.3
        level, loads = 1000.0, []
        for day in range(28 + 30):
            level *= math.exp(share + rng.gauss(0, wander))
            tall = 3 if burst and rng.random() < 0.03 else 1
            loads.append(level * WEEK[day % 7] * tall * math.exp(rng.gauss(0, 0.1)))
        known = [None if day % 11 == 4 else load for day, load in enumerate(loads[:28])]
        last = zip(damped_forecast(known, 30)[-7:], loads[-7:], strict=True)
        inside += [day.low <= load <= day.high for day, load in last]
    assert 0.75 <= statistics.fmean(inside) <= 0.97
