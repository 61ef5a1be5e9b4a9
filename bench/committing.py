"""How fast points are committed, and whether a commit or a query delays a sampling tick.

Points go into the store with its power-loss-safe settings (write-ahead log, synchronous=FULL), a
few and many at a time, beside a plain table of sqlite3 with the same settings, written by
executemany as JSON. Then the daemon's own processes stand as they do in service: a sensor child
samples eight fake GPUs, this process takes its readings and commits without a pause, and a third
process asks for 90 days. How late each sample is taken is compared with how late it is when nothing
is committed and nothing asked.

Usage: python bench/committing.py [--points N] [--rounds N] [--seconds S] [--json FILE]
"""

import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from itertools import chain, cycle
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fakes.nvml import FakeNvml  # noqa: E402 - it lies with the tests
from pushing_runs import chunks, rows  # noqa: E402 - the path is set above
from store_size import START_NS, device_row  # noqa: E402 - as above
from table import Table, add_json, finish  # noqa: E402 - as above

from agent.clock import SystemClock  # noqa: E402 - as above
from agent.storage.reader import StoreReader  # noqa: E402 - as above
from agent.storage.writer import Store  # noqa: E402 - as above
from agent.telemetry.supervisor import CHILD_COMMAND, SensorSupervisor  # noqa: E402 - as above
from agent.telemetry.wire import SensorSettings  # noqa: E402 - as above

GOAL_MS = 5.0
MS = 1_000_000
SAMPLE_EVERY_S = 0.05
SETTLE_S = 2.0
TICK_POINTS, MANY_POINTS = 10, 1000
# A commit that waits for the disk takes milliseconds: of few points at once fewer are committed.
FEWER = 30
READY_COMMITS = 500
DAYS, DAY_S, STEP_S = 90, 86_400, 300
GPUS = 8


def ours(path, batches):
    """Seconds that the store takes."""
    store = Store.open(path, SystemClock())
    started_s = time.perf_counter()
    for batch in batches:
        store.append(batch)
    elapsed_s = time.perf_counter() - started_s
    store.close()
    return elapsed_s


def plain(path, batches):
    """Seconds that one table takes, which keeps each identity once as the store does."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS points (measurement TEXT, tags TEXT, time_ns INTEGER, fields TEXT,"
        " UNIQUE (measurement, tags, time_ns))"
    )
    started_s = time.perf_counter()
    for batch in batches:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)",
            [
                (point.measurement, json.dumps(point.tags), point.time_ns, json.dumps(point.fields))
                for point in batch
            ],
        )
        connection.execute("COMMIT")
    elapsed_s = time.perf_counter() - started_s
    connection.close()
    return elapsed_s


def rate(write, folder, points, at_once):
    """Points per second; making the points is not counted."""
    path, elapsed_s = folder / f"{write.__name__}.db", 0.0
    for part in chunks(rows(points), 50_000):
        elapsed_s += write(path, list(chunks(iter(part), at_once)))
    for file in folder.glob(f"{path.name}*"):
        file.unlink()
    return points / elapsed_s


def rates(folder, points, rounds):
    """The lines of the table on how fast."""
    found = []
    for at_once, number in (
        (TICK_POINTS, max(TICK_POINTS, points // FEWER)),
        (MANY_POINTS, points),
    ):
        pairs = [
            [rate(write, folder, number, at_once) for write in (ours, plain)] for _ in range(rounds)
        ]
        mine, theirs = (statistics.median(values) for values in zip(*pairs, strict=True))
        found.append(
            {
                "issue_line": 3,
                "name": f"committing, {at_once:,} points at once",
                "ours": mine,
                "unit": "points/s",
                "peer": theirs,
                "peer_name": "sqlite3 executemany, same pragmas",
                "ratio": mine / theirs,
                "goal": "",
                "met": None,
                "note": f"{number:,} points, synchronous=FULL; as line protocol with an outbox,"
                " the other as JSON",
            }
        )
    return found


class Ticks:
    """When each device was sampled, and when this process heard of it; monotonic ns.

    Each reading holds one sample here.
    """

    def __init__(self):
        self._taken = {}
        self._lock = threading.Lock()

    def take(self, readings):
        """Takes readings."""
        heard_ns = time.monotonic_ns()
        with self._lock:
            for reading in readings:
                self._taken.setdefault(reading.device, []).append((reading.end_ns, heard_ns))

    def lateness_ms(self, phases):
        """For each phase (from, until) how late its samples were, against the grid they keep.

        The grid of a device is where its earliest samples lie; a tick that was left out counts as
        late by a whole period.
        """
        every_ns = int(SAMPLE_EVERY_S * 1e9)
        late = [[] for _ in phases]
        for heard in self._taken.values():
            instants = [taken_ns for taken_ns, _ in heard]
            middle = statistics.median(instant % every_ns for instant in instants)
            off = [(t - middle + every_ns / 2) % every_ns - every_ns / 2 for t in instants]
            # Not the least of all: one sample that is early by an accident is no grid.
            grid = statistics.quantiles(off, n=100)[0]
            for number, (since_ns, until_ns) in enumerate(phases):
                own = [
                    o - grid for o, t in zip(off, instants, strict=True) if since_ns <= t < until_ns
                ]
                missed = max(0, int((until_ns - since_ns) / every_ns) - 1 - len(own))
                late[number] += [max(0.0, ns) / MS for ns in own] + [SAMPLE_EVERY_S * 1e3] * missed
        return late

    def heard_ms(self, since_ns, until_ns):
        """How long after each sample of a phase this process had its reading."""
        return [
            (heard_ns - taken_ns) / MS
            for taken_ns, heard_ns in chain.from_iterable(self._taken.values())
            if since_ns <= taken_ns < until_ns
        ]


def p999(values):
    """Of at least some hundreds."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.999))]


