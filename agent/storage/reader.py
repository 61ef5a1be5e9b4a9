"""The store as the command line and other readers see it, also while the daemon writes."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from agent.lineprotocol import number_reader, parse_field_set, written_tags
from agent.model import Point
from agent.storage import notices, outbox, outbox_order, sampling
from agent.storage.database import Database, open_reader, size_bytes
from agent.storage.fold import number_at
from agent.storage.history import Series, SeriesValues
from agent.storage.notices import NotifierStatus
from agent.storage.outbox import RejectedLine, SinkStatus
from agent.storage.rolled import Found, RolledPoint, rolled_line, rolled_point
from agent.storage.rollup import HOURS, MINUTES

# Rows are fetched in chunks, each its own short read: a reader that pauses (an export into a
# pager) must not keep the write-ahead log from being folded back.
_CHUNK_ROWS = 2000
_MERGED_CHUNK_ROWS = 400
_TIME_NS_LIMITS = (-(2**63), 2**63 - 1)

# Every row is in one of these places; they are read in one statement, which sees one instant.
_EVERYWHERE = " UNION ALL ".join(
    f"SELECT time_ns, {period_s} AS period_s, {columns} FROM {table}"  # noqa: S608 - literals
    " WHERE series_id = :series AND time_ns >= :since AND time_ns < :until"
    for table, period_s, columns in (
        ("points", 0, "fields, 0, 0, 0"),
        (MINUTES.table, MINUTES.period_s, "cells, newest_ns, rows, layout_id"),
        (HOURS.table, HOURS.period_s, "cells, newest_ns, rows, layout_id"),
    )
)
_NO_LIMIT = -1
# Rows that came late may be newer as they were measured than rolled up, or older.
_NEWEST_SQL = """SELECT max(time_ns) FROM (
    SELECT max(time_ns) AS time_ns FROM points WHERE series_id = ?
    UNION ALL SELECT max(time_ns) FROM rollups_1m WHERE series_id = ?
    UNION ALL SELECT max(time_ns) FROM rollups_1h WHERE series_id = ?)"""
_ROWS_SQL = f"{_EVERYWHERE} ORDER BY time_ns LIMIT :limit"


class StoreReader:
    """Reads the store without ever making its writer wait.

    Time ranges hold their beginning and not their end. Tags narrow to the series that have all
    of them. Any thread may call any method; all raise StoreError where the file cannot be read.
    """

    def __init__(self, path: Path, database: Database) -> None:
        self.path = path
        self._database = database
        self._layouts: dict[int, list[str]] = {}

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
        *,
        coarsest_s: int = HOURS.period_s,
    ) -> Iterator[Point]:
        """The points of a measurement in the order of their times, each in its finest form.

        What is too old to be kept as it was measured comes as RolledPoint, one a minute or one an
        hour, at the beginning of its period; every row counts in exactly one of all points.

        Args:
            measurement: Name of the series family.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: That a series must have.
            coarsest_s: The longest period, in s, that a rolled row may stand for; others are left
                out. 0 for rows as they were measured alone.
        """
        for _, series, found in self._merged(measurement, since_ns, until_ns, tags):
            if found.period_s <= coarsest_s:
                yield self._point(series, found)

    def lines(self, since_ns: int, until_ns: int, measurement: str | None = None) -> Iterator[str]:
        """Line protocol as it was stored, in the order of the times, without line ends.

        Rolled rows have the tag `rollup` with their period, `1m` or `1h`.
        """
        for time_ns, series, found in self._merged(measurement, since_ns, until_ns, None):
            point = self._point(series, found) if found.period_s else None
            if isinstance(point, RolledPoint):
                yield rolled_line(point)
            else:
                yield f"{series.key} {found.text} {time_ns}"

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
        """What a numeric field was, for each series that has it; of old rows, what it came to.

        Args:
            measurement: Name of the series family.
            field: A field of it.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: That a series must have.
            sample: How many rows to read at most, of all series together; if there are more, so
                many are spread evenly over the time, the first and the last of each series among
                them, and SeriesValues.is_sampled says so. None for every row.
        """
        wanted = self.series(measurement, tags)
        number, found = number_reader(field), []
        for series, is_sampled, rows in self._sample(wanted, since_ns, until_ns, sample):
            own = SeriesValues(series.tags, [], [], is_sampled=is_sampled)
            for row in rows:
                value = self._rolled_number(row, field) if row.period_s else number(row.text)
                if value is not None:
                    own.add(row.time_ns, value, row.period_s)
            if own.values:
                found.append(own)
        return found

    def last(
        self, measurement: str, until_ns: int, tags: Mapping[str, str] | None = None
    ) -> list[Point]:
        """The newest point of each series of a measurement, of those as they were measured.

        Args:
            measurement: Name of the series family.
            until_ns: UTC ns, as a rule of now: a calendar that was wrong leaves later ones.
            tags: That a series must have.
        """
        found = []
        for series in self.series(measurement, tags):
            for time_ns, fields in self._fetch(
                "SELECT time_ns, fields FROM points WHERE series_id = ? AND time_ns <= ?"
                " ORDER BY time_ns DESC LIMIT 1",
                series.id,
                until_ns,
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

    def _point(self, series: Series, found: Found) -> Point:
        if not found.period_s:
            fields = parse_field_set(found.text)
            return Point(series.measurement, series.tags, fields, found.time_ns)
        names = self._names(found.layout_id)
        return rolled_point(series.measurement, series.tags, found, names)

    def _sample(
        self, wanted: Sequence[Series], since_ns: int, until_ns: int, sample: int | None
    ) -> Iterator[tuple[Series, bool, Iterable[Found]]]:
        """Rows of each series, as many as it may have, and whether they are a part of all."""
        since_ns, until_ns = _within_limits(since_ns, until_ns)
        spans = [sampling.Span(series.id, since_ns, until_ns) for series in wanted]
        spread: Sequence[list[Found] | None] = [None] * len(spans)
        if sample is not None:
            with self._database.snapshot("read") as connection:
                spread = sampling.spread(connection, spans, sample)
        for series, rows in zip(wanted, spread, strict=True):
            yield series, rows is not None, rows or self._rows(series, since_ns, until_ns)

    def _rolled_number(self, found: Found, name: str) -> float | None:
        names = self._names(found.layout_id)
        return number_at(found.text, names.index(name)) if name in names else None

    def _names(self, layout_id: int) -> list[str]:
        """The fields of a layout, which never change."""
        if layout_id not in self._layouts:
            ((text,),) = self._fetch("SELECT names FROM layouts WHERE id = ?", layout_id)
            self._layouts[layout_id] = json.loads(text)
        return self._layouts[layout_id]

    def _merged(
        self,
        measurement: str | None,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None,
    ) -> Iterator[tuple[int, Series, Found]]:
        return heapq.merge(
            *(
                self._of_series(series, since_ns, until_ns)
                for series in self.series(measurement, tags)
            ),
            key=itemgetter(0),
        )

    def _of_series(
        self, series: Series, since_ns: int, until_ns: int
    ) -> Iterator[tuple[int, Series, Found]]:
        for found in self._rows(series, since_ns, until_ns, _MERGED_CHUNK_ROWS):
            yield found.time_ns, series, found

    def _rows(
        self, series: Series, since_ns: int, until_ns: int, chunk_rows: int = _CHUNK_ROWS
    ) -> Iterator[Found]:
        """Rows of a series, fetched a chunk at a time.

        A chunk ends with an hour: rows are rolled up within their hour, so what happens between
        two chunks neither hides a row nor shows it twice. Rows that are newer than the newest at
        the beginning are left out: of an hour that was read while it grew, some would be missing.
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

    def _between(self, series: Series, since_ns: int, until_ns: int, limit: int) -> list[Found]:
        with self._database.reading("read") as connection:
            asked = {"series": series.id, "since": since_ns, "until": until_ns, "limit": limit}
            return [Found._make(row) for row in connection.execute(_ROWS_SQL, asked)]


def _within_limits(since_ns: int, until_ns: int) -> tuple[int, int]:
    """A time as far as 64 bits hold it."""
    lowest, highest = _TIME_NS_LIMITS
    return max(since_ns, lowest), min(until_ns, highest)
