"""Read-only access to the store, also while the daemon writes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from costprobe.adapters.storage import totals
from costprobe.adapters.storage.database import Database, open_reader, size_bytes
from costprobe.adapters.storage.errors import StoreError, translated
from costprobe.adapters.storage.history import SeriesValues, StoredSeries
from costprobe.adapters.storage.outbox import notice_queue as notices
from costprobe.adapters.storage.outbox import outbox, outbox_order
from costprobe.adapters.storage.outbox.notice_queue import NotifierStatus
from costprobe.adapters.storage.outbox.outbox import RejectedLine, SinkStatus
from costprobe.adapters.storage.rollup import sampling
from costprobe.adapters.storage.rollup.aggregation import number_at
from costprobe.adapters.storage.rollup.rolled import (
    FoundRow,
    RolledPoint,
    rolled_line,
    rolled_point,
)
from costprobe.adapters.storage.rollup.rollup import HOURS, MINUTES
from costprobe.core.bounded import bounded_json
from costprobe.core.counters import StoredSample
from costprobe.core.line_protocol import number_reader, parse_field_set, written_tags
from costprobe.core.records import Point
from costprobe.core.row_spans import RowEnd

# Rows are fetched in chunks, each in its own short read: a reader that pauses (an export into a
# pager) must not block checkpoints of the write-ahead log.
_CHUNK_ROWS = 2000
_MERGED_CHUNK_ROWS = 400
_TIME_NS_LIMITS = (-(2**63), 2**63 - 1)

# Every row is in one of these tables; one statement reads all of them in one snapshot.
_ALL_TABLES = " UNION ALL ".join(
    f"SELECT time_ns, {period_s} AS period_s, {columns} FROM {table}"  # noqa: S608 - literals
    " WHERE series_id = :series AND time_ns >= :since AND time_ns < :until"
    for table, period_s, columns in (
        ("points", 0, "fields, 0, 0, 0"),
        (MINUTES.table, MINUTES.period_s, "cells, newest_ns, rows, layout_id"),
        (HOURS.table, HOURS.period_s, "cells, newest_ns, rows, layout_id"),
    )
)
_NO_LIMIT = -1
# Rows that arrived late: the newest raw row may be older or newer than the newest aggregate.
_NEWEST_SQL = """SELECT max(time_ns) FROM (
    SELECT max(time_ns) AS time_ns FROM points WHERE series_id = ?
    UNION ALL SELECT max(time_ns) FROM rollups_1m WHERE series_id = ?
    UNION ALL SELECT max(time_ns) FROM rollups_1h WHERE series_id = ?)"""
_ROWS_SQL = f"{_ALL_TABLES} ORDER BY time_ns LIMIT :limit"
_NEWEST_ROWS_SQL = f"{_ALL_TABLES} ORDER BY time_ns DESC LIMIT :limit"


class StoreReader:
    """Read the store without blocking its writer.

    Time ranges include their start and exclude their end. `tags` selects the series that have all
    of them. Methods are thread-safe and raise StoreError if the file cannot be read.
    """

    def __init__(self, path: Path, database: Database) -> None:
        self.path = path
        self._database = database
        self._layouts: dict[int, list[str]] = {}

    @classmethod
    def open(cls, path: Path) -> StoreReader:
        """Open a store read-only.

        Raises:
            StoreError: It does not exist, is not readable, or has another schema.
        """
        return cls(path, open_reader(path))

    def series(
        self, measurement: str | None = None, tags: Mapping[str, str] | None = None
    ) -> list[StoredSeries]:
        """Return the series of a measurement, or all, in the order of their keys."""
        tag_items = written_tags(tags or {}).items()
        of_name, names = (
            ("", ()) if measurement is None else (" WHERE measurement = ?", (measurement,))
        )
        rows = self._fetch(
            f"SELECT id, measurement, key, tags FROM series{of_name} ORDER BY key",  # noqa: S608 - literals
            *names,
        )
        selected = (
            StoredSeries(number, name, key, self._tags(text)) for number, name, key, text in rows
        )
        return [series for series in selected if tag_items <= series.tags.items()]

    def points(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        coarsest_s: int = HOURS.period_s,
    ) -> Iterator[Point]:
        """Iterate over the points of a measurement in order of time, at the finest stored resolution.

        Rows past their raw retention are returned as RolledPoint, one per minute or hour, at the
        start of its period; every measured row counts in exactly one point.

        Args:
            measurement: Name of the series family.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            coarsest_s: Longest period in s of an aggregated row; longer ones are skipped. 0 for raw
                rows only.
        """
        for _, series, row in self._merged(measurement, since_ns, until_ns, tags):
            if row.period_s <= coarsest_s:
                yield self._point(series, row)

    def lines(self, since_ns: int, until_ns: int, measurement: str | None = None) -> Iterator[str]:
        """Iterate over stored line protocol in order of time, without line ends.

        Aggregated rows have the tag `rollup` with their period, `1m` or `1h`.
        """
        for time_ns, series, row in self._merged(measurement, since_ns, until_ns, None):
            point = self._point(series, row) if row.period_s else None
            if isinstance(point, RolledPoint):
                yield rolled_line(point)
            else:
                yield f"{series.key} {row.text} {time_ns}"

    def values(
        self,
        measurement: str,
        field: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        sample: int | None = None,
    ) -> list[SeriesValues]:
        """Return the values of a numeric field for each series that has it; old rows are aggregated.

        Args:
            measurement: Name of the series family.
            field: Name of the field.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            sample: Most rows to read, of all series together; if there are more, a sample spread
                evenly over the time with the first and last row of each series, and
                SeriesValues.is_sampled is True. None for every row.
        """
        wanted = self.series(measurement, tags)
        number, results = number_reader(field), []
        for series, is_sampled, rows in self._sample(wanted, since_ns, until_ns, sample):
            values = SeriesValues(series.tags, [], [], is_sampled=is_sampled)
            for row in rows:
                if row.period_s:
                    rolled = self._rolled_number(row, field)
                    if rolled is not None:
                        values.add(row.time_ns, rolled[0], RowEnd(row.newest_ns, rolled[1]))
                elif (value := number(row.text)) is not None:
                    values.add(row.time_ns, value)
            if values.values:
                results.append(values)
        return results

    def rows(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        sample: int | None = None,
    ) -> Iterator[Iterator[Point]]:
        """Iterate over the series, and over the points of each, as `points` returns them.

        Args:
            measurement: Name of the series family.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            sample: Most rows to read, as of `values`.
        """
        wanted = self.series(measurement, tags)
        for series, _, found in self._sample(wanted, since_ns, until_ns, sample):
            yield (self._point(series, row) for row in found)

    def last(
        self, measurement: str, until_ns: int, tags: Mapping[str, str] | None = None
    ) -> list[Point]:
        """Return the newest raw point of each series of a measurement.

        Args:
            measurement: Name of the series family.
            until_ns: UTC ns, usually now: a wrong wall clock leaves later points.
            tags: Tags that a series must have.
        """
        points = []
        for series in self.series(measurement, tags):
            for time_ns, fields in self._fetch(
                "SELECT time_ns, fields FROM points WHERE series_id = ? AND time_ns <= ?"
                " ORDER BY time_ns DESC LIMIT 1",
                series.id,
                until_ns,
            ):
                point = Point(measurement, series.tags, parse_field_set(fields), time_ns)
                points.append(point)
        return points

    def newest(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        limit: int,
    ) -> list[Point]:
        """Return the newest points of each series of a measurement, oldest first.

        Rows past their raw retention are returned as by `points`.

        Args:
            measurement: Name of the series family.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            limit: Most points of each series.
        """
        since_ns, until_ns = _within_limits(since_ns, until_ns)
        points = [
            self._point(series, row)
            for series in self.series(measurement, tags)
            for row in self._between(series, since_ns, until_ns, limit, _NEWEST_ROWS_SQL)
        ]
        return sorted(points, key=attrgetter("time_ns"))

    def states(self) -> dict[str, tuple[Any, int]]:
        """Return every state document with the UTC ns of its last change."""
        rows = self._fetch("SELECT name, document, time_ns FROM states ORDER BY name")
        return {name: (self._parsed(document), time_ns) for name, document, time_ns in rows}

    def sinks(self) -> list[SinkStatus]:
        """Return the status of every registered sink, by name."""
        with self._database.reading("read") as connection:
            return outbox_order.sinks(connection)

    def notifiers(self) -> list[NotifierStatus]:
        """Return the status of every notifier, by name."""
        with self._database.reading("read") as connection:
            return notices.statuses(connection)

    def rejected(self, sink: str) -> list[tuple[int, RejectedLine]]:
        """Return the newest rows that a sink rejected, with the UTC ns of the rejection, oldest first."""
        rows = self._fetch(
            "SELECT time_ns, line, reason FROM rejected WHERE sink = ? ORDER BY id", sink
        )
        return [(time_ns, RejectedLine(line, reason)) for time_ns, line, reason in rows]

    def dropped_points(self) -> int:
        """Return the points lost since the store was created: past retention unsent, or never stored."""
        with self._database.reading("read") as connection:
            return outbox.counted(connection, outbox.DROPPED_POINTS)

    def totals(self) -> list[StoredSample]:
        """Return the totals of the counters of `/metrics` since the store was created, by name and labels."""
        with self._database.reading("read") as connection:
            return list(totals.read(connection))

    def size_bytes(self) -> int:
        """Return the size of the store on disk in bytes, log included."""
        return size_bytes(self.path)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _fetch(self, sql: str, *values: str | int) -> list[Any]:
        with self._database.reading("read") as connection:
            return connection.execute(sql, values).fetchall()

    def _parsed(self, document: str) -> Any:  # noqa: ANN401 - any JSON value
        with translated("read", self._database.path):
            return bounded_json(document)

    def _tags(self, document: str) -> dict[str, str]:
        tags = self._parsed(document)
        if isinstance(tags, dict) and all(isinstance(value, str) for value in tags.values()):
            return tags
        raise StoreError(
            "read", self.path, "shape", "the tags of a series have an unexpected shape"
        )

    def _point(self, series: StoredSeries, row: FoundRow) -> Point:
        if not row.period_s:
            fields = parse_field_set(row.text)
            return Point(series.measurement, series.tags, fields, row.time_ns)
        names = self._names(row.layout_id)
        return rolled_point(series.measurement, series.tags, row, names)

    def _sample(
        self, wanted: Sequence[StoredSeries], since_ns: int, until_ns: int, sample: int | None
    ) -> Iterator[tuple[StoredSeries, bool, Iterable[FoundRow]]]:
        """Yield the rows of each series, sampled if necessary, and whether they are a sample."""
        since_ns, until_ns = _within_limits(since_ns, until_ns)
        ranges = [sampling.SeriesRange(series.id, since_ns, until_ns) for series in wanted]
        spread: Sequence[list[FoundRow] | None] = [None] * len(ranges)
        if sample is not None:
            with self._database.snapshot("read") as connection:
                spread = sampling.spread(connection, ranges, sample)
        for series, rows in zip(wanted, spread, strict=True):
            yield series, rows is not None, rows or self._rows(series, since_ns, until_ns)

    def _rolled_number(self, row: FoundRow, name: str) -> tuple[float, int] | None:
        """Return an aggregated value and the number of rows that had it."""
        names = self._names(row.layout_id)
        return number_at(row.text, names.index(name), row.rows) if name in names else None

    def _names(self, layout_id: int) -> list[str]:
        """Return the field names of a layout, which never change."""
        if layout_id not in self._layouts:
            ((text,),) = self._fetch("SELECT names FROM layouts WHERE id = ?", layout_id)
            names = self._parsed(text)
            if not isinstance(names, list):
                raise StoreError("read", self.path, "shape", "the names of fields are no list")
            self._layouts[layout_id] = names
        return self._layouts[layout_id]

    def _merged(
        self,
        measurement: str | None,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None,
    ) -> Iterator[tuple[int, StoredSeries, FoundRow]]:
        return heapq.merge(
            *(
                self._of_series(series, since_ns, until_ns)
                for series in self.series(measurement, tags)
            ),
            key=itemgetter(0),
        )

    def _of_series(
        self, series: StoredSeries, since_ns: int, until_ns: int
    ) -> Iterator[tuple[int, StoredSeries, FoundRow]]:
        for row in self._rows(series, since_ns, until_ns, _MERGED_CHUNK_ROWS):
            yield row.time_ns, series, row

    def _rows(
        self, series: StoredSeries, since_ns: int, until_ns: int, chunk_rows: int = _CHUNK_ROWS
    ) -> Iterator[FoundRow]:
        """Iterate over the rows of a series, fetched in chunks.

        A chunk ends with an hour: rows are aggregated within their hour, so that aggregation
        between two chunks neither hides nor repeats a row. Rows newer than the newest at the
        start are skipped: an hour that grows while it is read would be incomplete.
        """
        since_ns, until_ns = _within_limits(since_ns, until_ns)
        ((newest_ns,),) = self._fetch(_NEWEST_SQL, series.id, series.id, series.id)
        if newest_ns is not None:
            until_ns = min(until_ns, newest_ns + 1)
        while since_ns < until_ns:
            rows = self._between(series, since_ns, until_ns, chunk_rows)
            next_ns = until_ns
            if len(rows) == chunk_rows:
                next_ns = HOURS.floor(rows[-1].time_ns)
                rows = [row for row in rows if row.time_ns < next_ns]
                if not rows:
                    next_ns = min(next_ns + HOURS.period_ns, until_ns)
                    rows = self._between(series, since_ns, next_ns, _NO_LIMIT)
            yield from rows
            since_ns = next_ns

    def _between(
        self, series: StoredSeries, since_ns: int, until_ns: int, limit: int, sql: str = _ROWS_SQL
    ) -> list[FoundRow]:
        with self._database.reading("read") as connection:
            parameters = {"series": series.id, "since": since_ns, "until": until_ns, "limit": limit}
            return [FoundRow._make(row) for row in connection.execute(sql, parameters)]


def _within_limits(since_ns: int, until_ns: int) -> tuple[int, int]:
    """Clamp a time range to 64 bits."""
    lowest, highest = _TIME_NS_LIMITS
    return max(since_ns, lowest), min(until_ns, highest)
