"""A writer killed at random moments."""

import os
import random
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from fakes.clock import FakeClock
from fakes.sizes import sized
from store_samples import ROOT, query

SCRIPT = Path(__file__).parent / "write_until_killed.py"
ROUNDS = 5
BATCH_POINTS = 20


@contextmanager
def writing(path, number):
    with subprocess.Popen(
        [sys.executable, SCRIPT, path, str(number)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        try:
            yield writer
        finally:
            writer.kill()


def reported_until_killed(path, number, rng):
    """The newest commits that a writer reported before it was killed at a random moment."""
    reported = {"appended": number, "acked": 0, "state": 0, "aggregated": 0}
    with writing(path, number) as writer:
        lines = [writer.stdout.readline() for _ in range(rng.randint(1, 150))]
        time.sleep(rng.random() * 0.003)  # anywhere within a step
        writer.kill()
        lines += writer.stdout.readlines()
    for line in lines:
        if not line.endswith("\n"):
            break  # killed while writing the line
        what, value = line.split()
        before = reported[what] if what == "aggregated" else 0
        reported[what] = before + int(value)
    return reported


@pytest.mark.parametrize("seed", range(sized(1, 200)))
def test_store_is_intact_and_every_row_counts_once_after_kills_at_random_moments(path, seed):
    rng = random.Random(seed)
    stored, acked, aggregated = 0, 0, 0
    for _ in range(ROUNDS):
        reported = reported_until_killed(path, stored, rng)
        aggregated += reported["aggregated"]
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        assert query(path, "PRAGMA foreign_key_check") == []
        with closing(Store.open(path, FakeClock())) as store:
            (sink,) = store.sinks()
            assert (store.state("progress") or {"number": 0})["number"] >= reported["state"]
        with closing(StoreReader.open(path)) as reader:
            points = list(reader.points("device", -(2**63), 2**63 - 1))
            counted = sum(total.value for total in reader.totals())
        stored = sum(getattr(found, "rows", 1) for found in points)
        # All reported rows, and at most one more batch: killed between its commit and its report.
        assert stored - reported["appended"] in (0, BATCH_POINTS)
        assert counted == sum(found.fields["energy_j"] for found in points) == stored
        weighted = sum(getattr(found, "rows", 1) * found.fields["n"] for found in points)
        assert weighted == pytest.approx(sum(range(stored)))
        # The cursor and its counts are one commit; rows have the sequence numbers from 1 on.
        assert sink.acked_seq >= max(reported["acked"], acked)
        assert sink.sent_points + sink.rejected_points == sink.acked_seq
        assert sink.backlog.points == stored - sink.acked_seq
        acked = sink.acked_seq
    assert aggregated > 0
    assert {getattr(found, "period_s", 0) for found in points} == {3600, 0}
