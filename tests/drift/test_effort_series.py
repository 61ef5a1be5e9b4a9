"""Shifts of what a unit of work takes, beside a load and a mix that vary."""

import math
import random

import pytest
from costprobe.drift.load_model import EffortSeries, WindowEffort
from costprobe.drift.settings import DetectionConfig

START_S, BLOCK_S = 1_772_409_600, 1800
LEAST = DetectionConfig().serving_shift


def daily(index):
    return -7 + math.sin(index / 48 * 2 * math.pi)


def shifts_of(blocks, effort_of, load_of=daily, mix_of=lambda _: (0.0, 0.0), *, noise=0.004):
    """Feed a series of a server that batches; return (block, start in blocks, size) of each shift."""
    rng, series, found = random.Random(1), EffortSeries(LEAST, -0.2), []
    for index in range(blocks):
        load = load_of(index)
        effort = -0.3 * load + effort_of(index) + rng.gauss(0, noise)
        windows = [WindowEffort(load, mix_of(index), effort, 1.0)]
        for since_s, change in series.update(START_S + index * BLOCK_S, windows):
            found.append((index, (since_s - START_S) / BLOCK_S, change))
    return found


def test_shift_is_found_with_its_start_and_size_and_taken_back():
    (first, since, size), *rest = shifts_of(420, lambda index: 0.1 * (330 <= index < 380))
    assert 330 < first < 336
    assert since == pytest.approx(330, abs=1)
    assert size == pytest.approx(0.1, abs=0.02)
    assert size + sum(change for _, _, change in rest) == pytest.approx(0, abs=0.02)


def test_load_or_requests_that_were_never_seen_are_no_shift():
    """The server batches more, or less, there; other requests take other device time."""

    def higher(index):
        return daily(index) + 0.8 * min(1.0, max(0, index - 320) / 8)

    assert not shifts_of(370, lambda index: -0.3 * max(0.0, higher(index) + 6), higher)

    def launched(index):
        return (0.8, -0.6) if index >= 320 else (0.0, 0.0)

    assert not shifts_of(420, lambda index: 0.15 * (index >= 320), mix_of=launched)
    # They are known after some days.
    found = shifts_of(
        520, lambda index: 0.15 * (index >= 320) + 0.1 * (index >= 500), mix_of=launched
    )
    assert [500 < block < 512 for block, *_ in found] == [True]


def test_departures_that_alternate_are_held_back_once_they_are_known():
    """Something that neither load nor mix shows, for five hours of every day from the fifth on."""
    found = shifts_of(600, lambda index: 0.12 * (index > 240 and index % 48 < 10), noise=0.01)
    assert len(found) <= 4, found
    assert all(block < 340 for block, *_ in found)
