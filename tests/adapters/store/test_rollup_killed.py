"""A process killed during aggregation neither duplicates nor loses a row."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from fakes.clock import FakeClock
from fakes.sizes import sized
from store_samples import ROOT, query

SCRIPT = Path(__file__).parent / "roll_up_until_killed.py"
BATCH_POINTS = 20
ROUNDS = 6


def run_until_killed(path, number, rng):
    """The numbers of rows that the process reported as appended and as aggregated."""
    appended, aggregated = number, 0
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
            break  # killed while writing the line
        what, value = line.split()
        appended = int(value) if what == "appended" else appended
        aggregated += int(value) if what == "aggregated" else 0
    return appended, aggregated


@pytest.mark.parametrize("seed", range(sized(1, 200)))
def test_every_row_counts_once_after_kills_during_aggregation(path, seed):
    rng = random.Random(seed)
    stored, aggregated = 0, 0
    for _ in range(ROUNDS):
        reported, more = run_until_killed(path, stored, rng)
        aggregated += more
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        Store.open(path, FakeClock()).close()
        reader = StoreReader.open(path)
        points = list(reader.points("device", -(2**63), 2**63 - 1))
        counted = sum(total.value for total in reader.totals())
        reader.close()
        stored = sum(getattr(found, "rows", 1) for found in points)
        # All reported rows, and at most one more batch: killed between its commit and its report.
        assert stored - reported in (0, BATCH_POINTS)
        assert sum(found.fields["energy_j"] for found in points) == stored
        assert counted == stored
        weighted = sum(getattr(found, "rows", 1) * found.fields["power_w"] for found in points)
        assert weighted == pytest.approx(sum(range(stored)))
    assert aggregated > 0
    assert {getattr(found, "period_s", 0) for found in points} == {3600, 0}
