"""Reading the store, beside the daemon or without one."""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NamedTuple

from agent.lineprotocol import parse_field_set
from agent.model import Point
from agent.storage import database

END_OF_TIME_NS = 2**63 - 1
ROWS_A_FETCH = 500


@dataclass(frozen=True, slots=True)
class SeriesValues:
    """One numeric field of one series.

    Attributes:
        tags: Tags of the series.
        times_ns: UTC in ns, ascending.
        values: As many numbers.
    """

    tags: Mapping[str, str]
    times_ns: tuple[int, ...]
    values: tuple[float, ...]


class _Series(NamedTuple):
    id: int
    key: str
    tags: dict[str, str]


class StoreReader:
    """Queries over the store; each fetches in bounded pieces and holds no lock in between.

    Args:
        opened: The file.
    """

    def __init__(self, opened: database.Database) -> None:
        self._database = opened

    @classmethod
    def open(cls, path: Path) -> StoreReader:
        """Opens a store read-only.

        Raises:
            StoreError: There is none, or it cannot be read.
        """
        return cls(database.open_reader(path))

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def points(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int | None,
        tags: Mapping[str, str] | None = None,
    ) -> Iterator[Point]:
        """Points of a measurement with since <= time <= until, oldest first.

        Args:
            measurement: Name.
            since_ns: UTC in ns.
            until_ns: UTC in ns; None for no end.
            tags: Only series with these.

        Raises:
            StoreError: They cannot be read.
        """
        for time_ns, series, fields in self._rows(measurement, since_ns, until_ns, tags):
            yield Point(measurement, series.tags, parse_field_set(fields), time_ns)

    def lines(self, since_ns: int, until_ns: int | None, measurement: str) -> Iterator[str]:
        """Points of a measurement as line protocol, oldest first.

        Raises:
            StoreError: They cannot be read.
        """
        for time_ns, series, fields in self._rows(measurement, since_ns, until_ns, None):
            yield f"{series.key} {fields} {time_ns}"

    def values(
        self,
        measurement: str,
        field: str,
        since_ns: int,
        until_ns: int | None,
        tags: Mapping[str, str] | None = None,
    ) -> list[SeriesValues]:
        """A numeric field of every series of a measurement, without parsing the other fields.

        Args:
            measurement: Name.
            field: Name.
            since_ns: UTC in ns.
            until_ns: UTC in ns; None for no end.
            tags: Only series with these.

        Raises:
            StoreError: They cannot be read.
        """
        number = re.compile(rf"(?:^|,){re.escape(field)}=(-?[0-9][0-9.e+-]*)")
        found = []
        for series in self._series(measurement, tags):
            with self._database.reading("read") as connection:
                rows = connection.execute(
                    "SELECT time_ns, fields FROM points"
                    " WHERE series_id = ? AND time_ns BETWEEN ? AND ? ORDER BY time_ns",
                    (series.id, since_ns, END_OF_TIME_NS if until_ns is None else until_ns),
                ).fetchall()
            pairs = [
                (time_ns, value)
                for time_ns, fields in rows
                if (value := _number(number, field, fields)) is not None
            ]
            if pairs:
                times_ns, values = zip(*pairs, strict=True)
                found.append(SeriesValues(series.tags, times_ns, values))
        return found

    def states(self) -> dict[str, tuple[Any, int]]:
        """Every named document, with the UTC ns at which it was kept.

        Raises:
            StoreError: They cannot be read.
        """
        with self._database.reading("read") as connection:
            rows = connection.execute("SELECT name, document, time_ns FROM states").fetchall()
        return {name: (json.loads(document), time_ns) for name, document, time_ns in rows}

    def sinks(self) -> dict[str, dict[str, Any]]:
        """Each sink's cursor, backlog and counts.

        Raises:
            StoreError: They cannot be read.
        """
        with self._database.reading("read") as connection:
            rows = connection.execute(
                "SELECT sink, acked_seq, sent_points, rejected_points, acked_ns FROM cursors"
            ).fetchall()
            found = {}
            for sink, acked_seq, sent_points, rejected_points, acked_ns in rows:
                points, oldest_ns = backlog_after(connection, acked_seq)
                found[sink] = {
                    "acked_seq": acked_seq,
                    "sent_points": sent_points,
                    "rejected_points": rejected_points,
                    "acked_ns": acked_ns,
                    "backlog_points": points,
                    "oldest_time_ns": oldest_ns,
                }
        return found

    def _series(self, measurement: str, tags: Mapping[str, str] | None) -> list[_Series]:
        with self._database.reading("read") as connection:
            rows = connection.execute(
                "SELECT id, key, tags FROM series WHERE measurement = ? ORDER BY key",
                (measurement,),
            ).fetchall()
        known = [_Series(series_id, key, json.loads(text)) for series_id, key, text in rows]
        return [series for series in known if not tags or tags.items() <= series.tags.items()]

    def _rows(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int | None,
        tags: Mapping[str, str] | None,
    ) -> Iterator[tuple[int, _Series, str]]:
        """(time_ns, series, fields) in order of time, merged from the series."""
        last_ns = END_OF_TIME_NS if until_ns is None else until_ns
        each = [
            self._rows_of(series, since_ns, last_ns) for series in self._series(measurement, tags)
        ]
        return heapq.merge(*each, key=lambda row: row[0])

    def _rows_of(
        self, series: _Series, since_ns: int, last_ns: int
    ) -> Iterator[tuple[int, _Series, str]]:
        """A series' rows, fetched in pieces: between two of them the daemon may write."""
        while True:
            with self._database.reading("read") as connection:
                rows = connection.execute(
                    "SELECT time_ns, fields FROM points WHERE series_id = ?"
                    " AND time_ns BETWEEN ? AND ? ORDER BY time_ns LIMIT ?",
                    (series.id, since_ns, last_ns, ROWS_A_FETCH),
                ).fetchall()
            for time_ns, fields in rows:
                yield time_ns, series, fields
            if len(rows) < ROWS_A_FETCH:
                return
            since_ns = rows[-1][0] + 1


def backlog_after(connection: Connection, seq: int) -> tuple[int, int | None]:
    """Number of points behind a place of the outbox, and the UTC ns of the first of them."""
    (points,) = connection.execute("SELECT count(*) FROM points WHERE seq > ?", (seq,)).fetchone()
    row = connection.execute(
        "SELECT time_ns FROM points WHERE seq > ? ORDER BY seq LIMIT 1", (seq,)
    ).fetchone()
    return int(points), int(row[0]) if row else None


def _number(pattern: re.Pattern[str], field: str, fields: str) -> float | None:
    """A numeric field of a field set; parsed in full where text in quotes may look like one."""
    match = pattern.search(fields)
    if match is None:
        return None
    if '"' in fields[: match.start()]:
        value = parse_field_set(fields).get(field)
        return float(value) if isinstance(value, int | float) else None
    return float(match[1])
