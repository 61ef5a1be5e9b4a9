"""Size of the store after a year of eight GPUs and a CPU with the defaults, each GPU probed.

Fills a store with rows as the daemon writes them, in simulated time and with a thirtieth of the
retention of rows as measured, until its size is constant. Then measures the bytes per row of each table and multiplies
them with the number of rows that are kept after a year.

Usage: python bench/store_size.py [DAYS]

DAYS is at least 4: runs of probes become hours after three.
"""

import random
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from costprobe.adapters.store.database import WAL_BYTES_KEPT
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.upkeep import (
    HOURS_NS,
    RAW_NS,
    RETENTION_EVERY_S,
    SAMPLED_NS,
    prune,
)
from costprobe.adapters.store.write import Store
from costprobe.configuration import Config
from costprobe.core.records import FieldValue, Point
from costprobe.core.schema import make_point
from costprobe.daemon.parts import AGENT_EVERY_S

GPUS = 8
PROBE_EVERY_S = 300
EVENTS_PER_DAY = 50
DAY_S = 86_400
YEAR_DAYS = 365
NS = 1_000_000_000
START_NS = 1_780_012_800 * NS
# The simulated retention is shorter by this factor.
RETENTION_DIVISOR = 30
GOAL_MB = 1000.0
HOST = {"host": "gpu-node-17.example.com"}
MODEL = "NVIDIA H100 80GB HBM3"


class SimulatedClock:
    """A clock that is set by assigning `now_ns`."""

    def __init__(self) -> None:
        self.now_ns = START_NS

    def time_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def boottime_ns(self) -> int:
        return self.monotonic_ns()


def device_row(rng: random.Random, name: str, every_s: int, time_ns: int) -> Point:
    """Return a row of `device`: all NVML fields of a busy GPU, or the RAPL fields of a CPU."""
    uuid = f"GPU-1f2e3d4c-5b6a-7988-a0b1-{name:>012}"
    tags = {"device": name, "kind": "gpu", "uuid": uuid, "model": MODEL}
    power_w = rng.gauss(420, 90)
    fields: dict[str, FieldValue] = {
        "power_w": power_w,
        "power_max_w": round(power_w * rng.uniform(1, 1.3), 3),
        "energy_j": power_w * every_s * rng.uniform(0.99, 1.01),
        "energy_method": "counter",
        "energy_suspect": False,
        "util_pct": rng.uniform(0, 100),
        "price_rate_per_h": 2.49,
        "cost": 2.49 / 3600 * every_s * rng.uniform(0.999, 1.001),
    }
    if name == "cpu":
        tags |= {"kind": "cpu", "uuid": "", "model": "AMD EPYC 9654 96-Core Processor"}
        fields |= {"energy_method": "rapl", "dram_energy_j": rng.uniform(100, 400)}
    else:
        throttled_s = max(0.0, rng.gauss(-1, 1)) % every_s
        fields |= {
            "mem_util_pct": rng.uniform(0, 100),
            "mem_used_bytes": rng.randrange(60_000, 80_000) * 1_000_003,
            "mem_total_bytes": 85_520_809_984,
            "temp_c": float(rng.randrange(40, 80)),
            "sm_clock_mhz": rng.uniform(1200, 1980),
            "mem_clock_mhz": 2619.0,
            "power_limit_w": 700.0,
            "throttle_power_s": throttled_s,
            "throttle_thermal_s": 0.0,
            "ecc_uncorrected": 0,
            "processes": rng.randrange(1, 4),
        }
    return make_point("device", {**HOST, **tags}, fields, time_ns)


