"""Points as the store keeps them: rendered once, so that a sink sends ready bytes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.lineprotocol import field_set, parse_series_key, series_key
from agent.model import Point

TIME_NS_MAX = 2**63 - 2  # InfluxDB takes no more
SERIES_REMEMBERED_MAX = 10_000


class Row(NamedTuple):
    """A point in line protocol, in its three parts.

    Attributes:
        key: Measurement and tags.
        fields: The field set, never empty.
        time_ns: UTC in ns since 1970.
    """

    key: str
    fields: str
    time_ns: int


def rendered(points: Iterable[Point]) -> list[Row]:
    """The points as rows, without those that have no field.

    Raises:
        ValueError: A point without a measurement or with a time that 64 bits do not hold.
    """
    rows = []
    for point in points:
        if abs(point.time_ns) > TIME_NS_MAX:
            raise ValueError(f"{point.time_ns} ns is no time that can be stored")
        fields = field_set(point.fields)
        if fields:
            rows.append(Row(series_key(point.measurement, point.tags), fields, point.time_ns))
    return rows


class SeriesIds:
    """The numbers of the series, remembered between writes."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def forget(self) -> None:
        """Looks every series up anew: after a transaction was undone, or series were removed."""
        self._ids.clear()

    def of(self, connection: sqlite3.Connection, key: str) -> int:
        """The number of a series; it gets one if it is new."""
        known = self._ids.get(key)
        if known is not None:
            return known
        if len(self._ids) >= SERIES_REMEMBERED_MAX:
            self._ids.clear()
        measurement, tags = parse_series_key(key)
        connection.execute(
            "INSERT OR IGNORE INTO series (measurement, key, tags) VALUES (?, ?, ?)",
            (measurement, key, json.dumps(tags, ensure_ascii=False)),
        )
        (found,) = connection.execute("SELECT id FROM series WHERE key = ?", (key,)).fetchone()
        self._ids[key] = int(found)
        return int(found)


def insert(connection: sqlite3.Connection, ids: SeriesIds, rows: Sequence[Row]) -> None:
    """Writes rows; one with the identity of an older one takes its place under a new seq."""
    connection.executemany(
        "INSERT OR REPLACE INTO points (series_id, time_ns, fields) VALUES (?, ?, ?)",
        [(ids.of(connection, row.key), row.time_ns, row.fields) for row in rows],
    )
