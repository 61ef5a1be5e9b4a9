"""Create a store with a long history, for benchmarks of queries.

It contains one `cost` series every five minutes as measured, and eight devices with a row a minute
as the roll-up aggregates them from ten-second rows, both with complete field sets. The rows are
drawn from a pool of some hundred, so that writing a year takes a minute instead of an hour.
"""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

from costprobe.adapters.store.hours import Layouts, aggregate, encoded
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.line_protocol import field_set, series_key, written_tags
from costprobe.core.records import NS_PER_S, Point
from store_size import GPUS, device_row, probe_rows

DAY_S = 86_400
PROBE_EVERY_S = 300
MINUTE_S = 60
POOL_ROWS = 251  # a prime, so that no daily pattern repeats the pool


def fill(path: Path, days: float, until_ns: int) -> None:
    """Create the store with rows up to a time."""
    Store.open(path, SystemClock()).close()
    rng = random.Random(4)
    connection = sqlite3.connect(path, isolation_level=None)
    # The file is rebuilt after a power loss, so it needs no durability while it is written.
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("BEGIN")
    end_s = until_ns // NS_PER_S // MINUTE_S * MINUTE_S
    _write_costs(connection, rng, days, end_s)
    for index in range(GPUS):
        _write_device(connection, rng, f"gpu{index}", days, end_s)
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def insert_series(connection: sqlite3.Connection, point: Point) -> int:
    key = series_key(point.measurement, point.tags)
    tags = json.dumps(written_tags(point.tags))
    sql = "INSERT INTO series (measurement, key, tags) VALUES (?, ?, ?)"
    rowid = connection.execute(sql, (point.measurement, key, tags)).lastrowid
    if rowid is None:
        raise ValueError("the series was not inserted")
    return rowid


def _write_costs(
    connection: sqlite3.Connection, rng: random.Random, days: float, end_s: int
) -> None:
    pool = [probe_rows(rng, "gpu0", 0)[1] for _ in range(POOL_ROWS)]
    series_id = insert_series(connection, pool[0])
    texts = [field_set(point.fields) for point in pool]
    connection.executemany(
        "INSERT INTO points (series_id, time_ns, fields) VALUES (?, ?, ?)",
        (
            (series_id, second * NS_PER_S, texts[rng.randrange(POOL_ROWS)])
            for second in range(end_s - int(days * DAY_S), end_s, PROBE_EVERY_S)
        ),
    )


def _write_device(
    connection: sqlite3.Connection, rng: random.Random, name: str, days: float, end_s: int
) -> None:
    layouts = Layouts(connection)
    minutes = [[device_row(rng, name, 10, 0) for _ in range(6)] for _ in range(POOL_ROWS)]
    series_id = insert_series(connection, minutes[0][0])
    encoded_rows = []
    for rows in minutes:
        cells = aggregate("device", [row.fields for row in rows])
        names = sorted(cells)
        encoded_rows.append((len(rows), layouts.id_of(names), encoded(cells, names, len(rows))))
    connection.executemany(
        "INSERT INTO rollups_1m (series_id, time_ns, newest_ns, rows, layout_id, cells)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            (
                series_id,
                second * NS_PER_S,
                (second + 50) * NS_PER_S,
                *encoded_rows[rng.randrange(POOL_ROWS)],
            )
            for second in range(end_s - int(days * DAY_S), end_s, MINUTE_S)
        ),
    )
