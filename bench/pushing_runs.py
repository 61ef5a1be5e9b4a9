"""The runs of `pushing.py`, each in a process of its own: filling, ours, the peer's, bare bodies.

Usage: python bench/pushing_runs.py fill|ours|peer|bare FOLDER POINTS [v1|v2 URL]
"""

import http.client
import json
import random
import resource
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

NS = 1_000_000_000
BODY_POINTS = 5000
AT_ONCE = 2000
NEVER = 10**9
DATABASE = "bench"


class Stopwatch:
    """Wall time and CPU time of this process, without what is left out."""

    def __init__(self):
        self._started = self._now()

    def leave_out(self, work):
        """Does something that does not count."""
        before = self._now()
        done = work()
        self._started = [
            start + after - was
            for start, was, after in zip(self._started, before, self._now(), strict=True)
        ]
        return done

    def stopped(self):
        """Seconds of both."""
        elapsed_s, cpu_s = (
            now - start for now, start in zip(self._now(), self._started, strict=True)
        )
        return {"elapsed_s": elapsed_s, "cpu_s": cpu_s}

    @staticmethod
    def _now():
        return [time.perf_counter(), time.process_time()]


def rows(points):
    """So many rows, as eight GPUs and a CPU give them at one a second, probed every 5 minutes."""
    from store_size import GPUS, PROBE_EVERY_S, START_NS, device_row, probe_rows, rare_rows

    def endless():
        rng = random.Random(1)
        names = [f"gpu{index}" for index in range(GPUS)]
        for second in count():
            time_ns = START_NS + second * NS
            for name in [*names, "cpu"]:
                yield device_row(rng, name, 1, time_ns)
            if second % PROBE_EVERY_S == 0:
                for name in names:
                    yield from probe_rows(rng, name, time_ns)
            if second % 60 == 0:
                yield rare_rows(rng, second, time_ns)[0]

    return islice(endless(), points)


def chunks(source, size):
    """Lists of so many, the last one shorter."""
    while chunk := list(islice(source, size)):
        yield chunk


def fill(folder, points):
    """Puts the rows into a store, and into a file of bodies with their lengths before them."""
    from costprobe.adapters.storage.writer import Store
    from costprobe.core.clock import SystemClock
    from costprobe.core.line_protocol import render

    store = Store.open(folder / "store.db", SystemClock())
    with (folder / "bodies").open("wb") as bodies:
        for chunk in chunks(rows(points), BODY_POINTS):
            store.append(chunk)
            body = "\n".join(map(render, chunk)).encode()
            bodies.write(len(body).to_bytes(8, "big") + body)
    store.close()
    return {}


def ours(folder, points, api, url):
    """Drains the store through a sink, by the daemon's own delivery worker."""
    from costprobe.adapters.sinks.outbox_worker import OutboxWorker
    from costprobe.adapters.sinks.registry import SINKS, build_sink
    from costprobe.adapters.storage.writer import Store
    from costprobe.core.clock import SystemClock

    clock = SystemClock()
    database = {"database": DATABASE} if api == "v1" else {"org": "o", "bucket": DATABASE}
    config = SINKS[api].config.model_validate(
        {"name": f"bench-{time.time_ns()}", "api": api, "url": url, "drain_points_per_s": 10**7}
        | database
    )
    store = Store.open(folder / "store.db", clock)
    store.register_sink(config.name)
    outbox = store.outbox_of(config.name, important_first=False, max_points=NEVER)
    sink = build_sink(config, clock)
    started = Stopwatch()
    worker = OutboxWorker(config, outbox, sink, threading.Event(), clock, rng=random.Random(1))
    while worker.status()["sent"] < points:
        worker.step()
        if worker.status()["failures"]:
            raise OSError(worker.status()["last_error"])
    found = started.stopped()
    store.forget_sink(config.name)
    sink.close()
    store.close()
    return found


def peer(_folder, points, api, url):
    """Gives the same points to influxdb-client's batching write API."""
    from influxdb_client.client.influxdb_client import InfluxDBClient
    from influxdb_client.client.write.point import Point
    from influxdb_client.client.write_api import WriteOptions

    def built(row):
        point = Point(row.measurement).time(row.time_ns)
        for name, value in row.tags.items():
            point.tag(name, value)
        for name, value in row.fields.items():
            point.field(name, value)
        return point

    client = InfluxDBClient(url=url, token="t", org="o", timeout=60_000)  # noqa: S106 - of a server that asks for none
    if api == "v1":
        # It knows /api/v2/write alone, which came with InfluxDB 1.8; all else stays its own.
        plain = client.api_client.call_api

        def call_api(_path, method, path_params, query, *more, **options):
            query = [("db", DATABASE), ("precision", "ns")]
            return plain("/write", method, path_params, query, *more, **options)

        # Assigned by name: mypy rejects the assignment to a method.
        vars(client.api_client)["call_api"] = call_api
    failed = []
    options = WriteOptions(batch_size=BODY_POINTS, flush_interval=60_000)
    source, watch = rows(points), Stopwatch()
    with client.write_api(options, error_callback=lambda _, error: failed.append(error)) as writer:
        while batch := watch.leave_out(lambda: [built(row) for row in islice(source, AT_ONCE)]):
            writer.write(DATABASE, record=batch)
    if failed:
        raise failed[0]
    return watch.stopped()


def bare(folder, _points, api, url):
    """Posts bodies that are ready, over one connection, as a sink of ours has."""
    address = urllib.parse.urlsplit(url)
    path = "/write?" if api == "v1" else "/api/v2/write?"
    path += urllib.parse.urlencode({"db": DATABASE, "bucket": DATABASE, "precision": "ns"})
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    watch = Stopwatch()
    with (folder / "bodies").open("rb") as bodies:
        while body := bodies.read(int.from_bytes(bodies.read(8), "big")):
            connection.request("POST", path, body)
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.NO_CONTENT:
                raise OSError(f"a body was answered {answer.status}")
    return watch.stopped()


def main():
    work, folder, points, *where = sys.argv[1:]
    works: dict[str, Callable[..., dict[str, Any]]] = {
        "fill": fill,
        "ours": ours,
        "peer": peer,
        "bare": bare,
    }
    found = works[work](Path(folder), int(points), *where)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(found | {"peak_mb": peak_bytes / 1e6}))


if __name__ == "__main__":
    main()
