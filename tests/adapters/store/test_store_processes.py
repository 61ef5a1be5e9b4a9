"""A writer killed at random moments, and readers during writes."""

import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import parse_field_set
from fakes.clock import FakeClock
from fakes.sizes import sized
from fakes.store_access import cursor, rows_after
from store_samples import ROOT, query

SCRIPT = Path(__file__).parent / "write_until_killed.py"
ROUNDS = 10


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
    reported = {"appended": number, "acked": 0, "state": None}
    with writing(path, number) as writer:
        lines = [writer.stdout.readline() for _ in range(rng.randint(1, 40))]
        time.sleep(rng.random() * 0.003)  # anywhere within a commit
        writer.kill()
        lines += writer.stdout.readlines()
    for line in lines:
        if not line.endswith("\n"):
            break  # killed while writing the line
        what, value = line.split()
        reported[what] = int(value)
    return reported


@pytest.mark.parametrize("seed", range(sized(1, 200)))
def test_store_is_intact_after_kills_at_random_moments(path, seed):
    rng = random.Random(seed)
    reported = {"appended": 0, "acked": 0, "state": None}
    for _ in range(ROUNDS // 2):
        before = reported
        reported = reported_until_killed(path, reported["appended"], rng)
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        assert query(path, "PRAGMA foreign_key_check") == []
        store = Store.open(path, FakeClock())
        rows = rows_after(store, 0, 1_000_000)
        numbers = sorted(parse_field_set(row.line.split()[1])["n"] for row in rows)
        # All reported rows, and at most one more batch: killed between its commit and its report.
        assert numbers == list(range(len(numbers)))
        assert len(numbers) - reported["appended"] in (0, 20)
        reported["appended"] = len(numbers)
        acked_seq = cursor(store, "s")
        assert acked_seq >= max(reported["acked"], before["acked"])
        (sink,) = store.sinks()
        # The cursor and its counts are one commit.
        passed = sum(row.seq <= acked_seq for row in rows)
        assert sink.sent_points + sink.rejected_points == passed
        assert sink.backlog.points == len(numbers) - passed
        if reported["state"]:
            assert store.state("progress")["number"] >= reported["state"]
        store.close()


def test_readers_during_writes_see_a_consistent_prefix_of_every_series(path):
    with writing(path, 0) as writer:
        for _ in range(3):
            writer.stdout.readline()
        seen = dict.fromkeys(range(5), 1)
        for _ in range(20):
            reader = StoreReader.open(path)
            numbers = [each.fields["n"] for each in reader.points("device", 0, 2**62)]
            for device, before in seen.items():
                own = [number for number in numbers if number % 5 == device]
                assert own == list(range(device, 5 * len(own), 5))
                assert len(own) >= before
                seen[device] = len(own)
            assert [sink.sink for sink in reader.sinks()] == ["s"]
            reader.close()
        assert writer.poll() is None


def test_reader_continues_after_its_writer_was_killed(path):
    with writing(path, 0) as writer:
        for _ in range(10):
            writer.stdout.readline()
        reader = StoreReader.open(path)
        before = len(list(reader.lines(0, 2**62)))
        writer.kill()
        writer.wait()
    assert len(list(reader.lines(0, 2**62))) >= before > 0
    reader.close()
    alone = StoreReader.open(path)
    assert len(list(alone.lines(0, 2**62))) >= before
    alone.close()
