"""Query latency of `trend` and the dashboard's API as a function of the history's length.

    python bench/query_latency.py [--repeats 9] [--folder FOLDER] [--json FILE]

The store contains a year as retention leaves it (`tests/fakes/sample_host.py`): runs of probes every five minutes for
90 days, and eight devices with a row every ten seconds for 7 days, then rows an hour; writing it takes two minutes.

The queries cover the last 1, 10, 90 and 365 days. `trend` is the command's function, called in this process after its modules are loaded; it opens and closes the store and prints table and plot to
memory. The page is its ASGI application, called without a socket, with its JSON response. The peer is a plain SQLite
query that only fetches the same rows. Each figure is the median wall time; the note contains the p90 and the CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import math
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S
from costprobe.ui.cli.trend import command as trend
from costprobe.ui.dashboard.app import dashboard
from fakes import sample_host
from table import Table, add_json, finish

DAYS = (1, 10, 90, 365)
DAY_S = 86_400
# The goal applies to this length; the others show how the latency grows.
GOAL_DAYS, GOAL_MS = 90, 50
SUBLINEAR = 1.0
LEAST_CALLS = 2
BUDGET_S = 6.0  # a peer that takes seconds is called less often


class MeasuredQuery(NamedTuple):
    """A measured query.

    Attributes:
        name: Display name.
        field: The field, with its measurement.
        tags: Of the series, unless all of the measurement are queried.
    """

    name: str
    field: str
    tags: Mapping[str, str]


QUERIES = (
    MeasuredQuery(
        "one series at 5 min", "cost.cost_per_inference", {"probe": "encoder", "device": "gpu1"}
    ),
    MeasuredQuery("eight devices at 10 s", "device.power_w", {}),
)


class QueryLatency(NamedTuple):
    """Latency of a query, in ms.

    Attributes:
        median: Median wall time.
        p90: 90th percentile of the wall time.
        cpu: Median CPU time of this process, which depends less on other load.
    """

    median: float
    p90: float
    cpu: float


def timed(work: Callable[[], object], repeats: int) -> QueryLatency:
    """Measure repeated calls, after one that is not counted."""
    work()
    wall_ms: list[float] = []
    cpu_ms: list[float] = []
    began_s = time.perf_counter()
    while len(wall_ms) < repeats and (
        len(wall_ms) < LEAST_CALLS or time.perf_counter() - began_s < BUDGET_S
    ):
        start_s, cpu_s = time.perf_counter(), time.process_time()
        work()
        wall_ms.append((time.perf_counter() - start_s) * 1000)
        cpu_ms.append((time.process_time() - cpu_s) * 1000)
    wall_ms.sort()
    p90 = wall_ms[math.ceil(len(wall_ms) * 0.9) - 1]
    return QueryLatency(statistics.median(wall_ms), p90, statistics.median(cpu_ms))


def query_trend(config: Path, query: MeasuredQuery, days: int, *more: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        arguments = ["--since", f"{days}d", "--field", query.field, *more]
        arguments += [word for name, value in query.tags.items() for word in (f"--{name}", value)]
        trend.main(arguments, obj=str(config), standalone_mode=False)
    return output.getvalue()


def page_of(store: Path) -> Callable[[MeasuredQuery, int], bytes]:
    """Return a function that calls the page's ASGI application without a socket."""
    app = dashboard(store, SystemClock())
    loop = asyncio.new_event_loop()

    async def get(query_string: str) -> bytes:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/api/trend",
            "raw_path": b"/api/trend",
            "root_path": "",
            "query_string": query_string.encode(),
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        body, status = bytearray(), [0]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            status[0] = message.get("status", status[0])
            body.extend(message.get("body", b""))

        await app(scope, receive, send)
        if status[0] != 200:
            raise SystemExit(f"the page responded with {status[0]}: {body.decode()}")
        return bytes(body)

    def fetch(query: MeasuredQuery, days: int) -> bytes:
        words = {"field": query.field, "since": f"{days}d", **query.tags}
        return loop.run_until_complete(get("&".join(f"{n}={value}" for n, value in words.items())))

    return fetch


ROWS_SQL = """SELECT time_ns, fields FROM points WHERE series_id = :series AND time_ns >= :since
    UNION ALL SELECT time_ns, fields FROM hours WHERE series_id = :series AND time_ns >= :since
    AND is_reduced"""


def query_sqlite(store: Path, query: MeasuredQuery, days: int) -> int:
    """Fetch every row of the query as text; return the number of rows."""
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    since_ns = time.time_ns() - days * DAY_S * NS_PER_S
    name = query.field.partition(".")[0]
    series = connection.execute("SELECT id, tags FROM series WHERE measurement = ?", (name,))
    rows = sum(
        1
        for number, tags in series.fetchall()
        if query.tags.items() <= json.loads(tags).items()
        for _ in connection.execute(ROWS_SQL, {"series": number, "since": since_ns})
    )
    connection.close()
    return rows


def measure(table: Table, store: Path, config: Path, repeats: int) -> None:
    """Add a row for each query, interface and length of history, and the growth of each."""
    page = page_of(store)
    for query in QUERIES:
        growth: dict[str, list[float]] = {"trend": [], "page": []}
        for days in DAYS:
            plain = timed(lambda: query_sqlite(store, query, days), repeats)  # noqa: B023 - called at once
            rows = query_sqlite(store, query, days)
            interfaces = {
                "trend": lambda: query_trend(config, query, days),  # noqa: B023 - as above
                "page": lambda: page(query, days),  # noqa: B023 - as above
            }
            for interface, work in interfaces.items():
                took = timed(work, repeats)
                growth[interface].append(took.median)
                table.row(
                    f"{interface}: {query.name}, {days} d",
                    took.median,
                    "ms",
                    peer=plain.median,
                    peer_name="plain SQLite, all rows",
                    goal=f"≤ {GOAL_MS}" if days == GOAL_DAYS else "",
                    note=f"{rows:,} rows; p90 {took.p90:.1f} ms, CPU {took.cpu:.1f} ms",
                )
        add_growth(table, query, growth)
    exact = timed(lambda: query_trend(config, QUERIES[0], 90, "--json"), 3)
    table.row(
        f"trend --json: {QUERIES[0].name}, 90 d",
        exact.median,
        "ms",
        note=f"reads every row; CPU {exact.cpu:.0f} ms",
    )


def add_growth(table: Table, query: MeasuredQuery, growth: dict[str, list[float]]) -> None:
    """Add the exponent with which each interface's latency grows with the length of the history."""
    for interface, took_ms in growth.items():
        exponent = math.log(took_ms[-1] / took_ms[0]) / math.log(DAYS[-1] / DAYS[0])
        table.row(
            f"{interface}: {query.name}, latency growth exponent",
            exponent,
            "",
            goal=f"< {SUBLINEAR:g}",
            note=" → ".join(
                f"{days} d: {ms:.1f} ms" for days, ms in zip(DAYS, took_ms, strict=True)
            ),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_json(parser)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="use its store; create it if it does not exist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        config, store = folder / "costprobe.toml", folder / "costprobe.db"
        if not store.exists():
            sample_host.settled(
                sample_host.made(folder, time.time_ns(), max(DAYS), sample_host.FULL),
                time.time_ns(),
            )
            print(f"a year of rows, {store.stat().st_size / 1e6:,.0f} MB\n")
        table = Table()
        measure(table, store, config, options.repeats)
    return finish(table, options.json)


if __name__ == "__main__":
    sys.exit(main())
