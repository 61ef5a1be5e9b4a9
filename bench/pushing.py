"""Delivery throughput: our sinks, influxdb-client's batching, and prepared request bodies.

Each run sends the same rows, as of eight busy GPUs, to an empty VictoriaMetrics and an empty
InfluxDB 1.6.7: from a store by our delivery worker, from `Point`s by influxdb-client's batching
write API (without the time to create the `Point`s), or as prepared bodies in a loop over one
connection. Each run is a separate process, ends with the last acknowledgement, and fails unless the
database then contains every row.

Ours and the peer share all CPUs with the server. The maximum rate of the server is measured with
separate CPUs: the first half for the server and the second for the sender, as if the database ran
on another host.

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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from table import Table, add_json, finish

# Multiples of the peer's rate; InfluxDB 1.6.7 limits both.
GOAL_RATIOS = {"VictoriaMetrics": 5.0, "InfluxDB 1.6.7": 3.0}
# A field of every row of a measurement, for counting rows.
COUNTED_FIELDS = {
    "device": "power_w",
    "probe": "latency_p50_ms",
    "cost": "cost_per_inference",
    "agent": "cpu_s",
}
DATABASE = "bench"
PEER = "influxdb-client batching"
SERVERS = ("VictoriaMetrics", "InfluxDB 1.6.7")
# VictoriaMetrics returns acknowledged rows only after a short delay.
COUNT_TIMEOUT_S = 60.0
# Sender of each run, and whether it has separate CPUs.
RUNS = {
    "drained": ("ours", True),
    "limit": ("bare", True),
    "ours": ("ours", False),
    "peer": ("peer", False),
    "ceiling": ("bare", False),
}
WITHOUT_PEER = ("drained", "limit")
PROGRAM = Path(__file__).with_name("pushing_runs.py")


def run_process(sender: str, folder: Path, points: int, *target: str) -> dict[str, float]:
    """Run a sender in a separate process and return its duration, CPU time and peak memory."""
    command = [sys.executable, str(PROGRAM), sender, str(folder), str(points), *target]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(process.stdout)
    return result


def count_influxdb_rows(server: Any) -> int:
    """Return the number of stored rows."""
    queries = (f'SELECT count("{field}") FROM "{name}"' for name, field in COUNTED_FIELDS.items())  # noqa: S608 - our own names
    return sum(series["values"][0][1] for series in server.query("; ".join(queries), db=DATABASE))


def count_victoria_rows(server: Any) -> int:
    """Return the number of stored rows."""
    from fakes.servers import get

    get(f"{server.url}/internal/force_flush")
    total = 0
    for name, field in COUNTED_FIELDS.items():
        query = f"sum(count_over_time({name}_{field}[600d]))"
        answer = json.loads(get(f"{server.url}/api/v1/query", query=query, nocache=1))
        total += sum(int(series["value"][1]) for series in answer["data"]["result"])
    return total


@contextmanager
def cpu_half(half: int | None) -> Iterator[None]:
    """Restrict processes that are started within to a half of the CPUs, 0 or 1; None for all."""
    cpus = sorted(os.sched_getaffinity(0))
    if half is not None and len(cpus) > 1:
        middle = len(cpus) // 2
        os.sched_setaffinity(0, cpus[middle:] if half else cpus[:middle])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


@contextmanager
def started_server(server_kind: str, data: str, half: int | None) -> Iterator[Any]:
    """Start an empty server on a half of the CPUs."""
    from fakes.servers import InfluxDB, VictoriaMetrics, running

    kind, name = (
        (InfluxDB, "influxd")
        if server_kind == "InfluxDB 1.6.7"
        else (VictoriaMetrics, "victoria-metrics")
    )
    with ExitStack() as stack:
        with cpu_half(half):
            server = stack.enter_context(running(kind, Path(data), name))
        yield server


def measure(
    sender: str, server_kind: str, folder: Path, points: int, *, separate_cpus: bool = False
) -> dict[str, float]:
    """Run a sender against an empty server; return points per second, MB and CPU seconds.

    Raises:
        ValueError: The server does not contain every row.
    """
    server_half, sender_half = (0, 1) if separate_cpus else (None, None)
    # Earlier writes, such as the gigabytes of the store, must not reach the disk during the run.
    os.sync()
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        started_server(server_kind, data, server_half) as server,
    ):
        api, count = ("v2", count_victoria_rows)
        if server_kind == "InfluxDB 1.6.7":
            api, count = ("v1", count_influxdb_rows)
            server.query(f"CREATE DATABASE {DATABASE}")
        with cpu_half(sender_half):
            result = run_process(sender, folder, points, api, server.url)
        ends_s = time.monotonic() + COUNT_TIMEOUT_S
        while (rows := count(server)) < points and time.monotonic() < ends_s:
            time.sleep(1)
    if rows != points:
        raise ValueError(f"{sender}: {server_kind} contains {rows} of {points} rows")
    result["per_s"] = points / result["elapsed_s"]
    print(
        f"  {server_kind}, {sender}{' on separate CPUs' if separate_cpus else ''}:"
        f" {result['per_s']:,.0f}/s, {result['peak_mb']:.0f} MB,"
        f" {result['cpu_s'] / points * 1e6:.1f} us of CPU per point",
        file=sys.stderr,
    )
    return result


def add_results(
    table: Table, server_kind: str, runs: Mapping[str, list[dict[str, float]]], points: int
) -> None:
    """Add the rows of one server, from the medians of its runs."""

    def median(name: str, key: str) -> float:
        return statistics.median(run[key] for run in runs[name])

    rate = {name: median(name, "per_s") for name in runs}
    peak = {name: median(name, "peak_mb") for name in runs}
    if "peer" in rate:
        goal = GOAL_RATIOS[server_kind]
        table.row(
            f"pushing to {server_kind}",
            rate["ours"],
            "points/s",
            peer=rate["peer"],
            peer_name=PEER,
            goal=f"at least {goal:g}x",
            met=rate["ours"] >= goal * rate["peer"],
            note=f"{points:,} points; prepared bodies over one connection: {rate['ceiling']:,.0f}/s,"
            f" {rate['ceiling'] / rate['peer']:.1f}x the peer",
        )
        table.row(
            f"pushing to {server_kind}, peak memory",
            peak["ours"],
            "MB",
            peer=peak["peer"],
            peer_name=PEER,
            goal="at most the peer",
            met=peak["ours"] <= peak["peer"],
            note="resident memory of the process",
        )
    table.row(
        f"draining into {server_kind}",
        rate["drained"],
        "points/s",
        peer=rate["limit"],
        peer_name="prepared bodies in a loop",
        note=f"{points:,} points; {rate['drained'] / rate['limit']:.0%} of the server's maximum rate over"
        f" one connection, each side on separate CPUs; at most {peak['drained']:.0f} MB",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Delivery throughput, compared with a peer.")
    parser.add_argument("--points", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--only", choices=SERVERS)
    add_json(parser)
    options = parser.parse_args()
    selected = WITHOUT_PEER if options.without_peer else tuple(RUNS)
    table = Table()
    with tempfile.TemporaryDirectory(prefix="costprobe-pushing-") as path:
        folder = Path(path)
        run_process("fill", folder, options.points)
        for server_kind in (options.only,) if options.only else SERVERS:
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in selected}
            for _ in range(options.rounds):
                for name, of_name in runs.items():
                    sender, separate_cpus = RUNS[name]
                    of_name.append(
                        measure(
                            sender,
                            server_kind,
                            folder,
                            options.points,
                            separate_cpus=separate_cpus,
                        )
                    )
            add_results(table, server_kind, runs, options.points)
    return finish(table, options.json)


if __name__ == "__main__":
    sys.exit(main())
