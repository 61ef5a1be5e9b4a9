"""A process that is killed in the middle of rolling up counts nothing twice and loses nothing."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.clock import FakeClock
from store_samples import ROOT, query

from agent.storage.reader import StoreReader
from agent.storage.writer import Store

SCRIPT = Path(__file__).parent / "roll_up_until_killed.py"
BATCH_POINTS = 20
ROUNDS = 6


def run_until_killed(path, number, rng):
    """How many rows it told it had appended, and how many it had folded."""
    appended, folded = number, 0
    with subprocess.Popen(
        [sys.executable, SCRIPT, path, str(number)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = [process.stdout.readline() for _ in range(rng.randint(20, 150))]
        time.sleep(rng.random() * 0.003)  # anywhere within a step
        process.kill()
        lines += process.stdout.readlines()
    for line in lines:
        if not line.endswith("\n"):
            break  # killed in the middle of the word
        what, value = line.split()
        appended = int(value) if what == "appended" else appended
        folded += int(value) if what == "folded" else 0
    return appended, folded


@pytest.mark.parametrize("seed", range(2))
def test_killed_while_rolling_up_every_row_counts_once(path, seed):
    rng = random.Random(seed)
    there, folded = 0, 0
    for _ in range(ROUNDS):
        told, more = run_until_killed(path, there, rng)
        folded += more
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        Store.open(path, FakeClock()).close()
        reader = StoreReader.open(path)
        points = list(reader.points("device", -(2**63), 2**63 - 1))
        reader.close()
        there = sum(getattr(found, "rows", 1) for found in points)
        # All that was told, and at most the one batch whose commit it was killed behind.
        assert there - told in (0, BATCH_POINTS)
        assert sum(found.fields["energy_j"] for found in points) == there
        weighted = sum(getattr(found, "rows", 1) * found.fields["power_w"] for found in points)
        assert weighted == pytest.approx(sum(range(there)))
    assert folded > 0
    assert {getattr(found, "period_s", 0) for found in points} == {3600, 60, 0}
