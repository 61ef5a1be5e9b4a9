"""The seasonal forecast: seasons, gaps, steps and the coverage of its interval."""

import contextlib
import math
import random

import pytest
from costprobe.core.periods import HOUR_NS
from costprobe.spend.forecast import HourRate, UnfitError, harmonic_forecast, remaining_hours

MONDAY = 1_767_571_200_000_000_000  # 5 January 2026, 00:00 UTC


@pytest.fixture(autouse=True)
def _statsmodels():
    """An optional package, absent in the environments of scripts/other_pythons."""
    pytest.importorskip("statsmodels")


def hours(values):
    return [HourRate(MONDAY + at * HOUR_NS, value) for at, value in enumerate(values)]


def rest(count, after):
    return remaining_hours(MONDAY + after * HOUR_NS, MONDAY + (after + count) * HOUR_NS)


def seasonal(rng, weeks, noise=0.15):
    away, values = 0.0, []
    for hour in range(weeks * 168):
        away = 0.5 * away + math.sqrt(0.75) * rng.gauss(0, noise)
        day = 1 + 0.4 * math.sin(2 * math.pi * (hour % 24 - 8) / 24)
        values.append(10 * day * (0.6 if hour % 168 >= 120 else 1.0) * math.exp(away))
    return values


def test_constant_cost_continues_with_a_narrow_interval():
    found = harmonic_forecast(hours([2.0] * 400), rest(100, 400), "UTC")
    assert (found.expected, found.low, found.high) == pytest.approx((200, 200, 200), rel=1e-4)


def test_seasons_repeat():
    values = seasonal(random.Random(1), 5, noise=1e-6)
    found = harmonic_forecast(hours(values[: 4 * 168]), rest(168, 4 * 168), "UTC")
    assert found.expected == pytest.approx(sum(values[4 * 168 :]), rel=0.01)


def test_missing_hours_are_filled_only_for_the_fit():
    values = seasonal(random.Random(2), 5)
    known = [
        hour for at, hour in enumerate(hours(values[: 4 * 168])) if at % 168 not in range(50, 70)
    ]
    found = harmonic_forecast(known, rest(168, 4 * 168), "UTC")
    assert found.hours == len(known)
    assert found.expected == pytest.approx(sum(values[4 * 168 :]), rel=0.1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "it needs 336 h of cost data; there are 0"),
        ([1.0] * 335, "there are 335"),
        (
            [10.0 + 0.1 * math.sin(at) for at in range(800)] + [20.0] * 100,
            "level of the costs changed",
        ),
    ],
)
def test_unreliable_history_is_rejected(values, words):
    with pytest.raises(UnfitError, match=words):
        harmonic_forecast(hours(values), rest(10, len(values)), "UTC")


def test_history_with_many_gaps_is_rejected():
    known = [hour for at, hour in enumerate(hours([1.0] * 500)) if at % 4]
    with pytest.raises(UnfitError, match="124 of 499 h are missing"):
        harmonic_forecast(known, rest(10, 500), "UTC")


def test_interval_coverage_is_near_its_nominal_level():
    """Coverage at a nominal 80 % over 40 seeded series, without the rejected ones."""
    made = held = 0
    for seed in range(40):
        values = seasonal(random.Random(seed), 6)
        with contextlib.suppress(UnfitError):
            found = harmonic_forecast(hours(values[: 4 * 168]), rest(240, 4 * 168), "UTC")
            made += 1
            held += found.low <= sum(values[4 * 168 : 4 * 168 + 240]) <= found.high
    assert made >= 34
    assert 0.6 <= held / made <= 0.98
