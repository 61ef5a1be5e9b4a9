"""Stored points: rendered to line protocol once, and sent by sinks without changes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from costprobe.core.line_protocol import field_set, parse_series_key, series_key
from costprobe.core.records import Point

TIME_NS_MAX = 2**63 - 2  # the maximum of InfluxDB
CACHED_SERIES_MAX = 10_000


class StoredRow(NamedTuple):
    """A point in line protocol, in its three parts.

    Attributes:
        key: Measurement and tags.
        fields: The field set, never empty.
        time_ns: UTC in ns since 1970.
    """

    key: str
    fields: str
    time_ns: int


def rendered(points: Iterable[Point]) -> list[StoredRow]:
    """Render points to rows; points without fields are skipped.

    Raises:
        ValueError: A point without a measurement or with a time beyond 64 bits.
    """
    rows = []
    for point in points:
        if abs(point.time_ns) > TIME_NS_MAX:
            raise ValueError(f"{point.time_ns} ns does not fit into 64 bits")
        fields = field_set(point.fields)
        if fields:
            rows.append(StoredRow(series_key(point.measurement, point.tags), fields, point.time_ns))
    return rows


class SeriesIds:
    """Cache of series ids."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def clear(self) -> None:
        """Empty the cache, after a rollback or after series were deleted."""
        self._ids.clear()

    def of(self, connection: sqlite3.Connection, key: str) -> int:
        """Return the id of a series; create it if it is new."""
        cached = self._ids.get(key)
        if cached is not None:
            return cached
        if len(self._ids) >= CACHED_SERIES_MAX:
            self._ids.clear()
        measurement, tags = parse_series_key(key)
        connection.execute(
            "INSERT OR IGNORE INTO series (measurement, key, tags) VALUES (?, ?, ?)",
            (measurement, key, json.dumps(tags, ensure_ascii=False)),
        )
        (series_id,) = connection.execute("SELECT id FROM series WHERE key = ?", (key,)).fetchone()
        self._ids[key] = int(series_id)
        return int(series_id)


def insert(connection: sqlite3.Connection, ids: SeriesIds, rows: Sequence[StoredRow]) -> None:
    """Insert rows; a row replaces one of the same identity and gets a new seq."""
    connection.executemany(
        "INSERT OR REPLACE INTO points (series_id, time_ns, fields) VALUES (?, ?, ?)",
        [(ids.of(connection, row.key), row.time_ns, row.fields) for row in rows],
    )
