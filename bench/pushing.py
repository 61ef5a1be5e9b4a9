"""How fast what is stored leaves: our sinks, influxdb-client's batching, and ready bodies alone.

The same rows, such as eight GPUs at work give, go into a fresh VictoriaMetrics and a fresh
InfluxDB 1.6.7 each time: from a store by our pusher, from `Point`s by influxdb-client's batching
write API (making its `Point`s is not counted), and as bodies made beforehand in a bare loop, which
is what the server takes at most over one connection. Each run is a process of its own, ends when
all is acknowledged, and counts only if the database then holds every row.

Usage: python bench/pushing.py [--points N] [--rounds N] [--json FILE]
"""

import argparse
import http.client
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from itertools import count, islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

GOAL_RATIO, GOAL_PER_S, GOAL_SHARE = 5.0, 100_000.0, 0.9
NS = 1_000_000_000
BODY_POINTS = 5000
BUILT_AT_ONCE = 2000
NEVER = 10**9
# A field that each row of a measurement has, so that rows can be counted.
COUNTED = {
    "device": "power_w",
    "probe": "latency_p50_ms",
    "cost": "cost_per_inference",
    "agent": "cpu_s",
}
DATABASE = "bench"


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
    from agent.clock import SystemClock
    from agent.lineprotocol import render
    from agent.storage.writer import Store

    store = Store.open(folder / "store.db", SystemClock())
    with (folder / "bodies").open("wb") as bodies:
        for chunk in chunks(rows(points), BODY_POINTS):
            store.append(chunk)
            body = "\n".join(map(render, chunk)).encode()
            bodies.write(len(body).to_bytes(8, "big") + body)
    store.close()
    return {}


def ours(folder, points, api, url):
    """Drains the store through a sink, by the daemon's own pusher."""
    from agent.clock import SystemClock
    from agent.config import SinkConfig
    from agent.sinks.pusher import Pusher
    from agent.sinks.registry import build_sink
    from agent.sinks.settings import SinkSettings
    from agent.storage.writer import Store

    defaults = SinkConfig.model_validate(
        {"name": "bench", "api": "v1", "url": url, "database": DATABASE}
    )
    store = Store.open(folder / "store.db", SystemClock())
    name = f"bench {time.time_ns()}"
    store.register_sink(name)
    outbox = store.outbox_of(name, important_first=False, max_points=NEVER)
    sink = build_sink(SinkSettings(api, url, org="o", bucket=DATABASE, database=DATABASE))
    started_s = time.perf_counter()
    pusher = Pusher(
        name,
        outbox,
        sink,
        threading.Event(),
        batch_points=defaults.batch_points,
        flush_every_s=defaults.flush_every_s,
        drain_points_per_s=NEVER,
        rng=random.Random(1),
    )
    while pusher.status()["sent"] < points:
        pusher.step()
        if pusher.status()["failures"]:
            raise OSError(pusher.status()["last_error"])
    elapsed_s = time.perf_counter() - started_s
    store.forget_sink(name)
    sink.close()
    store.close()
    return {"elapsed_s": elapsed_s}


def peer(_folder, points, api, url):
    """Gives the same points to influxdb-client's batching write API."""
    from influxdb_client import InfluxDBClient, Point
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

        client.api_client.call_api = call_api
    failed = []
    options = WriteOptions(batch_size=BODY_POINTS, flush_interval=60_000)
    started_s, building_s = time.perf_counter(), 0.0
    with client.write_api(options, error_callback=lambda _, error: failed.append(error)) as writer:
        source = rows(points)
        while True:
            built_s = time.perf_counter()
            batch = [built(row) for row in islice(source, BUILT_AT_ONCE)]
            building_s += time.perf_counter() - built_s
            if not batch:
                break
            writer.write(DATABASE, record=batch)
    elapsed_s = time.perf_counter() - started_s - building_s
    if failed:
        raise failed[0]
    return {"elapsed_s": elapsed_s}


