"""Commit throughput, and the delay of sampling ticks caused by commits and queries.

Points are written to the store with its power-loss-safe settings (write-ahead log,
synchronous=FULL) in small and large batches, compared with a plain sqlite3 table with the same
settings, written as JSON by executemany. Then the processes run as in production: a sensor child
samples eight fake GPUs, this process receives its readings and commits continuously, and a third
process queries 90 days. The lateness of samples is compared with that of an idle store.

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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, cycle
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from costprobe.adapters.sensors.supervisor import CHILD_COMMAND, SensorSupervisor  # noqa: E402 - as above
from costprobe.adapters.store.read import StoreReader  # noqa: E402 - as above
from costprobe.adapters.store.write import Store  # noqa: E402 - as above
from costprobe.core.clock import SystemClock  # noqa: E402 - as above
from costprobe.core.records import Device, Point, Reading  # noqa: E402 - as above
from fakes.nvml import FakeNvml  # noqa: E402 - part of the tests
from fakes.sensing import sensor_settings  # noqa: E402 - as above
from pushing_runs import chunks, rows  # noqa: E402 - the path is set above
from store_size import START_NS, device_row  # noqa: E402 - as above
from table import Table, add_json, finish  # noqa: E402 - as above

GOAL_MS = 5.0
MS = 1_000_000
SAMPLE_EVERY_S = 0.05
SETTLE_S = 2.0
TICK_POINTS, MANY_POINTS = 10, 1000
# A synced commit takes milliseconds, so the run with small batches has fewer points.
FEWER = 30
READY_COMMITS = 500
DAYS, DAY_S, STEP_S = 90, 86_400, 300
GPUS = 8


def ours(path: Path, batches: Iterable[list[Point]]) -> float:
    """Return the duration of the store's commits in s."""
    store = Store.open(path, SystemClock())
    started_s = time.perf_counter()
    for batch in batches:
        store.append(batch)
    elapsed_s = time.perf_counter() - started_s
    store.close()
    return elapsed_s


def plain(path: Path, batches: Iterable[list[Point]]) -> float:
    """Return the duration in s for one table with the same unique key as the store."""
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


def rate(
    write: Callable[[Path, Iterable[list[Point]]], float], folder: Path, points: int, at_once: int
) -> float:
    """Return points per second, without the time to create the points."""
    path, elapsed_s = folder / "rate.db", 0.0
    for part in chunks(rows(points), 50_000):
        elapsed_s += write(path, list(chunks(iter(part), at_once)))
    for file in folder.glob(f"{path.name}*"):
        file.unlink()
    return points / elapsed_s


