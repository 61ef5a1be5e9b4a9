"""In the first day of a series a persistent step is distinguished from a daily pattern."""

import random

from costprobe.drift.detector import Detector
from costprobe.drift.settings import DetectionConfig
from fakes.benches import START_S, Recipe, generate

SETTINGS = DetectionConfig().detector


def drifts_of(recipe, seed):
    """Hour of detection, hour of the start, and size in percent of each drift."""
    detector = Detector.new(SETTINGS)
    return [
        ((found.time_s - START_S) / 3600, (found.since_s - START_S) / 3600, found.change_pct)
        for time_s, value in generate(recipe, random.Random(seed)).points
        for found in detector.update(time_s, value)
        if found.kind == "drift"
    ]


def test_persistent_step_of_the_first_day_is_reported_once_with_its_start():
    wrong = []
    for hour, size, more in (
        (5, 0.05, {}),
        (12, 0.05, {}),
        (12, -0.08, {"phi": 0.4}),
        (12, 0.3, {}),
        (20, 0.1, {"outliers": 0.02}),
        (12, 0.1, {"daily": 0.05, "sigma": 0.006}),
        (16, 0.3, {"daily": 0.05, "shape": "office"}),
    ):
        recipe = Recipe(**{"days": 14, "sigma": 0.008, **more}, shift=size, shift_day=hour / 24)
        found = drifts_of(recipe, 3)
        is_right = len(found) == 1 and abs(found[0][1] - hour) < 0.3 and found[0][0] < 31
        if not is_right or abs(found[0][2] / 100 - size) > 0.015 + abs(size) / 4:
            wrong.append((hour, size, more, found))
    assert wrong == []


def test_excursion_of_the_first_day_is_not_learned_as_a_daily_pattern():
    recipe = Recipe(14, 0.008, shift=0.12, shift_day=10 / 24, returns_days=3 / 24)
    assert [drifts_of(recipe, seed) for seed in range(3)] == [[], [], []]


def test_step_of_an_hourly_series_is_reported_at_the_end_of_its_first_days():
    detector, rng, found = Detector.new(SETTINGS), random.Random(1), []
    for hour in range(9 * 24):
        value = rng.lognormvariate(0, 0.008) * (1.05 if hour >= 12 else 1)
        found += detector.update(START_S + 3600 * hour, value)
    (drift,) = found
    assert abs((drift.since_s - START_S) / 3600 - 12) <= 1


def test_large_daily_pattern_in_noise_is_no_step_of_the_first_day():
    found = [
        drifts_of(Recipe(1.1, sigma, daily=daily), seed)
        for sigma in (0.01, 0.1)
        for daily in (0.15, 0.25)
        for seed in range(3)
    ]
    assert not any(found), found
