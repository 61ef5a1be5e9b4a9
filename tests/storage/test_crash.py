"""A writer that is killed at any moment: what it said was committed is there, and whole."""

import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.clock import FakeClock

from agent.storage.writer import Store

ROOT = Path(__file__).resolve().parents[2]
# Says a number once the batch that ends with it is committed, and moves a cursor behind it.
WRITER = """
import sys
from pathlib import Path
from agent.clock import SystemClock
from agent.model import Point
from agent.storage.writer import Store
store = Store.open(Path(sys.argv[1]), SystemClock())
store.register_sink("s", from_beginning=True)
number = int(sys.argv[2])
while True:
    batch = [Point("m", {"k": str(i % 5)}, {"n": i}, i) for i in range(number, number + 20)]
    store.append(batch)
    number += 20
    print(number, flush=True)
    rows = store.rows_after(store.cursor("s"), 7)
    store.advance("s", rows[-1].seq, len(rows), ())
"""


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_a_random_moment(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "infercost.db"
    committed = 0
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(committed)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as writer:
            for _ in range(rng.randint(1, 30)):
                committed = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            # What was said before the kill and not read yet was committed, too.
            said = writer.stdout.read().split()
            committed = int(said[-1]) if said else committed
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        store = Store.open(path, FakeClock())
        numbers = {p.fields["n"] for p in store.reader().points("m", 0, None)}
        assert numbers >= set(range(committed))
        assert len(numbers) - committed in (0, 20)
        cursor = store.cursor("s")
        rest = [row.seq for row in store.rows_after(cursor, 10**6)]
        assert rest == sorted(rest)
        assert len(rest) == len(numbers) - store.reader().sinks()["s"]["sent_points"]
        store.close()