def add_rates(table: Table, folder: Path, points: int, rounds: int) -> None:
    """Add the rows of the commit throughput."""
    for at_once, number in (
        (TICK_POINTS, max(TICK_POINTS, points // FEWER)),
        (MANY_POINTS, points),
    ):
        pairs = [
            [rate(write, folder, number, at_once) for write in (ours, plain)] for _ in range(rounds)
        ]
        mine, theirs = (statistics.median(values) for values in zip(*pairs, strict=True))
        table.row(
            f"committing, batches of {at_once:,} points",
            mine,
            "points/s",
            peer=theirs,
            peer_name="sqlite3 executemany, same pragmas",
            note=f"{number:,} points, synchronous=FULL; ours: line protocol with an outbox, peer: JSON",
        )


class Ticks:
    """Times at which each device was sampled and its reading received; monotonic ns.

    Each reading contains one sample.
    """

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def take(self, readings: Sequence[tuple[Reading, Device]]) -> None:
        """Record the readings."""
        received_ns = time.monotonic_ns()
        with self._lock:
            for reading, _ in readings:
                self._taken.setdefault(reading.device, []).append((reading.end_ns, received_ns))

    def lateness_ms(self, phases: Sequence[tuple[int, int]]) -> list[list[float]]:
        """Return the lateness of samples for each phase (from, until), relative to their grid.

        A device's grid is the phase of its earliest samples; a skipped tick counts as late by a
        whole period.
        """
        every_ns = int(SAMPLE_EVERY_S * 1e9)
        late: list[list[float]] = [[] for _ in phases]
        for times in self._taken.values():
            instants = [taken_ns for taken_ns, _ in times]
            middle = statistics.median(instant % every_ns for instant in instants)
            off = [(t - middle + every_ns / 2) % every_ns - every_ns / 2 for t in instants]
            # A low quantile, not the minimum: a single early sample does not define the grid.
            grid = statistics.quantiles(off, n=100)[0]
            for number, (since_ns, until_ns) in enumerate(phases):
                own = [
                    o - grid for o, t in zip(off, instants, strict=True) if since_ns <= t < until_ns
                ]
                missed = max(0, int((until_ns - since_ns) / every_ns) - 1 - len(own))
                late[number] += [max(0.0, ns) / MS for ns in own] + [SAMPLE_EVERY_S * 1e3] * missed
        return late

    def receive_delays_ms(self, since_ns: int, until_ns: int) -> list[float]:
        """Return the delay from each sample of a phase to its reception."""
        return [
            (received_ns - taken_ns) / MS
            for taken_ns, received_ns in chain.from_iterable(self._taken.values())
            if since_ns <= taken_ns < until_ns
        ]


def p999(values: Sequence[float]) -> float:
    """Return the 99.9th percentile of at least some hundred values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.999))]


def fill(path: Path) -> Store:
    """Write ninety days of eight GPUs at five minutes."""
    rng, store = random.Random(1), Store.open(path, SystemClock())
    every = (
        device_row(rng, f"gpu{gpu}", STEP_S, START_NS + second * 10**9)
        for second in range(0, DAYS * DAY_S, STEP_S)
        for gpu in range(GPUS)
    )
    for chunk in chunks(every, 5000):
        store.append(chunk)
    return store


def query(path: Path) -> NoReturn:
    """Query ninety days of all devices repeatedly."""
    reader = StoreReader.open(path)
    while True:
        reader.values("device", "power_w", START_NS, START_NS + DAYS * DAY_S * 10**9)


def commit(store: Store, stop: threading.Event, committed: list[int]) -> None:
    """Commit the rows of one tick after the other."""
    ready = list(chunks(rows(READY_COMMITS * TICK_POINTS), TICK_POINTS))
    for number, batch in enumerate(cycle(ready)):
        if stop.is_set():
            return
        later_ns = (number // READY_COMMITS) * READY_COMMITS * 10**9
        store.append([replace(point, time_ns=point.time_ns + later_ns) for point in batch])
        committed.append(1)


def ticks(folder: Path, seconds: float) -> tuple[Ticks, list[tuple[int, int]], float]:
    """Return the ticks, the phases (idle, commits, commits and a query), and commits per second."""
    fake = FakeNvml(folder, gpus=GPUS)
    os.environ.update(fake.env())
    store = fill(folder / "ticks.db")
    recorded = Ticks()
    settings = sensor_settings(
        every_s=SAMPLE_EVERY_S, aggregate_s=SAMPLE_EVERY_S, cpu=False, selftest_s=0
    )
    sensor = SensorSupervisor(CHILD_COMMAND, settings, lambda _: None, SystemClock())
    sensor.deliver_to(recorded.take)
    sensor.start()
    phases, querying = [], None
    stop = threading.Event()
    committed: list[int] = []
    committing = threading.Thread(target=commit, args=(store, stop, committed))
    try:
        sensor.wait_for_devices(30)
        for phase in range(3):
            if phase == 1:
                committing.start()
            if phase == 2:
                command = [sys.executable, __file__, "--query", str(store.path)]
                querying = subprocess.Popen(command)
            time.sleep(SETTLE_S)
            since_ns = time.monotonic_ns()
            time.sleep(seconds)
            phases.append((since_ns, time.monotonic_ns()))
        stop.set()
        committing.join()
    finally:
        stop.set()
        sensor.stop()
        if querying is not None:
            querying.kill()
            querying.wait()
    store.close()
    return recorded, phases, len(committed) / (2 * (seconds + SETTLE_S))


def add_delays(table: Table, folder: Path, seconds: float) -> None:
    """Add the rows of the sampling ticks."""
    recorded, phases, commits_per_s = ticks(folder, seconds)
    idle, with_commits, with_all = recorded.lateness_ms(phases)
    idle_ms = p999(idle)
    for name, values in (("commits", with_commits), ("commits and a 90-day query", with_all)):
        late_ms = p999(values)
        table.row(
            f"sampling tick during {name}, p99.9",
            late_ms,
            "ms late",
            peer=idle_ms,
            peer_name="the same sensor child, idle store",
            goal=f"at most {GOAL_MS:g} ms more",
            met=late_ms - idle_ms <= GOAL_MS,
            note=f"{len(values):,} ticks, {commits_per_s:.0f} commits/s; medians"
            f" {statistics.median(values):.2f} and {statistics.median(idle):.2f} ms",
        )
    delay, delay_idle = (
        p999(recorded.receive_delays_ms(*phase)) for phase in (phases[2], phases[0])
    )
    table.row(
        "sample to daemon during both, p99.9",
        delay,
        "ms",
        peer=delay_idle,
        peer_name="the same, idle store",
        note="readings have their own timestamps: this does not delay samples",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    add_json(parser)
    parser.add_argument("--query", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.query:
        return query(options.query)
    with tempfile.TemporaryDirectory(prefix="costprobe-committing-") as name:
        folder = Path(name)
        table = Table(issue_line=3)
        add_rates(table, folder, options.points, options.rounds)
        add_delays(table, folder, options.seconds)
    return finish(table, options.json)


if __name__ == "__main__":
    sys.exit(main())
