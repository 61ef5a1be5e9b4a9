"""How fast what is stored leaves: our sinks, influxdb-client's batching, and ready bodies alone.

The same rows, such as eight GPUs at work give, go into a fresh VictoriaMetrics and a fresh
InfluxDB 1.6.7 each time: from a store by our delivery, from `Point`s by influxdb-client's batching
write API (making its `Point`s is not counted), and as prepared bodies in a bare loop over one
connection. Each run is a process of its own, ends when all is acknowledged, and counts only if the
database then holds every row.

Ours and the peer's share all processors with the server. What the server takes at most is measured
apart: it has the first half of the processors and who sends has the other, so that neither takes
time from the other, as where the database is another host.

Usage: python bench/pushing.py [--points N] [--rounds N] [--without-peer] [--only SERVER] [--json FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from table import Table, add_json, finish  # noqa: E402 - the path first

# Times the peer, by server: InfluxDB 1.6.7 itself limits both.
GOAL_RATIOS = {"VictoriaMetrics": 5.0, "InfluxDB 1.6.7": 3.0}
# A field that each row of a measurement has, so that rows can be counted.
COUNTED = {
    "device": "power_w",
    "probe": "latency_p50_ms",
    "cost": "cost_per_inference",
    "agent": "cpu_s",
}
DATABASE = "bench"
SERVERS = ("VictoriaMetrics", "InfluxDB 1.6.7")
# VictoriaMetrics shows what it has acknowledged a little later.
COUNTED_WITHIN_S = 60.0
# By whom, and whether apart from the server.
RUNS_OF = {
    "drained": ("ours", True),
    "limit": ("bare", True),
    "ours": ("ours", False),
    "peer": ("peer", False),
    "ceiling": ("bare", False),
}
WITHOUT_PEER = ("drained", "limit")
PROGRAM = Path(__file__).with_name("pushing_runs.py")


def in_a_process(work, folder, points, *where):
    """What a run in a process of its own came to, with its peak memory and its CPU time."""
    command = [sys.executable, str(PROGRAM), work, str(folder), str(points), *where]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


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


@contextmanager
def processors(half):
    """Lets what is started meanwhile have one half of the processors, 0 or 1; None: all of them."""
    own = sorted(os.sched_getaffinity(0))
    if half is not None and len(own) > 1:
        middle = len(own) // 2
        os.sched_setaffinity(0, own[middle:] if half else own[:middle])
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextmanager
def started(server_kind, data, half):
    """A fresh server on some of the processors."""
    from fakes.servers import InfluxDB, VictoriaMetrics, running

    kind, name = (
        (InfluxDB, "influxd")
        if server_kind == "InfluxDB 1.6.7"
        else (VictoriaMetrics, "victoria-metrics")
    )
    with ExitStack() as stack:
        with processors(half):
            server = stack.enter_context(running(kind, Path(data), name))
        yield server


def measured(work, server_kind, folder, points, *, apart=False):
    """One run against a fresh server, perhaps on processors of its own: points per second and MB."""
    server_half, sender_half = (0, 1) if apart else (None, None)
    # What was written before, as the gigabytes of the store, is not to reach the disk meanwhile.
    os.sync()
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        started(server_kind, data, server_half) as server,
    ):
        api, count = ("v2", rows_in_victoria)
        if server_kind == "InfluxDB 1.6.7":
            api, count = ("v1", rows_in_influxdb)
            server.query(f"CREATE DATABASE {DATABASE}")
        with processors(sender_half):
            found = in_a_process(work, folder, points, api, server.url)
        ends_s = time.monotonic() + COUNTED_WITHIN_S
        while (there := count(server)) < points and time.monotonic() < ends_s:
            time.sleep(1)
    if there != points:
        raise ValueError(f"{work}: {there} of {points} rows are in {server_kind}")
    found["per_s"] = points / found["elapsed_s"]
    print(
        f"  {server_kind}, {work}{' apart' if apart else ''}: {found['per_s']:,.0f}/s, {found['peak_mb']:.0f} MB,"
        f" {found['cpu_s'] / points * 1e6:.1f} us of CPU a point",
        file=sys.stderr,
    )
    return found


def results_of(server_kind, runs, points):
    """The lines of the table for one server, from the medians of its runs."""

    def median(name, key):
        return statistics.median(run[key] for run in runs[name])

    rate = {name: median(name, "per_s") for name in runs}
    peak = {name: median(name, "peak_mb") for name in runs}
    share = rate["drained"] / rate["limit"]
    draining = {
        "issue_line": 2,
        "name": f"draining into {server_kind}",
        "ours": rate["drained"],
        "unit": "points/s",
        "peer": rate["limit"],
        "peer_name": "ready bodies in a bare loop",
        "ratio": share,
        "goal": "",
        "met": None,
        "note": f"{points:,} points; a share of {share:.0%} of what the server takes over one"
        f" connection, each side on processors of its own; {peak['drained']:.0f} MB at most",
    }
    if "peer" not in rate:
        return [draining]
    note = f"{points:,} points; ready bodies over one connection reach {rate['ceiling']:,.0f}/s: "
    common = {"issue_line": 2, "peer_name": "influxdb-client batching"}
    return [
        common
        | {
            "name": f"pushing to {server_kind}",
            "ours": rate["ours"],
            "unit": "points/s",
            "peer": rate["peer"],
            "ratio": rate["ours"] / rate["peer"],
            "goal": f"at least {GOAL_RATIOS[server_kind]:g}x",
            "met": rate["ours"] >= GOAL_RATIOS[server_kind] * rate["peer"],
            "note": note + f"{rate['ceiling'] / rate['peer']:.1f}x the peer is the ceiling",
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
        draining,
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--only", choices=SERVERS)
    add_json(parser)
    options = parser.parse_args()
    wanted = WITHOUT_PEER if options.without_peer else tuple(RUNS_OF)
    results = []
    with tempfile.TemporaryDirectory(prefix="costprobe-pushing-") as path:
        folder = Path(path)
        in_a_process("fill", folder, options.points)
        for server_kind in (options.only,) if options.only else SERVERS:
            runs: dict[str, list[Any]] = {name: [] for name in wanted}
            for _ in range(options.rounds):
                for name, found in runs.items():
                    work, apart = RUNS_OF[name]
                    found.append(measured(work, server_kind, folder, options.points, apart=apart))
            results += results_of(server_kind, runs, options.points)
    return finish(Table(rows=results), options.json)


if __name__ == "__main__":
    sys.exit(main())