def probe_rows(rng: random.Random, name: str, time_ns: int) -> list[Point]:
    """Return the rows of `probe` and `cost` of a probe run."""
    latency_ms = rng.gauss(12, 0.2)
    tags = {"device": name, "probe": "encoder"}
    numbers = [
        "latency_p50_ms",
        "latency_p90_ms",
        "latency_p99_ms",
        "latency_mean_ms",
        "latency_cv",
        "throughput_per_s",
        "h2d_ms",
        "energy_per_inference_j",
        "energy_above_idle_j",
        "energy_rel_err",
        "throttled_pct",
        "throttled_power_pct",
        "throttled_thermal_pct",
        "sm_clock_mhz",
        "temp_max_c",
        "mem_used_pct",
        "latency_rel_err",
    ]
    fields: dict[str, FieldValue] = {number: latency_ms * rng.uniform(0.5, 2) for number in numbers}
    fields |= {
        "samples": rng.randrange(300, 2000),
        "outliers": rng.randrange(9),
        "ecc_uncorrected": 0,
        "stop_reason": "precise",
        "energy_method": "counter",
        "energy_scope": "device",
        "fingerprint": "3f9ad07c51be2284",
        "contended": False,
        "energy_suspect": False,
    }
    probe = make_point("probe", {**HOST, **tags, "batch": "32"}, fields, time_ns)
    amounts = ["cost_per_inference", "cost_hardware", "cost_energy", "cost_reference"]
    windows = [
        f"rolling_{window}{what}"
        for window in ("1h", "24h", "7d")
        for what in ("", "_iqr", "_coverage")
    ]
    costs = {amount: latency_ms * rng.uniform(1e-6, 2e-6) for amount in amounts + windows}
    tags |= {"basis": "probe", "plan": "on_demand", "currency": "USD"}
    return [
        probe,
        make_point("cost", {**HOST, **tags}, costs | {"energy_method": "counter"}, time_ns),
    ]


def rare_rows(rng: random.Random, second: int, time_ns: int) -> list[Point]:
    """Return a row of `agent`, and sometimes one of `event`."""
    fields: dict[str, FieldValue] = {
        "rss_bytes": rng.randrange(58_000_000, 62_000_000),
        "cpu_s": second * 0.004,
        "outbox_points": 0,
        "outbox_lag_s": rng.uniform(0, 10),
        "sent_points": second,
        "dropped_points": 0,
        "late_jobs": 0,
        "child_restarts": 0,
    }
    rows = [make_point("agent", {**HOST, "version": "0.1.0"}, fields, time_ns)]
    if rng.random() < EVENTS_PER_DAY * AGENT_EVERY_S / DAY_S:
        detail: dict[str, FieldValue] = {
            "severity": "warning",
            "title": "x" * 120,
            "detail": "y" * 300,
            "before": "z" * 20,
        }
        tags = {"kind": "fault", "device": f"gpu{rng.randrange(GPUS)}"}
        rows.append(make_point("event", {**HOST, **tags}, detail, time_ns))
    return rows


