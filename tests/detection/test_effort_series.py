"""Shifts of what a unit of work takes, beside a load that leaves its known range."""

import math
import random

import pytest
from costprobe.domain.detection.effort_series import EffortSeries
from costprobe.domain.detection.load_model import LoadSample
from costprobe.domain.detection.settings import DetectionConfig

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
