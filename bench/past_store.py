"""A store with a long past, as the daemon would have left it: for benchmarks that ask it.

One `cost` series every five minutes as it was measured, and eight devices one row a minute as
the roll-up makes them of ten-second rows, real field sets both. The rows of a minute are drawn
from a pool of some hundred, so that a year takes a minute to write and not an hour.
"""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

from costprobe.adapters.storage.rollup.aggregation import aggregate, encoded
from costprobe.adapters.storage.rollup.rollup import Layouts
from costprobe.adapters.storage.writer import Store
from costprobe.core.clock import SystemClock
from costprobe.core.line_protocol import field_set, series_key, written_tags
from costprobe.core.records import NS_PER_S
from store_size import GPUS, device_row, probe_rows

DAY_S = 86_400
PROBE_EVERY_S = 300
MINUTE_S = 60
POOL = 251  # prime: no pattern of a day repeats it


def fill(path: Path, days: float, until_ns: int) -> None:
    """Makes the store with rows up to a time."""
    Store.open(path, SystemClock()).close()
    rng = random.Random(4)
    connection = sqlite3.connect(path, isolation_level=None)
    # A benchmark's own file: what a power cut would do to it while it is made matters to nobody.
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("BEGIN")
    end_s = until_ns // NS_PER_S // MINUTE_S * MINUTE_S
    _costs(connection, rng, days, end_s)
    for index in range(GPUS):
        _device(connection, rng, f"gpu{index}", days, end_s)
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def _series(connection: sqlite3.Connection, point) -> int:
    key = series_key(point.measurement, point.tags)
    tags = json.dumps(written_tags(point.tags))
    sql = "INSERT INTO series (measurement, key, tags) VALUES (?, ?, ?)"
    rowid = connection.execute(sql, (point.measurement, key, tags)).lastrowid
    if rowid is None:
        raise ValueError("the series was not inserted")
    return rowid


def _costs(connection: sqlite3.Connection, rng: random.Random, days: float, end_s: int) -> None:
    pool = [probe_rows(rng, "gpu0", 0)[1] for _ in range(POOL)]
    series = _series(connection, pool[0])
    texts = [field_set(point.fields) for point in pool]
    connection.executemany(
        "INSERT INTO points (series_id, time_ns, fields) VALUES (?, ?, ?)",
        (
            (series, second * NS_PER_S, texts[rng.randrange(POOL)])
            for second in range(end_s - int(days * DAY_S), end_s, PROBE_EVERY_S)
        ),
    )


def _device(
    connection: sqlite3.Connection, rng: random.Random, name: str, days: float, end_s: int
) -> None:
    layouts = Layouts(connection)
    minutes = [[device_row(rng, name, 10, 0) for _ in range(6)] for _ in range(POOL)]
    series = _series(connection, minutes[0][0])
    texts = []
    for rows in minutes:
        cells = aggregate("device", [row.fields for row in rows])
        names = sorted(cells)
        texts.append((len(rows), layouts.id_of(names), encoded(cells, names, len(rows))))
    connection.executemany(
        "INSERT INTO rollups_1m (series_id, time_ns, newest_ns, rows, layout_id, cells)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            (series, second * NS_PER_S, (second + 50) * NS_PER_S, *texts[rng.randrange(POOL)])
            for second in range(end_s - int(days * DAY_S), end_s, MINUTE_S)
        ),
    )