def fill(path):
    """Ninety days of eight GPUs at five minutes."""
    rng, store = random.Random(1), Store.open(path, SystemClock())
    every = (
        device_row(rng, f"gpu{gpu}", STEP_S, START_NS + second * 10**9)
        for second in range(0, DAYS * DAY_S, STEP_S)
        for gpu in range(GPUS)
    )
    for chunk in chunks(every, 5000):
        store.append(chunk)
    return store


def ask(path):
    """Asks for ninety days of all devices again and again."""
    reader = StoreReader.open(path)
    while True:
        reader.values("device", "power_w", START_NS, START_NS + DAYS * DAY_S * 10**9)


def commit(store, stop, done):
    """Commits one tick's rows after the other."""
    ready = list(chunks(rows(READY_COMMITS * TICK_POINTS), TICK_POINTS))
    for number, batch in enumerate(cycle(ready)):
        if stop.is_set():
            return
        later_ns = (number // READY_COMMITS) * READY_COMMITS * 10**9
        store.append([replace(point, time_ns=point.time_ns + later_ns) for point in batch])
        done.append(1)


def ticks(folder, seconds):
    """How late samples are: alone, beside commits, beside commits and a query; commits a second."""
    fake = FakeNvml(folder, gpus=GPUS)
    os.environ.update(fake.env())
    store = fill(folder / "ticks.db")
    seen = Ticks()
    settings = SensorSettings(
        sample_every_s=SAMPLE_EVERY_S, aggregate_every_s=SAMPLE_EVERY_S, cpu=False, selftest_s=0
    )
    sensor = SensorSupervisor(CHILD_COMMAND, settings, seen.take, lambda _: None, SystemClock())
    sensor.start()
    phases, asking = [], None
    stop, done = threading.Event(), []
    committing = threading.Thread(target=commit, args=(store, stop, done))
    try:
        sensor.wait_for_devices(30)
        for phase in range(3):
            if phase == 1:
                committing.start()
            if phase == 2:
                command = [sys.executable, __file__, "--ask", str(store.path)]
                asking = subprocess.Popen(command)
            time.sleep(SETTLE_S)
            since_ns = time.monotonic_ns()
            time.sleep(seconds)
            phases.append((since_ns, time.monotonic_ns()))
        stop.set()
        committing.join()
    finally:
        stop.set()
        sensor.stop()
        if asking is not None:
            asking.kill()
            asking.wait()
    store.close()
    return seen, phases, len(done) / (2 * (seconds + SETTLE_S))


def delays(folder, seconds):
    """The lines of the table on sampling ticks."""
    seen, phases, commits_per_s = ticks(folder, seconds)
    alone, beside_commits, beside_all = seen.lateness_ms(phases)
    quiet_ms = p999(alone)
    found = []
    for name, values in (("commits", beside_commits), ("commits and a 90-day query", beside_all)):
        late_ms = p999(values)
        found.append(
            {
                "issue_line": 3,
                "name": f"a tick beside {name}, p99.9",
                "ours": late_ms,
                "unit": "ms late",
                "peer": quiet_ms,
                "peer_name": "the same sensor child, nothing committed or asked",
                "ratio": late_ms / quiet_ms if quiet_ms else None,
                "goal": f"at most {GOAL_MS:g} ms more",
                "met": late_ms - quiet_ms <= GOAL_MS,
                "note": f"{len(values):,} ticks, {commits_per_s:.0f} commits/s; medians"
                f" {statistics.median(values):.2f} and {statistics.median(alone):.2f} ms",
            }
        )
    heard, heard_alone = (p999(seen.heard_ms(*phase)) for phase in (phases[2], phases[0]))
    found.append(
        {
            "issue_line": 3,
            "name": "from sample to daemon beside both, p99.9",
            "ours": heard,
            "unit": "ms",
            "peer": heard_alone,
            "peer_name": "the same, nothing committed or asked",
            "ratio": heard / heard_alone if heard_alone else None,
            "goal": "",
            "met": None,
            "note": "the reading carries its own time: this delays no sample",
        }
    )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    add_json(parser)
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        return ask(options.ask)
    with tempfile.TemporaryDirectory(prefix="infercost-committing-") as name:
        folder = Path(name)
        results = rates(folder, options.points, options.rounds) + delays(folder, options.seconds)
    return finish(Table(rows=results), options.json)


if __name__ == "__main__":
    sys.exit(main())