def filled(path: Path, days: float) -> tuple[Store, float]:
    """Write rows for some days of simulated time, applying the daemon's retention.

    Returns:
        The store, and the duration of the slowest retention in s.
    """
    rng = random.Random(1)
    clock = SimulatedClock()
    store = Store.open(path, clock)
    every_s = int(Config().telemetry.aggregate_s)
    names = [f"gpu{index}" for index in range(GPUS)]
    pending: list[Point] = []
    slowest_s = 0.0
    for second in range(0, int(days * DAY_S), every_s):
        clock.now_ns = START_NS + second * NS
        pending += [device_row(rng, name, every_s, clock.now_ns) for name in [*names, "cpu"]]
        if second % PROBE_EVERY_S == 0:
            pending += [row for name in names for row in probe_rows(rng, name, clock.now_ns)]
        if second % int(AGENT_EVERY_S) == 0:
            pending += rare_rows(rng, second, clock.now_ns)
        if second % int(RETENTION_EVERY_S) == 0:
            store.append(pending)
            pending = []
            started_s = time.perf_counter()
            store.settle(clock.now_ns, 1000)
            ages_ns = (RAW_NS // RETENTION_DIVISOR, SAMPLED_NS // RETENTION_DIVISOR, HOURS_NS, 0)
            prune(store, KeepSince(*(clock.now_ns - age_ns for age_ns in ages_ns)))
            slowest_s = max(slowest_s, time.perf_counter() - started_s)
    store.append(pending)
    return store, slowest_s


def bytes_per_row(connection: sqlite3.Connection) -> dict[tuple[str, str], float]:
    """Return the bytes of a row with its share of the indexes, by table and measurement."""
    sizes = dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"))
    bytes_by_row = {}
    for table in ("points", "hours"):
        size = sizes[table] + sizes[f"sqlite_autoindex_{table}_1"]
        for measurement, share in row_shares(connection, table):
            bytes_by_row[table, measurement] = size * share
    return bytes_by_row


def row_shares(connection: sqlite3.Connection, table: str) -> list[tuple[str, float]]:
    """Return a row's share of its table for each measurement.

    It consists of the length of its fields and load, and an equal part of the rest for every row.
    """
    length_sql = "length(fields)" + (" + coalesce(length(load), 0)" if table == "hours" else "")
    rows = connection.execute(
        f"SELECT measurement, count(*), sum({length_sql}) FROM {table}"  # noqa: S608 - literals
        f" JOIN series ON series.id = {table}.series_id GROUP BY measurement"
    ).fetchall()
    payload = connection.execute(
        "SELECT sum(payload) FROM dbstat WHERE name = ?", (table,)
    ).fetchone()[0]
    rest = (payload - sum(length for _, _, length in rows)) / sum(count for _, count, _ in rows)
    return [(name, (length / count + rest) / payload) for name, count, length in rows]


def rows_after(days: int) -> dict[tuple[str, str], float]:
    """Return the number of rows that the retention keeps, by table and measurement."""
    per_day = {
        "device": (GPUS + 1) * DAY_S / Config().telemetry.aggregate_s,
        "agent": DAY_S / AGENT_EVERY_S,
        "probe": GPUS * DAY_S / PROBE_EVERY_S,
        "cost": GPUS * DAY_S / PROBE_EVERY_S,
        "event": EVENTS_PER_DAY,
    }
    raw, sampled, hours = (
        min(days, kept_ns / NS / DAY_S) for kept_ns in (RAW_NS, SAMPLED_NS, HOURS_NS)
    )
    rows = {("points", "event"): per_day["event"] * hours}
    for name, series in (("device", GPUS + 1), ("agent", 1), ("probe", GPUS), ("cost", GPUS)):
        rows["points", name] = per_day[name] * (sampled if name in ("probe", "cost") else raw)
        rows["hours", name] = series * 24 * hours
    return rows


def main() -> int:
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    least_days = SAMPLED_NS / RETENTION_DIVISOR / NS / DAY_S + 1
    if not days >= least_days:
        print(f"DAYS: {days:g} is too short for hours of probes; write at least {least_days:g}")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "costprobe.db"
        started_s = time.perf_counter()
        store, slowest_s = filled(path, days)
        took_s = time.perf_counter() - started_s
        with store._database.reading("measure") as connection:  # noqa: SLF001 - reads page sizes
            sizes = bytes_per_row(connection)
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        store.close()
    print(
        f"{GPUS} GPUs and a CPU, {days:g} days in {took_s:.0f} s, slowest retention {slowest_s:.2f} s"
    )
    print(f"{'table':11} {'rows of':8} {'bytes/row':>10} {'rows/year':>11} {'MB':>8}")
    total_mb = 0.0
    for (table, name), rows in rows_after(YEAR_DAYS).items():
        size_mb = sizes[table, name] * rows / 1e6
        total_mb += size_mb
        print(f"{table:11} {name:8} {sizes[table, name]:10.0f} {rows:11,.0f} {size_mb:8.1f}")
    free_share = free / pages
    total_mb = total_mb / (1 - free_share) + WAL_BYTES_KEPT / 1e6
    print(f"with {free_share:.0%} free pages and the log: {total_mb:.0f} MB after a year", end="")
    print(f" (goal: under {GOAL_MB:.0f})" + ("" if total_mb < GOAL_MB else ": MISSED"))
    return int(total_mb >= GOAL_MB)


if __name__ == "__main__":
    sys.exit(main())
