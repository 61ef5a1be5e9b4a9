"""A daemon under load that is killed at random moments.

Outcome: the store is whole after every kill, every row that was once committed is still there,
and the database ends with exactly the store's rows: none lost, none duplicated.
"""

import random
import sqlite3
import time
from contextlib import closing

import pytest
from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.reader import StoreReader
from fakes.scenes import QUICK
from fakes.sizes import SEED, TIMEOUT_S, sized

KILLS = sized(6, 200)
GPUS = 16
LOAD = QUICK.replace('"500ms"', '"200ms"')
NO_DEVICES = "[telemetry]\ngpus = false\ncpu = false\n"


def committed(path):
    """Every row of the store by identity; empty before the store exists."""
    try:
        reader = StoreReader.open(path)
    except StoreError:
        return {}
    with closing(reader):
        rows = {}
        for measurement in ("device", "event", "agent", "alert"):
            for point in reader.points(measurement, 0, 2**62):
                key = (point.measurement, tuple(sorted(point.tags.items())), point.time_ns)
                assert key not in rows
                rows[key] = dict(point.fields)
        return rows


def is_drained(path):
    with closing(StoreReader.open(path)) as reader:
        return all(sink.backlog.points == 0 for sink in reader.sinks())


def integrity(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone()[0]


def as_numbers(fields):
    return {k: v if isinstance(v, str) else float(v) for k, v in fields.items()}


@pytest.mark.timeout(TIMEOUT_S)
def test_kills_at_random_moments_lose_and_duplicate_no_committed_row(
    daemon_in, gpus_of, own_influxdb, figures
):
    own_influxdb.query('CREATE DATABASE "d"')
    sink = (
        f'[[sink]]\nname = "one"\napi = "v1"\nurl = "{own_influxdb.url}"\n'
        'database = "d"\nflush_every = "100ms"\nbatch_points = 50\n'
    )
    rng = random.Random(SEED)
    daemon = daemon_in(**gpus_of(GPUS).env())
    daemon.write(LOAD + sink)
    known = {}
    while_starting = 0
    for kill in range(KILLS):
        daemon.spawn()
        if kill % 3 == 2:  # anywhere from the exec to the first rows
            time.sleep(rng.uniform(0.0, 1.5))
            while_starting += 1
        else:
            daemon.wait_for(lambda before=known: len(committed(daemon.store)) > len(before))
            time.sleep(rng.uniform(0.0, 1.0))
        known |= committed(daemon.store)  # what a reader saw before the kill was committed
        daemon.kill()
        if daemon.store.exists() and known:
            assert integrity(daemon.store) == "ok"
            after = committed(daemon.store)
            assert known.items() <= after.items()
            known = after
    daemon.start(NO_DEVICES + sink)
    stored = committed(daemon.store)
    daemon.wait_for(lambda: is_drained(daemon.store))
    daemon.stop()
    assert known.items() <= stored.items()
    arrived = own_influxdb.points("d")
    missing = [key for key in stored if key not in arrived]
    ended = committed(daemon.store)
    extra = [key for key in arrived if key not in ended]
    assert (missing, extra) == ([], [])
    assert all(as_numbers(arrived[key]) == pytest.approx(as_numbers(stored[key])) for key in stored)
    figures(
        "daemon killed under load",
        kills=KILLS,
        kills_while_starting=while_starting,
        rows_committed=len(stored),
        rows_lost=len(missing),
        rows_duplicated=len(extra),
    )
