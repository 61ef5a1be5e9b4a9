"""The robust forecast: hand-computed cases, its invariants, and the coverage of its interval."""

import math
import random

import pytest
from costprobe.core.periods import HOUR_NS
from costprobe.spend.forecast import (
    MIN_HOURS,
    HourRate,
    RemainingHour,
    remaining_hours,
    robust_forecast,
)
from hypothesis import given
from hypothesis import strategies as st

MONDAY = 1_767_571_200_000_000_000  # 5 January 2026, 00:00 UTC


def hours(values, start_ns=MONDAY):
    return [HourRate(start_ns + at * HOUR_NS, value) for at, value in enumerate(values)]


def rest(count, after):
    return remaining_hours(MONDAY + after * HOUR_NS, MONDAY + (after + count) * HOUR_NS)


def test_rest_of_a_period_starts_with_the_rest_of_the_hour():
    quarter_past = MONDAY + HOUR_NS // 4
    found = remaining_hours(quarter_past, MONDAY + 3 * HOUR_NS)
    assert [hour.share for hour in found] == [0.75, 1.0, 1.0]
    assert [hour.start_ns for hour in found] == [
        quarter_past,
        MONDAY + HOUR_NS,
        MONDAY + 2 * HOUR_NS,
    ]
    half_hours = remaining_hours(MONDAY, MONDAY + HOUR_NS, phase_ns=HOUR_NS // 2)
    assert [hour.share for hour in half_hours] == [0.5, 0.5]
    assert remaining_hours(MONDAY, MONDAY) == []


def test_nights_and_weekends_repeat():
    """Four weeks in which an hour costs 3 from 8 to 20 on workdays, otherwise 1."""
    week = [3.0 if day < 5 and 8 <= hour < 20 else 1.0 for day in range(7) for hour in range(24)]
    found = robust_forecast(hours(week * 4), rest(168, 4 * 168), "UTC")
    assert found.expected == pytest.approx(5 * 12 * 3 + 5 * 12 + 2 * 24)
    assert found.method == "medians by the hour of the week"
    saturday = 4 * 168 + 5 * 24
    to_saturday = robust_forecast(hours((week * 5)[:saturday]), rest(24, saturday), "UTC")
    assert to_saturday.expected == pytest.approx(24)


def test_hours_follow_local_time_over_a_daylight_saving_change():
    """Berlin, with higher cost from 8 to 20, on the Sunday on which clocks are set forward."""
    start_ns = MONDAY + 7 * 7 * 24 * HOUR_NS  # 23 February 2026, 00:00 UTC, 01:00 in Berlin
    values = [3.0 if 8 <= (hour + 1) % 24 < 20 else 1.0 for hour in range(4 * 168 + 5 * 24)]
    begin_ns = start_ns + len(values) * HOUR_NS  # Saturday, 28 March, 01:00 in Berlin
    sunday_ns = begin_ns + 23 * HOUR_NS
    of_sunday = remaining_hours(sunday_ns, sunday_ns + 23 * HOUR_NS)
    found = robust_forecast(hours(values, start_ns), of_sunday, "Europe/Berlin")
    assert found.expected == pytest.approx(12 * 3 + 11 * 1)


@given(
    st.lists(st.floats(0, 1000), min_size=MIN_HOURS, max_size=400),
    st.floats(0.01, 1.0),
    st.integers(1, 800),
    st.floats(0.001, 1000),
)
def test_forecast_is_ordered_non_negative_and_scales_with_the_unit(values, share, count, unit):
    to_come = [RemainingHour(MONDAY + (len(values) + at) * HOUR_NS, share) for at in range(count)]
    found = robust_forecast(hours(values), to_come, "UTC")
    assert 0 <= found.low <= found.expected <= found.high
    assert math.isfinite(found.high)
    scaled = robust_forecast(hours([value * unit for value in values]), to_come, "UTC")
    for ours, theirs in (
        (found.expected, scaled.expected),
        (found.high, scaled.high),
    ):
        assert theirs == pytest.approx(ours * unit, rel=1e-6, abs=1e-6 * unit)


def test_a_level_that_wanders_widens_the_interval_with_the_distance():
    """The level of a day is a first-order autoregression with a memory of three weeks."""
    held = {24: 0, 168: 0, 600: 0}
    for seed in range(40):
        rng, level, values = random.Random(seed), 0.0, []
        for hour in range(12 * 168):
            if hour % 24 == 0:
                level = 0.95 * level + rng.gauss(0, 0.08)
            values.append(math.exp(level + rng.gauss(0, 0.1)))
        now = 8 * 168
        for count in held:
            found = robust_forecast(hours(values[:now]), rest(count, now), "UTC")
            held[count] += found.low <= sum(values[now : now + count]) <= found.high
    assert all(26 <= inside <= 39 for inside in held.values()), held


def test_a_week_of_workdays_and_weekend_repeats():
    """The days of one week are compared with workdays or weekends, not with all days."""
    week = [3.0 if day < 5 and 8 <= hour < 20 else 1.0 for day in range(7) for hour in range(24)]
    found = robust_forecast(hours(week), rest(24, 168), "UTC")
    assert (found.low, found.expected, found.high) == pytest.approx((48, 48, 48))
    assert found.method == "medians by the hour of workdays and weekends"


def test_one_unusual_day_does_not_move_the_level_and_a_step_does():
    burst = robust_forecast(hours([2.0] * 240 + [40.0] * 24 + [2.0] * 48), rest(24, 312), "UTC")
    assert burst.expected == pytest.approx(48)
    for days in (3, 28):
        values = [2.0] * (56 - days) * 24 + [4.0] * days * 24
        step = robust_forecast(hours(values), rest(24, len(values)), "UTC")
        assert 84 < step.expected <= 96
