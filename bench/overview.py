"""Duration of the overview that dashboard, report and terminal begin with, on a store of 120 days.

    python bench/overview.py [--days 120] [--repeats 9] [--store FILE]

The store contains eight GPUs, twelve probe series, a service with two models and its cost allocation, at
the resolutions that the defaults keep. Each figure is the median CPU time in ms.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from costprobe.adapters.store.hours import (  # noqa: E402 - as above
    HOURS,
    MINUTES,
    Layouts,
    Tier,
    aggregate,
    encoded,
)
from costprobe.adapters.store.read import StoreReader  # noqa: E402 - as above
from costprobe.adapters.store.write import Store  # noqa: E402 - as above
from costprobe.configuration import Config  # noqa: E402 - as above
from costprobe.core.clock import SystemClock  # noqa: E402 - as above
from costprobe.core.line_protocol import field_set  # noqa: E402 - as above
from costprobe.core.records import NS_PER_S, Point  # noqa: E402 - as above
from costprobe.core.schema import make_point  # noqa: E402 - as above
from costprobe.spend.evaluate import BudgetOverview, budget_overviews  # noqa: E402 - as above
from costprobe.spend.now import day_allocations, host_budgets, paid_currencies  # noqa: E402 - as above
from costprobe.spend.query import SpendBook, Usual  # noqa: E402 - as above
from costprobe.spend.settings import BudgetConfig  # noqa: E402 - as above
from costprobe.ui.host_overview import overview  # noqa: E402 - as above
from past_store import POOL_ROWS, insert_series  # noqa: E402 - found beside this script
from store_size import HOST, device_row, probe_rows  # noqa: E402 - as above

DAY_S, HOUR_S, WINDOW_S = 86_400, 3600, 300
GPUS = 8
PROBES = (
    *((f"gpu{index}", "encoder") for index in range(4)),
    *((f"gpu{index}", "ranker") for index in range(8)),
)
MODELS = ("llama-3.1-8b", "llama-3.1-70b")
BUDGET = {"name": "gpus", "amount": 18_000, "period": "month"}


def fill(path: Path, days: int, end_s: int) -> None:
    """Create the store with rows up to a time."""
    Store.open(path, SystemClock()).close()
    rng = random.Random(4)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("BEGIN")
    for index in range(GPUS):
        rows = [device_row(rng, f"gpu{index}", 10, 0) for _ in range(POOL_ROWS)]
        pool = [
            Point(row.measurement, {**row.tags, "currency": "USD"}, row.fields, 0) for row in rows
        ]
        _write(connection, pool, days, end_s, (7, 30))
    for device, probe in PROBES:
        pairs = [probe_rows(rng, device, 0) for _ in range(POOL_ROWS)]
        for run_rows in zip(*pairs, strict=True):
            named = [
                Point(row.measurement, {**row.tags, "probe": probe}, row.fields, 0)
                for row in run_rows
            ]
            _write(connection, named, days, end_s, (30, 30), WINDOW_S)
    for model in ("", *MODELS):
        _write(
            connection,
            [_served(rng, model) for _ in range(POOL_ROWS)],
            days,
            end_s,
            (30, 30),
            WINDOW_S,
        )
    for index in range(GPUS):
        parts = (
            (("busy", "chat"), ("idle", "chat"), ("probing", ""))
            if index < 4
            else (("unallocated", ""), ("probing", ""))
        )
        for part, service in parts:
            _write(
                connection,
                [_allocated(rng, f"gpu{index}", part, service) for _ in range(POOL_ROWS)],
                days,
                end_s,
                (30, 30),
                WINDOW_S,
            )
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def _write(
    connection: sqlite3.Connection,
    pool: Sequence[Point],
    days: int,
    end_s: int,
    kept_days: tuple[int, int],
    every_s: int = 10,
) -> None:
    """Write a series: as measured, then a row a minute, then a row an hour."""
    series_id = insert_series(connection, pool[0])
    texts = [field_set(point.fields) for point in pool]
    raw_s, minutes_s = (end_s - kept * DAY_S for kept in kept_days)
    connection.executemany(
        "INSERT INTO points (series_id, time_ns, fields) VALUES (?, ?, ?)",
        (
            (series_id, second * NS_PER_S, texts[second // every_s % POOL_ROWS])
            for second in range(raw_s, end_s, every_s)
        ),
    )
    _write_tier(connection, series_id, pool, MINUTES, range(minutes_s, raw_s, 60), every_s)
    _write_tier(
        connection, series_id, pool, HOURS, range(end_s - days * DAY_S, minutes_s, HOUR_S), every_s
    )


def _write_tier(
    connection: sqlite3.Connection,
    series_id: int,
    pool: Sequence[Point],
    tier: Tier,
    seconds: Iterable[int],
    every_s: int,
) -> None:
    layouts = Layouts(connection)
    count = tier.period_s // every_s
    cells = [
        aggregate(
            pool[0].measurement, [pool[(first + more) % POOL_ROWS].fields for more in range(count)]
        )
        for first in range(0, POOL_ROWS, 60)
    ]
    packed = [
        (count, layouts.id_of(sorted(one)), encoded(one, sorted(one), count)) for one in cells
    ]

    def rows() -> Iterator[tuple[object, ...]]:
        for index, second in enumerate(seconds):
            newest_s = second + tier.period_s - every_s
            yield (series_id, second * NS_PER_S, newest_s * NS_PER_S, *packed[index % len(packed)])

    columns = "series_id, time_ns, newest_ns, rows, layout_id, cells"
    sql = f"INSERT INTO {tier.table} ({columns}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608 - literals
    connection.executemany(sql, rows())


def _served(rng: random.Random, model: str) -> Point:
    tags = {
        **HOST,
        "device": "gpu0",
        "service": "chat",
        "served_model": model,
        "basis": "serving",
        "plan": "on_demand",
        "currency": "USD",
    }
    tokens_out, total = rng.uniform(2e5, 9e5), rng.uniform(0.7, 0.8)
    fields = {
        "cost_total": total,
        "cost_idle": total * 0.4,
        "cost_tokens_in": total * 0.3,
        "cost_tokens_out": total * 0.7,
        "tokens_in": 4 * tokens_out,
        "tokens_out": tokens_out,
        "requests": tokens_out / 300,
        "inferences": tokens_out / 300,
        "cost_per_inference": total / tokens_out * 300,
        "cost_per_million_tokens_out": total * 0.7 / tokens_out * 1e6,
        "cost_per_million_tokens_in": total * 0.3 / tokens_out / 4 * 1e6,
        "energy_j": 8e4,
        "window_s": float(WINDOW_S),
        "energy_tokens_in_j": 3e4,
        "energy_tokens_out_j": 5e4,
        "device_s": 1200.0,
        "device_busy_s": 700.0,
    }
    return make_point("cost", tags, fields, 0)


def _allocated(rng: random.Random, device: str, part: str, service: str) -> Point:
    tags = {**HOST, "device": device, "part": part, "service": service, "currency": "USD"}
    cost = rng.uniform(0.05, 0.1)
    return make_point(
        "allocation",
        tags,
        {"cost": cost, "cost_hardware": cost * 0.9, "cost_energy": cost * 0.1},
        0,
    )


def _duration_ms(call: Callable[[], object]) -> float:
    begun_s = time.process_time()
    call()
    return (time.process_time() - begun_s) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.store or Path(folder) / "costprobe.db"
        if not path.exists():
            fill(path, options.days, int(time.time()) // WINDOW_S * WINDOW_S)
        config = Config(budget=(BudgetConfig.model_validate(BUDGET),))
        reader = StoreReader.open(path)
        now_ns = max(row.time_ns for row in reader.last("device", time.time_ns()))
        books: dict[int, SpendBook] = {}

        def months_of() -> list[BudgetOverview]:
            budgets = host_budgets(config.budget, paid_currencies(reader))
            usual = Usual(config.telemetry.aggregate_s)
            return budget_overviews(config.budget, usual, reader, budgets, now_ns, books=books)

        months = months_of()
        calls: dict[str, Callable[[], object]] = {
            "overview": lambda: overview(reader, config, now_ns, months),
            "spend of the month, hours known": months_of,
            "allocation of the day": lambda: day_allocations(reader, months[0].book, now_ns),
        }
        for name, call in calls.items():
            middle_ms = statistics.median(_duration_ms(call) for _ in range(options.repeats))
            print(f"{name}: {middle_ms:.0f} ms")
        reader.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
