"""How long an answer about the past takes, as the past grows: `trend` and the page's interface.

    python bench/asking.py [--repeats 9] [--store FILE] [--json FILE]

The store holds a year: one series at five minutes and eight devices one row a minute. Asked are
its last 1, 10, 90 and 365 days. `trend` is the command's own function, called in this process once
its modules are loaded, store opened and closed again, table and plot printed into memory. The page
is its application, called as its server calls it, with the JSON it sends. Peers in the same run: a
plain SQLite query that fetches the same rows and does nothing with them, and InfluxDB 1.6.7 asked
for the same figures and curve over HTTP. Each figure is the median of the wall clock; the p90 and the processor time are in the note.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import math
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests")]

from past_store import fill  # noqa: E402 - the path first
from table import Table, add_json, finish  # noqa: E402 - as above

from agent.cli.trend import command as trend  # noqa: E402 - as above
from agent.clock import SystemClock  # noqa: E402 - as above
from agent.dashboard.app import dashboard  # noqa: E402 - as above
from agent.lineprotocol import number_reader  # noqa: E402 - as above
from agent.model import NS_PER_S  # noqa: E402 - as above
from agent.storage.fold import number_at  # noqa: E402 - as above

DAYS = (1, 10, 90, 365)
DAY_S = 86_400
# Of so long a past; the others show how the time grows with it.
GOAL_DAYS, GOAL_MS = 90, 50
SUBLINEAR = 1.0
LEAST_CALLS = 2
BUDGET_S = 6.0  # a peer that takes seconds is asked less often
LINES_AT_ONCE = 20_000
BUCKETS = 200


class Asked(NamedTuple):
    """One question of the issue.

    Attributes:
        name: As it is shown.
        field: The field, with its measurement.
        table: Where its rows are.
    """

    name: str
    field: str
    table: str


QUESTIONS = (
    Asked("one series at 5 min", "cost.cost_per_inference", "points"),
    Asked("eight devices at 1 min", "device.power_w", "rollups_1m"),
)


class Took(NamedTuple):
    """How long an answer took, in ms.

    Attributes:
        median: Of the wall clock.
        p90: Of the wall clock.
        cpu: The median of this process's processor time, which a busy neighbour moves less.
    """

    median: float
    p90: float
    cpu: float


def timed(work: Callable[[], object], repeats: int) -> Took:
    """Times some calls, after one that is not counted."""
    work()
    wall_ms, cpu_ms = [], []
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
    return Took(statistics.median(wall_ms), p90, statistics.median(cpu_ms))


def ask_trend(config: Path, asked: Asked, days: int, *more: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        arguments = ["--since", f"{days}d", "--field", asked.field, *more]
        trend.main(arguments, obj=str(config), standalone_mode=False)
    return said.getvalue()


def page_of(store: Path) -> Callable[[Asked, int], bytes]:
    """The page's application as its server calls it, without the socket."""
    app = dashboard(store, SystemClock()).app
    loop = asyncio.new_event_loop()

    async def get(query: str) -> bytes:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/api/trend",
            "raw_path": b"/api/trend",
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        body, status = bytearray(), [0]

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            status[0] = message.get("status", status[0])
            body.extend(message.get("body", b""))

        await app(scope, receive, send)
        if status[0] != 200:
            raise SystemExit(f"the page answered {status[0]}: {body.decode()}")
        return bytes(body)

    def ask(asked: Asked, days: int) -> bytes:
        return loop.run_until_complete(get(f"field={asked.field}&since={days}d"))

    return ask


def ask_sqlite(store: Path, asked: Asked, days: int) -> int:
    """Fetches every row of the question as text; the number of rows."""
    text = "fields" if asked.table == "points" else "cells"
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    since_ns = time.time_ns() - days * DAY_S * NS_PER_S
    sql = (
        f"SELECT time_ns, {text} FROM {asked.table}"  # noqa: S608 - literals
        " WHERE series_id = ? AND time_ns >= ?"
    )
    name = asked.field.partition(".")[0]
    found = connection.execute("SELECT id FROM series WHERE measurement = ?", (name,)).fetchall()
    rows = sum(1 for (series,) in found for _ in connection.execute(sql, (series, since_ns)))
    connection.close()
    return rows


def ask_influx(server, asked: Asked, days: int) -> object:
    """The figures and the curve that `trend` shows."""
    name, _, field = asked.field.partition(".")
    within = f"FROM {name} WHERE time >= now() - {days}d AND time <= now()"
    every = f"{days * DAY_S // BUCKETS}s"
    figures = ", ".join(f"{f}({field})" for f in ("count", "first", "last", "median", "min", "max"))
    return server.query(
        f"SELECT {figures} {within} GROUP BY device;"
        f" SELECT median({field}) {within} GROUP BY time({every}), device fill(none)",
        db="past",
    )


