"""False-alarm rate and detection delay of the detector on seeded streams of every kind."""

import json
import math
import random
from dataclasses import replace
from statistics import median

import pytest
from costprobe.core.clock_step import ClockStep
from costprobe.core.records import NS_PER_S
from costprobe.drift.detector import Detector
from costprobe.drift.monitor import shift_instants
from costprobe.drift.normal import DAY_S
from costprobe.drift.settings import DetectionConfig
from fakes.benches import (
    START_S,
    STEP_S,
    VALUES_PER_DAY,
    Recipe,
    generate,
    shifted_recipe,
    stationary_recipes,
)
from fakes.sizes import sized
from pydantic import TypeAdapter

SETTINGS = DetectionConfig().detector
STATES = TypeAdapter(Detector)
APART = ("weekends", "weekends, daily", "wander")


def findings_by_kind(stream, detector=None):
    """Drifts and anomalies as (index, finding)."""
    detector = detector or Detector.new(SETTINGS)
    drifts, anomalies = [], []
    for index, (time_s, value) in enumerate(stream.points):
        for finding in detector.update(time_s, value):
            (drifts if finding.kind == "drift" else anomalies).append((index, finding))
    return drifts, anomalies


def steady(count, value=1.0, start=0):
    return [(START_S + (start + index) * STEP_S, value) for index in range(count)]


def step(by_s, now_s):
    return ClockStep(round(by_s * NS_PER_S), round(now_s * NS_PER_S))


def state_of(detector):
    return STATES.dump_python(detector, mode="json")


def restored(state):
    return STATES.validate_python(json.loads(json.dumps(state)))


def delay(recipe, seed):
    stream = generate(recipe, random.Random(seed))
    drifts, _ = findings_by_kind(stream)
    later = [index for index, _ in drifts if index >= stream.shift_at]
    return later[0] - stream.shift_at + 1 if later else math.inf


def test_stationary_streams_have_a_low_false_alarm_rate():
    drifts = dict.fromkeys(("all", *APART), 0)
    months = 0
    seeds = sized(1, 20)
    for seed in range(seeds):
        rng = random.Random(4000 + seed)
        for family, recipe in stationary_recipes(rng, days=40):
            found, _ = findings_by_kind(generate(recipe, rng))
            drifts[family if family in APART else "all"] += len(found)
            months += family not in APART and 40 / 30
    assert drifts["all"] / months <= 0.1
    for family in APART:
        assert drifts[family] / (seeds * 40 / 30) < 1.5, family


@pytest.mark.parametrize(
    ("kind", "values"),
    [("2 %", 14), ("5 %", 5), ("10 %", 3), ("30 %", 3), ("ramp 3 d", 140), ("ramp 14 d", 520)],
)
def test_persistent_shift_is_detected_within_the_delay_limit(kind, values):
    rng = random.Random(77)
    delays = [delay(shifted_recipe(rng, kind), seed) for seed in range(9)]
    assert median(delays) <= values
    assert max(delays) < math.inf


def test_only_outliers_are_anomalies():
    hits = spikes = found = 0
    for seed in range(3):
        stream = generate(Recipe(20, 0.01, 0.4, outliers=0.02, daily=0.05), random.Random(seed))
        drifts, anomalies = findings_by_kind(stream)
        assert drifts == []
        indices = {index for index, _ in anomalies}
        wanted = {index for index in stream.spikes if index >= 36}
        hits, spikes, found = (
            hits + len(indices & wanted),
            spikes + len(wanted),
            found + len(indices),
        )
    assert hits / spikes >= 0.99
    assert hits / found >= 0.98


def test_invalid_values_old_ones_and_those_of_the_warmup_are_not_reported():
    detector = Detector.new(SETTINGS)
    assert not any(
        detector.update(START_S + index * STEP_S, value)
        for index, value in enumerate([1.0, 1.5, 0.5, 3.0] * 9)
    )
    before = state_of(detector)
    now_s = START_S + 50 * STEP_S
    for at in (*((now_s, x) for x in (0.0, -1.0, math.nan, math.inf)), (detector.last_s, 5.0)):
        assert detector.update(*at) == []
    assert state_of(detector) == before