def bare(folder, _points, api, url):
    """Posts bodies that are ready, one after the other; reading them is not counted."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    path = "/write?" if api == "v1" else "/api/v2/write?"
    path += urllib.parse.urlencode({"db": DATABASE, "bucket": DATABASE, "precision": "ns"})
    elapsed_s = 0.0
    with (folder / "bodies").open("rb") as bodies:
        while head := bodies.read(8):
            body = bodies.read(int.from_bytes(head, "big"))
            started_s = time.perf_counter()
            connection.request("POST", path, body)
            answer = connection.getresponse()
            answer.read()
            elapsed_s += time.perf_counter() - started_s
            if answer.status != http.client.NO_CONTENT:
                raise OSError(f"a body was answered {answer.status}")
    return {"elapsed_s": elapsed_s}


def in_a_process(work, folder, points, api="", url=""):
    """What a run in a process of its own came to, with its peak memory and its CPU time."""
    command = [sys.executable, __file__, "--points", str(points), "--child", work]
    command += [str(folder), api, url]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def child(work, folder, api, url, points):
    """Does one run and prints its figures."""
    works = {"fill": fill, "ours": ours, "peer": peer, "bare": bare}
    more = () if work == "fill" else (api, url)
    found = works[work](Path(folder), points, *more)
    used = resource.getrusage(resource.RUSAGE_SELF)
    found |= {"peak_mb": used.ru_maxrss * 1024 / 1e6, "cpu_s": used.ru_utime + used.ru_stime}
    print(json.dumps(found))


def rows_in_influxdb(server):
    """How many rows it holds."""
    text = "; ".join(f'SELECT count("{field}") FROM "{name}"' for name, field in COUNTED.items())  # noqa: S608 - our own names
    return sum(series["values"][0][1] for series in server.query(text, db=DATABASE))


def rows_in_victoria(server):
    """How many rows it holds."""
    from fakes.servers import get

    get(f"{server.url}/internal/force_flush")
    total = 0
    for name, field in COUNTED.items():
        query = f"sum(count_over_time({name}_{field}[600d]))"
        answer = json.loads(get(f"{server.url}/api/v1/query", query=query, nocache=1))
        total += sum(int(found["value"][1]) for found in answer["data"]["result"])
    return total


def measured(work, server_kind, folder, points):
    """One run against a fresh server: points per second and MB."""
    from fakes.servers import InfluxDB, VictoriaMetrics, running

    with tempfile.TemporaryDirectory(dir=folder) as data:
        if server_kind == "InfluxDB 1.6.7":
            with running(InfluxDB, Path(data), "influxd") as server:
                server.query(f"CREATE DATABASE {DATABASE}")
                found = in_a_process(work, folder, points, "v1", server.url)
                there = rows_in_influxdb(server)
        else:
            with running(VictoriaMetrics, Path(data), "victoria-metrics") as server:
                found = in_a_process(work, folder, points, "v2", server.url)
                ends_s = time.monotonic() + 60
                while (there := rows_in_victoria(server)) < points and time.monotonic() < ends_s:
                    time.sleep(1)
    if there != points:
        raise ValueError(f"{work}: {there} of {points} rows are in {server_kind}")
    found["per_s"] = points / found["elapsed_s"]
    print(
        f"  {server_kind}, {work}: {found['per_s']:,.0f}/s, {found['peak_mb']:.0f} MB,"
        f" {found['cpu_s'] / points * 1e6:.1f} us of CPU a point",
        file=sys.stderr,
    )
    return found


def results_of(server_kind, runs, points):
    """The lines of the table for one server, from the medians of its runs."""

    def median(work, key):
        return statistics.median(run[key] for run in runs[work])

    rate = {work: median(work, "per_s") for work in runs}
    peak = {work: median(work, "peak_mb") for work in runs}
    share = rate["ours"] / rate["bare"]
    note = f"{points:,} points; a bare loop of ready bodies reaches {rate['bare']:,.0f}/s: "
    common = {"issue_line": 2, "peer_name": "influxdb-client batching"}
    return [
        common
        | {
            "name": f"pushing to {server_kind}",
            "ours": rate["ours"],
            "unit": "points/s",
            "peer": rate["peer"],
            "ratio": rate["ours"] / rate["peer"],
            "goal": f"at least {GOAL_RATIO:g}x",
            "met": rate["ours"] >= GOAL_RATIO * rate["peer"],
            "note": note + f"{rate['bare'] / rate['peer']:.1f}x the peer is the ceiling",
        },
        common
        | {
            "name": f"pushing to {server_kind}, peak memory",
            "ours": peak["ours"],
            "unit": "MB",
            "peer": peak["peer"],
            "ratio": peak["ours"] / peak["peer"],
            "goal": "no more than the peer",
            "met": peak["ours"] <= peak["peer"],
            "note": "resident, of the whole process",
        },
        common
        | {
            "name": f"draining into {server_kind}",
            "ours": rate["ours"],
            "unit": "points/s",
            "peer": rate["bare"],
            "peer_name": "ready bodies in a bare loop",
            "ratio": share,
            "goal": f"{GOAL_PER_S:,.0f}/s or the server's limit",
            "met": rate["ours"] >= GOAL_PER_S or share >= GOAL_SHARE,
            "note": f"a share of {share:.0%} of what the server takes over one connection",
        },
    ]


def show(results):
    """Prints the table."""
    print(f"{'what':46} {'ours':>12} {'peer':>12} {'ratio':>6} {'unit':9} goal")
    for line in results:
        met = {True: "met", False: "MISSED", None: ""}[line["met"]]
        there = "-" if line["peer"] is None else f"{line['peer']:,.1f}"
        ratio = "-" if line["ratio"] is None else f"{line['ratio']:.2f}"
        print(
            f"{line['name']:46} {line['ours']:12,.1f} {there:>12} {ratio:>6}"
            f" {line['unit']:9} {line['goal']}: {met}\n    {line['note']}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child, options.points)
        return 0
    results = []
    with tempfile.TemporaryDirectory(prefix="infercost-pushing-") as name:
        folder = Path(name)
        in_a_process("fill", folder, options.points)
        for server_kind in ("VictoriaMetrics", "InfluxDB 1.6.7"):
            runs = {work: [] for work in ("ours", "peer", "bare")}
            for _ in range(options.rounds):
                for work, found in runs.items():
                    found.append(measured(work, server_kind, folder, options.points))
            results += results_of(server_kind, runs, options.points)
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(line["met"] is False for line in results))


if __name__ == "__main__":
    sys.exit(main())
