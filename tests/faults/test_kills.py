"""A daemon under load that is killed at random moments, with a faulty proxy before its databases.

Outcome: the store is whole after every kill, every row that was once committed is still there,
and each database ends with exactly the store's rows: none lost, none duplicated.
"""

import itertools
import random
import sqlite3
import time
from contextlib import closing

import pytest
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader
from fakes.faulty_proxy import FaultyProxy
from fakes.scenes import QUICK
from fakes.servers import VictoriaMetrics, running
from fakes.sizes import SEED, TIMEOUT_S, sized

KILLS = sized(3, 200)
# How the databases answer to the next requests, again and again. Half of a request may be lost and the other one
# rejected, so not that.
FAULTS = ("unreachable", "accepting without an answer", "malformed", "slow", "overloaded")
STATES = [state for fault in FAULTS for state in ("available", "available", fault)]
GPUS = 16
LOAD = QUICK.replace('"500ms"', '"200ms"')
SINK = """
[[sink]]
name = "{name}"
api = "v1"
url = "{url}"
database = "d"
flush_every = "100ms"
"""
# Rows whose acknowledgement was lost are sent again.
DEDUPLICATED = ("-dedup.minScrapeInterval=1ms",)
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


def samples_of(rows):
    """What VictoriaMetrics holds of rows: their numbers, with a label for the database.

    Of a text, for which this is None, it holds 0, or the number that it reads as.
    """
    samples = {}
    for (measurement, tags, time_ns), fields in rows.items():
        labels = tuple(sorted([*tags, ("db", "d")]))
        for name, value in fields.items():
            key = (f"{measurement}_{name}", labels, time_ns // 10**6)
            samples[key] = None if isinstance(value, str) else float(value)
    return samples


@pytest.mark.timeout(TIMEOUT_S)
def test_kills_at_random_moments_lose_and_duplicate_no_committed_row(
    daemon_in, gpus_of, own_influxdb, tmp_path, figures
):
    own_influxdb.query('CREATE DATABASE "d"')
    rng = random.Random(SEED)
    daemon = daemon_in(**gpus_of(GPUS).env())
    states = itertools.cycle(STATES)

    with (
        running(VictoriaMetrics, tmp_path / "vm", "victoria-metrics", options=DEDUPLICATED) as vm,
        FaultyProxy(own_influxdb, lambda: next(states), slow_s=2.0) as one,
        FaultyProxy(vm, lambda: next(states), slow_s=2.0) as two,
    ):
        sinks = "".join(SINK.format(name=url[-5:], url=url) for url in (one.url, two.url))
        daemon.write(LOAD + sinks)
        known, while_starting = kill_often(daemon, rng)
        states = itertools.repeat("available")
        daemon.start(NO_DEVICES + sinks)
        stored = committed(daemon.store)
        daemon.wait_for(lambda: is_drained(daemon.store))
        daemon.stop()
        arrived, ended = own_influxdb.points("d"), committed(daemon.store)
        samples, wanted = samples_of(ended), samples_of(stored)
        found = vm.samples(wanted)
    assert known.items() <= stored.items()
    missing = [key for key in stored if key not in arrived]
    extra = [key for key in arrived if key not in ended]
    missing += [key for key in wanted if key not in found]
    extra += [key for key in found if key not in samples]
    assert (missing, extra) == ([], [])
    assert all(as_numbers(arrived[key]) == pytest.approx(as_numbers(stored[key])) for key in stored)
    numbers = {key: value for key, value in wanted.items() if value is not None}
    assert {key: found[key] for key in numbers} == pytest.approx(numbers, rel=1e-9)
    assert len({*one.seen, *two.seen}) > 1
    assert "Traceback" not in daemon.output.read_text()
    figures(
        "daemon killed under load, with a hostile proxy before both databases",
        kills=KILLS,
        kills_while_starting=while_starting,
        requests_by_state={**(one.seen + two.seen)},
        rows_committed=len(stored),
        rows_lost=len(missing),
        rows_duplicated=len(extra),
    )


def kill_often(daemon, rng):
    """Kill the daemon KILLS times; return every row that was ever committed, and the early kills."""
    known, while_starting = {}, 0
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
    return known, while_starting
