"""How fast what is stored leaves: our sinks, influxdb-client's batching, and ready bodies alone.

The same rows, such as eight GPUs at work give, go into a fresh VictoriaMetrics and a fresh
InfluxDB 1.6.7 each time: from a store by our pusher, from `Point`s by influxdb-client's batching
write API (making its `Point`s is not counted), and as bodies made beforehand in a bare loop over two
connections, which is what the server takes at most from who has as many. Each run is a process of its own, ends when
all is acknowledged, and counts only if the database then holds every row.

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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from table import Table, add_json, finish  # noqa: E402 - the path first

GOAL_RATIO, GOAL_PER_S, GOAL_SHARE = 5.0, 100_000.0, 0.9
# A field that each row of a measurement has, so that rows can be counted.
COUNTED = {
    "device": "power_w",
    "probe": "latency_p50_ms",
    "cost": "cost_per_inference",
    "agent": "cpu_s",
}
DATABASE = "bench"
SERVERS = ("VictoriaMetrics", "InfluxDB 1.6.7")
RUNS = Path(__file__).with_name("pushing_runs.py")


def in_a_process(work, folder, points, *where):
    """What a run in a process of its own came to, with its peak memory and its CPU time."""
    command = [sys.executable, str(RUNS), work, str(folder), str(points), *where]
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


def measured(work, server_kind, folder, points):
    """One run against a fresh server: points per second and MB."""
    from fakes.servers import InfluxDB, VictoriaMetrics, running

    # What was written before, as the gigabytes of the store, is not to reach the disk meanwhile.
    os.sync()
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
    draining = {
        "issue_line": 2,
        "name": f"draining into {server_kind}",
        "ours": rate["ours"],
        "unit": "points/s",
        "peer": rate["bare"],
        "peer_name": "ready bodies in bare loops",
        "ratio": share,
        "goal": f"{GOAL_PER_S:,.0f}/s or the server's limit",
        "met": rate["ours"] >= GOAL_PER_S or share >= GOAL_SHARE,
        "note": f"{points:,} points; a share of {share:.0%} of what the server takes over two"
        f" connections; {peak['ours']:.0f} MB at most",
    }
    if "peer" not in rate:
        return [draining]
    note = f"{points:,} points; ready bodies over two connections reach {rate['bare']:,.0f}/s: "
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
    works = ("ours", "bare") if options.without_peer else ("ours", "peer", "bare")
    results = []
    with tempfile.TemporaryDirectory(prefix="infercost-pushing-") as name:
        folder = Path(name)
        in_a_process("fill", folder, options.points)
        for server_kind in (options.only,) if options.only else SERVERS:
            runs = {work: [] for work in works}
            for _ in range(options.rounds):
                for work, found in runs.items():
                    found.append(measured(work, server_kind, folder, options.points))
            results += results_of(server_kind, runs, options.points)
    return finish(Table(rows=results), options.json)


if __name__ == "__main__":
    sys.exit(main())
