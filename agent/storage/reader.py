"""The store as the command line and other readers see it, also while the daemon writes."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from agent.lineprotocol import number_reader, parse_field_set, written_tags
from agent.model import Point
from agent.storage import notices, outbox, outbox_order
from agent.storage.database import Database, open_reader, size_bytes
from agent.storage.notices import NotifierStatus
from agent.storage.outbox import RejectedLine, SinkStatus

# Rows are fetched in chunks, each its own short read: a reader that pauses (an export into a
# pager) must not keep the write-ahead log from being folded back.
_CHUNK_ROWS = 2000
_MERGED_CHUNK_ROWS = 200
_TIME_NS_LIMITS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Series:
    """One series of the store.

    Attributes:
        id: Its number in this store.
        measurement: Name of the series family.
        key: Measurement and tags in line protocol.
        tags: Tag names to values, as databases get them.
    """

    id: int
    measurement: str
    key: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SeriesValues:
    """The numbers that one field of one series took.

    Attributes:
        tags: Tags of the series.
        times_ns: UTC ns, rising.
        values: As many values, in the field's unit.
    """

    tags: Mapping[str, str]
    times_ns: list[int]
    values: list[float]


class StoreReader:
    """Reads the store without ever making its writer wait.

    Time ranges hold their beginning and not their end. Tags narrow to the series that have all
    of them. Any thread may call any method; all raise StoreError where the file cannot be read.
    """

    def __init__(self, path: Path, database: Database) -> None:
        self.path = path
        self._database = database

    @classmethod
    def open(cls, path: Path) -> StoreReader:
        """Opens a store read-only.

        Raises:
            StoreError: There is none, this user may not read it, or it is not this version's.
        """
        return cls(path, open_reader(path))

    def series(
        self, measurement: str | None = None, tags: Mapping[str, str] | None = None
    ) -> list[Series]:
        """The series of a measurement, or all, in the order of their keys."""
        wanted = written_tags(tags or {}).items()
        rows = self._fetch("SELECT id, measurement, key, tags FROM series ORDER BY key")
        found = (Series(number, name, key, json.loads(text)) for number, name, key, text in rows)
        return [
            series
            for series in found
            if measurement in (None, series.measurement) and wanted <= series.tags.items()
        ]

    def points(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
    ) -> Iterator[Point]:
        """The points of a measurement in the order of their times."""
        for time_ns, series, fields in self._merged(measurement, since_ns, until_ns, tags):
            yield Point(measurement, series.tags, parse_field_set(fields), time_ns)

    def lines(self, since_ns: int, until_ns: int, measurement: str | None = None) -> Iterator[str]:
        """Line protocol as it was stored, in the order of the times, without line ends."""
        for time_ns, series, fields in self._merged(measurement, since_ns, until_ns, None):
            yield f"{series.key} {fields} {time_ns}"

    def values(
        self,
        measurement: str,
        field: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
    ) -> list[SeriesValues]:
        """What a numeric field was, for each series that has it."""
        number = number_reader(field)
        found = []
        for series in self.series(measurement, tags):
            times_ns: list[int] = []
            values: list[float] = []
            for time_ns, fields in self._rows(series, since_ns, until_ns, _CHUNK_ROWS):
                value = number(fields)
                if value is not None:
                    times_ns.append(time_ns)
                    values.append(value)
            if values:
                found.append(SeriesValues(series.tags, times_ns, values))
        return found

    def last(self, measurement: str, tags: Mapping[str, str] | None = None) -> list[Point]:
        """The newest point of each series of a measurement."""
        found = []
        for series in self.series(measurement, tags):
            for time_ns, fields in self._fetch(
                "SELECT time_ns, fields FROM points WHERE series_id = ?"
                " ORDER BY time_ns DESC LIMIT 1",
                series.id,
            ):
                point = Point(measurement, series.tags, parse_field_set(fields), time_ns)
                found.append(point)
        return found

    def states(self) -> dict[str, tuple[Any, int]]:
        """Every named document with the UTC ns at which it was kept."""
        rows = self._fetch("SELECT name, document, time_ns FROM states ORDER BY name")
        return {name: (json.loads(document), time_ns) for name, document, time_ns in rows}

    def sinks(self) -> list[SinkStatus]:
        """How every registered sink is doing, by name."""
        with self._database.reading("read") as connection:
            return outbox_order.sinks(connection)

    def notifiers(self) -> list[NotifierStatus]:
        """How every notifier is doing, by name."""
        with self._database.reading("read") as connection:
            return notices.statuses(connection)

    def rejected(self, sink: str) -> list[tuple[int, RejectedLine]]:
        """The newest rows that a sink was refused, with the UTC ns of it, oldest first."""
        rows = self._fetch(
            "SELECT time_ns, line, reason FROM rejected WHERE sink = ? ORDER BY id", sink
        )
        return [(time_ns, RejectedLine(line, reason)) for time_ns, line, reason in rows]

    def dropped_points(self) -> int:
        """Points lost since the store was made: unsent ones past retention, and unstored ones."""
        with self._database.reading("read") as connection:
            return outbox.counted(connection, outbox.DROPPED_POINTS)

    def size_bytes(self) -> int:
        """Bytes that the store takes on the disk, its log included."""
        return size_bytes(self.path)

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def _fetch(self, sql: str, *values: str | int) -> list[Any]:
        with self._database.reading("read") as connection:
            return connection.execute(sql, values).fetchall()

    def _merged(
        self,
        measurement: str | None,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None,
    ) -> Iterator[tuple[int, Series, str]]:
        return heapq.merge(
            *(
                self._of_series(series, since_ns, until_ns)
                for series in self.series(measurement, tags)
            ),
            key=itemgetter(0),
        )

    def _of_series(
        self, series: Series, since_ns: int, until_ns: int
    ) -> Iterator[tuple[int, Series, str]]:
        for time_ns, fields in self._rows(series, since_ns, until_ns, _MERGED_CHUNK_ROWS):
            yield time_ns, series, fields

    def _rows(
        self, series: Series, since_ns: int, until_ns: int, chunk_rows: int
    ) -> Iterator[tuple[int, str]]:
        """Times and field sets of a series, fetched a chunk at a time."""
        lowest, highest = _TIME_NS_LIMITS
        since_ns, until_ns = max(since_ns, lowest), min(until_ns, highest)
        while since_ns < until_ns:
            rows = self._fetch(
                "SELECT time_ns, fields FROM points"
                " WHERE series_id = ? AND time_ns >= ? AND time_ns < ? ORDER BY time_ns LIMIT ?",
                series.id,
                since_ns,
                until_ns,
                chunk_rows,
            )
            yield from rows
            if len(rows) < chunk_rows:
                return
            since_ns = rows[-1][0] + 1