@contextlib.contextmanager
def influx_with(store: Path, days: int):
    """InfluxDB 1.6.7 with the asked fields of the last days; None where it is not to be or not installed."""
    if days == 0 or not shutil.which("influxd"):
        yield None
        return
    from fakes.servers import InfluxDB

    with tempfile.TemporaryDirectory() as folder:
        server = InfluxDB(Path(folder)).start()
        try:
            server.query("CREATE DATABASE past")
            for lines in lines_of(store, days):
                body = "\n".join(lines).encode()
                request = urllib.request.Request(f"{server.url}/write?db=past", body)  # noqa: S310 - our own server
                urllib.request.urlopen(request, timeout=60).close()  # noqa: S310 - as above
            yield server
        finally:
            server.stop()


def lines_of(store: Path, days: int):
    """The asked fields of the last days in line protocol, some thousand lines at a time."""
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    since_ns = time.time_ns() - days * DAY_S * NS_PER_S
    (names,) = connection.execute("SELECT names FROM layouts").fetchone()
    position = json.loads(names).index("power_w")
    read = number_reader("cost_per_inference")
    readers = {"cost": read, "device": lambda text: number_at(text, position)}
    found = connection.execute("SELECT id, measurement, key FROM series").fetchall()
    for series, name, key in found:
        asked = next(one for one in QUESTIONS if one.field.startswith(name))
        field, text = (
            asked.field.partition(".")[2],
            "fields" if asked.table == "points" else "cells",
        )
        rows = connection.execute(
            f"SELECT time_ns, {text} FROM {asked.table} WHERE series_id = ? AND time_ns >= ?",  # noqa: S608 - literals
            (series, since_ns),
        )
        while batch := rows.fetchmany(LINES_AT_ONCE):
            yield [f"{key} {field}={readers[name](line)} {time_ns}" for time_ns, line in batch]
    connection.close()


def measure(table: Table, store: Path, config: Path, repeats: int, *, influx_days: int) -> None:
    """Adds a row for each question, face and length of the past, and the growth of each."""
    page = page_of(store)
    with influx_with(store, influx_days) as influx:
        for asked in QUESTIONS:
            growth: dict[str, list[float]] = {"trend": [], "page": []}
            for days in DAYS:
                plain = timed(lambda: ask_sqlite(store, asked, days), repeats)  # noqa: B023 - called at once
                rows = ask_sqlite(store, asked, days)
                faces = {
                    "trend": lambda: ask_trend(config, asked, days),  # noqa: B023 - as above
                    "page": lambda: page(asked, days),  # noqa: B023 - as above
                }
                for face, work in faces.items():
                    took = timed(work, repeats)
                    growth[face].append(took.median)
                    table.row(
                        f"{face}: {asked.name}, {days} d",
                        took.median,
                        "ms",
                        peer=plain.median,
                        peer_name="plain SQLite, all rows",
                        goal=f"≤ {GOAL_MS}" if days == GOAL_DAYS else "",
                        note=f"{rows:,} rows; p90 {took.p90:.1f} ms, processor {took.cpu:.1f} ms",
                    )
                if influx is not None and days <= influx_days:
                    other = timed(lambda: ask_influx(influx, asked, days), repeats)  # noqa: B023 - as above
                    table.row(
                        f"trend: {asked.name}, {days} d",
                        growth["trend"][-1],
                        "ms",
                        peer=other.median,
                        peer_name="InfluxDB 1.6.7",
                    )
            add_growth(table, asked, growth)
    exact = timed(lambda: ask_trend(config, QUESTIONS[0], 90, "--exact"), 3)
    table.row(
        f"trend --exact: {QUESTIONS[0].name}, 90 d",
        exact.median,
        "ms",
        note=f"reads every row; processor {exact.cpu:.0f} ms",
    )


def add_growth(table: Table, asked: Asked, growth: dict[str, list[float]]) -> None:
    """How the time of each face grew while the past became 365 times as long."""
    for face, took_ms in growth.items():
        exponent = math.log(took_ms[-1] / took_ms[0]) / math.log(DAYS[-1] / DAYS[0])
        table.row(
            f"{face}: {asked.name}, growth as history to the power of",
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
    parser.add_argument("--long", action="store_true", help="31 repeats, InfluxDB with a year")
    parser.add_argument("--no-influx", action="store_true", help="leave InfluxDB out")
    parser.add_argument("--store", type=Path, help="use this store, or make it and keep it")
    options = parser.parse_args()
    repeats, influx_days = (31, 365) if options.long else (options.repeats, 90)
    if options.no_influx:
        influx_days = 0
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or Path(folder) / "infercost.db"
        if not store.exists():
            began_s = time.perf_counter()
            fill(store, max(DAYS), time.time_ns())
            took_s = time.perf_counter() - began_s
            print(f"a year of rows, {store.stat().st_size / 1e6:,.0f} MB, in {took_s:.0f} s\n")
        config = Path(folder) / "infercost.toml"
        config.write_text(f'[store]\npath = "{store.absolute()}"\n')
        table = Table(issue_line=4)
        measure(table, store, config, repeats, influx_days=influx_days)
    return finish(table, options.json)


if __name__ == "__main__":
    sys.exit(main())
