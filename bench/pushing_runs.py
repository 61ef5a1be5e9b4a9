"""Senders of `pushing.py`, each in a separate process: fill the store, ours, the peer, bare bodies.

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
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

from costprobe.core.records import Point

NS = 1_000_000_000
BODY_POINTS = 5000
PEER_CHUNK_POINTS = 2000
DATABASE = "bench"
Item = TypeVar("Item")


class Stopwatch:
    """Wall time and CPU time of this process, except that of excluded calls."""

    def __init__(self) -> None:
        self._started_s = self._now_s()

    def exclude(self, call: Callable[[], Item]) -> Item:
        """Return the result of a call whose time is not counted."""
        before_s = self._now_s()
        result = call()
        self._started_s = [
            start + after - before
            for start, before, after in zip(self._started_s, before_s, self._now_s(), strict=True)
        ]
        return result

    def stop(self) -> dict[str, float]:
        """Return the wall seconds and CPU seconds."""
        elapsed_s, cpu_s = (
            now - start for now, start in zip(self._now_s(), self._started_s, strict=True)
        )
        return {"elapsed_s": elapsed_s, "cpu_s": cpu_s}

    @staticmethod
    def _now_s() -> list[float]:
        return [time.perf_counter(), time.process_time()]


def rows(points: int) -> Iterator[Point]:
    """Yield a number of rows, as of eight GPUs and a CPU with one row a second and probes."""
    from store_size import GPUS, PROBE_EVERY_S, START_NS, device_row, probe_rows, rare_rows

    def endless() -> Iterator[Point]:
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


def chunks(source: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items; the last one may be shorter."""
    while chunk := list(islice(source, size)):
        yield chunk


def fill(folder: Path, points: int) -> dict[str, float]:
    """Write the rows to a store, and to a file of request bodies, each after its length."""
    from costprobe.adapters.store.write import Store
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


def ours(folder: Path, points: int, api: str, url: str) -> dict[str, float]:
    """Drain the store through a sink, with the daemon's delivery worker.

    Raises:
        OSError: A request failed.
    """
    from costprobe.adapters.store.write import Store
    from costprobe.core.clock import SystemClock
    from costprobe.delivery.kinds import SINKS, build_sink
    from costprobe.delivery.loop import FlushSchedule, SinkWorker

    clock = SystemClock()
    database = {"database": DATABASE} if api == "v1" else {"org": "o", "bucket": DATABASE}
    config = SINKS[api].config.model_validate(
        {"name": f"bench-{time.time_ns()}", "api": api, "url": url, "drain_points_per_s": 10**7}
        | database
    )
    store = Store.open(folder / "store.db", clock)
    store.register_sink(config.name)
    outbox = store.outbox_of(config.name)
    sink = build_sink(config, clock)
    stopwatch = Stopwatch()
    rng = random.Random(1)
    schedule = FlushSchedule("bench", config.name, 0.0, rng, clock)
    worker = SinkWorker(config, outbox, sink, threading.Event(), clock, rng=rng, schedule=schedule)
    while worker.status()["sent_points"] < points:
        worker.step()
        if worker.status()["failures"]:
            raise OSError(worker.status()["last_error"])
    result = stopwatch.stop()
    store.forget_sink(config.name)
    sink.close()
    store.close()
    return result


def peer(_folder: Path, points: int, api: str, url: str) -> dict[str, float]:
    """Write the same points with influxdb-client's batching write API."""
    from influxdb_client.client.influxdb_client import InfluxDBClient
    from influxdb_client.client.write.point import Point as InfluxPoint
    from influxdb_client.client.write_api import WriteOptions

    def built(row: Point) -> InfluxPoint:
        point: InfluxPoint = InfluxPoint(row.measurement).time(row.time_ns)
        for name, tag in row.tags.items():
            point.tag(name, tag)
        for name, field in row.fields.items():
            point.field(name, field)
        return point

    client = InfluxDBClient(url=url, token="t", org="o", timeout=60_000)  # noqa: S106 - the server requires none
    if api == "v1":
        # The client supports only /api/v2/write, which InfluxDB has since 1.8: replace the path.
        original_call = client.api_client.call_api

        def call_api(
            _path: str,
            method: str,
            path_params: object,
            _query: object,
            *arguments: object,
            **options: object,
        ) -> object:
            query = [("db", DATABASE), ("precision", "ns")]
            return original_call("/write", method, path_params, query, *arguments, **options)

        # Assigned by name: mypy rejects the assignment to a method.
        vars(client.api_client)["call_api"] = call_api
    errors: list[Exception] = []
    options = WriteOptions(batch_size=BODY_POINTS, flush_interval=60_000)
    source, stopwatch = rows(points), Stopwatch()

    def next_chunk() -> list[InfluxPoint]:
        return [built(row) for row in islice(source, PEER_CHUNK_POINTS)]

    with client.write_api(options, error_callback=lambda _, error: errors.append(error)) as writer:
        while chunk := stopwatch.exclude(next_chunk):
            writer.write(DATABASE, record=chunk)
    if errors:
        raise errors[0]
    return stopwatch.stop()


def bare(folder: Path, _points: int, api: str, url: str) -> dict[str, float]:
    """Post prepared bodies over one connection, as our sinks do.

    Raises:
        OSError: A request failed.
    """
    address = urllib.parse.urlsplit(url)
    path = "/write?" if api == "v1" else "/api/v2/write?"
    path += urllib.parse.urlencode({"db": DATABASE, "bucket": DATABASE, "precision": "ns"})
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    stopwatch = Stopwatch()
    with (folder / "bodies").open("rb") as bodies:
        while body := bodies.read(int.from_bytes(bodies.read(8), "big")):
            connection.request("POST", path, body)
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.NO_CONTENT:
                raise OSError(f"a request was answered with {answer.status}")
    return stopwatch.stop()


def main() -> None:
    sender, folder, points, *target = sys.argv[1:]
    senders: dict[str, Callable[..., dict[str, float]]] = {
        "fill": fill,
        "ours": ours,
        "peer": peer,
        "bare": bare,
    }
    result = senders[sender](Path(folder), int(points), *target)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result | {"peak_mb": peak_bytes / 1e6}))


if __name__ == "__main__":
    main()
