"""A writer that is killed at any moment, and readers beside one that is not."""

import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.clock import FakeClock
from store_samples import ROOT, query

from agent.lineprotocol import parse_field_set
from agent.storage.reader import StoreReader
from agent.storage.writer import Store

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


def told_until_killed(path, number, rng):
    """What a writer told of what it had committed, killed at a random moment."""
    told = {"appended": number, "acked": 0, "state": None}
    with writing(path, number) as writer:
        lines = [writer.stdout.readline() for _ in range(rng.randint(1, 40))]
        time.sleep(rng.random() * 0.003)  # anywhere within a commit
        writer.kill()
        lines += writer.stdout.readlines()
    for line in lines:
        if not line.endswith("\n"):
            break  # killed in the middle of the word
        what, value = line.split()
        told[what] = int(value)
    return told


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_moments_the_store_is_whole_and_goes_on(path, seed):
    rng = random.Random(seed)
    told = {"appended": 0, "acked": 0, "state": None}
    for _ in range(ROUNDS // 2):
        before = told
        told = told_until_killed(path, told["appended"], rng)
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        assert query(path, "PRAGMA foreign_key_check") == []
        store = Store.open(path, FakeClock())
        rows = store.rows_after(0, 1_000_000)
        numbers = sorted(parse_field_set(row.line.split()[1])["n"] for row in rows)
        # All that was told, and at most the one batch whose commit it was killed behind.
        assert numbers == list(range(len(numbers)))
        assert len(numbers) - told["appended"] in (0, 20)
        acked_seq = store.cursor("s")
        assert acked_seq >= max(told["acked"], before["acked"])
        (sink,) = store.sinks()
        # The cursor and its counts are one commit.
        passed = sum(row.seq <= acked_seq for row in rows)
        replaced = rows[-1].seq - len(rows) if rows else 0
        assert 0 <= sink.sent_points + sink.rejected_points - passed <= replaced
        assert sink.backlog.points == len(numbers) - passed
        if told["state"]:
            assert store.state("progress")["number"] >= told["state"]
        store.close()


def test_readers_beside_a_writer_see_every_series_up_to_a_moment(path):
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


def test_a_reader_reads_on_after_its_writer_was_killed(path):
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