@pytest.mark.parametrize("cut_days", [0.05, 0.6, 1.5, 9.99, 11.2])
def test_restored_detector_has_the_same_findings(cut_days):
    recipe = Recipe(13, 0.01, 0.4, outliers=0.02, daily=0.05, shift=0.06, shift_day=11)
    points = generate(recipe, random.Random(11)).points
    cut = int(cut_days * VALUES_PER_DAY)
    one = Detector.new(replace(SETTINGS, least_effect=0.03))
    for point in points[:cut]:
        one.update(*point)
    other = restored(state_of(one))
    assert other.settings == one.settings
    # The thresholds follow the noise every so many values, and at the restart.
    for point in points[cut:]:
        found = [(at.kind, pytest.approx(at.change, abs=1e-3)) for at in one.update(*point)]
        assert [(at.kind, at.change) for at in other.update(*point)] == found
    assert len(json.dumps(state_of(one))) <= 32 * 1024


def test_damaged_state_is_rejected():
    detector = Detector.new(SETTINGS)
    for point in steady(400):
        detector.update(*point)
    state = state_of(detector)
    profile = {**state["series"]["profile"], "values": [0.0]}
    for damage in (
        {"count": "many"},
        {"sums": None},
        {"profile": profile},
        {"week": {}, "level": "x"},
    ):
        with pytest.raises(ValueError, match="series"):
            restored({**state, "series": {**state["series"], **damage}})


@pytest.mark.parametrize("first_wrong", [3, 5 * VALUES_PER_DAY, 9 * VALUES_PER_DAY + 7])
@pytest.mark.parametrize("by_s", [-50 * 365 * DAY_S, DAY_S, -DAY_S])
def test_wrong_wall_clock_for_an_hour_does_not_change_the_findings(first_wrong, by_s):
    stream = generate(Recipe(12, 0.01, shift=0.1, shift_day=10), random.Random(3))
    last_wrong = first_wrong + 12
    detector, found = Detector.new(SETTINGS), []
    for index, (time_s, value) in enumerate(stream.points):
        ahead_s = by_s if first_wrong <= index < last_wrong else 0.0
        if index == first_wrong:
            shift_instants(detector, step(by_s, time_s + by_s))
        elif index == last_wrong:
            shift_instants(detector, step(-by_s, time_s))
        found += [
            (finding.kind, round(finding.time_s - ahead_s), finding.change)
            for finding in detector.update(time_s + ahead_s, value)
        ]
    drifts, anomalies = findings_by_kind(stream)
    assert drifts
    assert found == [
        (finding.kind, round(finding.time_s), pytest.approx(finding.change, abs=1e-3))
        for _, finding in sorted(drifts + anomalies)
    ]


def test_smallest_detectable_change_is_found_within_a_day_and_half_of_it_is_not():
    wrong = {}
    for days, sigma, phi in ((0.6, 0.2, 0), (3, 0.03, 0), (3, 0.2, 0), (8, 0.1, 0.5), (8, 0.01, 0)):
        hits = dict.fromkeys((0.4, 1.25), 0)
        for seed in range(4):
            stream = generate(Recipe(days + 1, sigma, phi), random.Random(seed))
            points = stream.points
            before = int(days * VALUES_PER_DAY)
            detector = Detector.new(SETTINGS)
            assert detector.min_detectable_pct is None
            findings_by_kind(replace(stream, points=points[:before]), detector)
            state, least_pct = state_of(detector), detector.min_detectable_pct
            for factor in hits:
                later = [(at_s, x * (1 + factor * least_pct / 100)) for at_s, x in points[before:]]
                drifts, _ = findings_by_kind(replace(stream, points=later), restored(state))
                hits[factor] += any(finding.change > 0 for _, finding in drifts)
        if hits[1.25] < 4 or (hits[0.4] > 1 and least_pct > 2):
            wrong[days, sigma, phi] = hits, least_pct
    assert wrong == {}


def test_clock_step_reported_late_leaves_no_value_in_the_future():
    detector = Detector.new(SETTINGS)
    for time_s, value in steady(50):
        detector.update(time_s, value)
    now_s = START_S + 50 * STEP_S + 9e8
    detector.update(now_s, 1.0)  # the wall clock is already wrong
    shift_instants(detector, step(9e8, now_s))
    assert detector.last_s == now_s
    shift_instants(detector, step(-9e8, now_s - 9e8))
    assert detector.last_s == now_s - 9e8
