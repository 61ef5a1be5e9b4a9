"""Finding the rows of series: raw and aggregated ones in one order, in chunks or as a sample."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from costprobe.adapters.storage import summarized
from costprobe.adapters.storage.column_reading import ColumnReading
from costprobe.adapters.storage.database import Database
from costprobe.adapters.storage.errors import StoreError, translated
from costprobe.adapters.storage.history import StoredSeries
from costprobe.adapters.storage.rollup import number_columns, sampling
from costprobe.adapters.storage.rollup.aggregation import number_in
from costprobe.adapters.storage.rollup.rolled import FoundRow, rolled_point
from costprobe.adapters.storage.rollup.rollup import HOURS, MINUTES
from costprobe.adapters.storage.rollup.wanted_cells import WantedCells
from costprobe.core.bounded import bounded_json
from costprobe.core.line_protocol import parse_field_set
from costprobe.core.records import Point
from costprobe.core.row_columns import RowColumns
from costprobe.core.row_spans import RowEnd

# Rows are fetched in chunks, each in its own short read: a reader that pauses (an export into a
# pager) must not block checkpoints of the write-ahead log.
_CHUNK_ROWS = 2000
_MERGED_CHUNK_ROWS = 400
_TIME_NS_LIMITS = (-(2**63), 2**63 - 1)

_NO_LIMIT = -1
# Rows that arrived late: the newest raw row may be older or newer than the newest aggregate.
_NEWEST_SQL = """SELECT max(time_ns) FROM (
    SELECT max(time_ns) AS time_ns FROM points WHERE series_id = ?
    UNION ALL SELECT max(time_ns) FROM rollups_1m WHERE series_id = ?
    UNION ALL SELECT max(time_ns) FROM rollups_1h WHERE series_id = ?)"""


def _rows_sql(order: str = "", cells: str = "cells") -> str:
    """Return a query for rows: every row is in one of its tables, all read in one snapshot."""
    tables = (
        ("points", 0, "fields, 0, 0, 0"),
        (MINUTES.table, MINUTES.period_s, f"{cells}, newest_ns, rows, layout_id"),
        (HOURS.table, HOURS.period_s, f"{cells}, newest_ns, rows, layout_id"),
    )
    all_tables = " UNION ALL ".join(
        f"SELECT time_ns, {period_s} AS period_s, {columns} FROM {table}"  # noqa: S608 - literals
        " WHERE series_id = :series AND time_ns >= :since AND time_ns < :until"
        for table, period_s, columns in tables
    )
    return f"{all_tables} ORDER BY time_ns{order} LIMIT :limit"


_ROWS_SQL, _NEWEST_ROWS_SQL = _rows_sql(), _rows_sql(" DESC")
# Time, end and numeric fields of a row.
NumberRow = tuple[int, RowEnd, tuple[float | None, ...]]


class RowFinder:
    """Finds rows in a store that another process may be writing.

    Time ranges are as of `StoreReader`. Methods are thread-safe.

    Args:
        database: The store, opened for reading.

    Raises:
        StoreError: By all methods, if the file cannot be read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._layouts: dict[int, list[str]] = {}

    def merged(
        self, wanted: Iterable[StoredSeries], since_ns: int, until_ns: int
    ) -> Iterator[tuple[int, StoredSeries, FoundRow]]:
        """Yield time, series and row of all rows of the series, in order of time."""
        found = (self._of_series(series, since_ns, until_ns) for series in wanted)
        return heapq.merge(*found, key=itemgetter(0))

    def newest(
        self, series: StoredSeries, since_ns: int, until_ns: int, limit: int
    ) -> list[FoundRow]:
        """Return the newest rows of a series, the newest first."""
        since_ns, until_ns = _within_limits(since_ns, until_ns)
        found = self._between(series, since_ns, until_ns, limit, _NEWEST_ROWS_SQL)
        return [FoundRow._make(row) for row in found]

    def _of_series(
        self, series: StoredSeries, since_ns: int, until_ns: int
    ) -> Iterator[tuple[int, StoredSeries, FoundRow]]:
        for row in self._rows(series, since_ns, until_ns, _MERGED_CHUNK_ROWS):
            yield row.time_ns, series, row

    def _rows(
        self, series: StoredSeries, since_ns: int, until_ns: int, chunk_rows: int = _CHUNK_ROWS
    ) -> Iterator[FoundRow]:
        chunks = self._chunks(series, since_ns, until_ns, chunk_rows)
        return map(FoundRow._make, chain.from_iterable(chunks))

    def _chunks(
        self,
        series: StoredSeries,
        since_ns: int,
        until_ns: int,
        chunk_rows: int = _CHUNK_ROWS,
        sql: str = _ROWS_SQL,
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Iterate over chunks of the rows of a series, whose first column is the time.

        A chunk ends with an hour: rows are aggregated within their hour, so that aggregation
        between two chunks neither hides nor repeats a row. Rows newer than the newest at the
        start are skipped: an hour that grows while it is read would be incomplete.
        """
        since_ns, until_ns = _within_limits(since_ns, until_ns)
        with self._database.reading("read") as connection:
            ((newest_ns,),) = connection.execute(_NEWEST_SQL, 3 * (series.id,)).fetchall()
        if newest_ns is not None:
            until_ns = min(until_ns, newest_ns + 1)
        while since_ns < until_ns:
            rows = self._between(series, since_ns, until_ns, chunk_rows, sql)
            next_ns = until_ns
            if len(rows) == chunk_rows:
                next_ns = HOURS.floor(rows[-1][0])
                rows = [row for row in rows if row[0] < next_ns]
                if not rows:
                    next_ns = min(next_ns + HOURS.period_ns, until_ns)
                    rows = self._between(series, since_ns, next_ns, _NO_LIMIT, sql)
            yield rows
            since_ns = next_ns

    def _between(
        self, series: StoredSeries, since_ns: int, until_ns: int, limit: int, sql: str
    ) -> list[tuple[Any, ...]]:
        with self._database.reading("read") as connection:
            parameters = {"series": series.id, "since": since_ns, "until": until_ns, "limit": limit}
            return connection.execute(sql, parameters).fetchall()

    def sampled(
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

    def point(self, series: StoredSeries, row: FoundRow) -> Point:
        """Return a row as a point; an aggregated one as RolledPoint."""
        if not row.period_s:
            fields = parse_field_set(row.text)
            return Point(series.measurement, series.tags, fields, row.time_ns)
        names = self._names(row.layout_id)
        return rolled_point(series.measurement, series.tags, row, names)

    def numbers(
        self,
        wanted: Iterable[StoredSeries],
        fields: Sequence[str],
        highest: Sequence[str],
        span_ns: tuple[int, int],
    ) -> Iterator[NumberRow]:
        """Iterate over numeric fields of the rows of each series."""
        sql = number_columns.rows_sql(fields, highest, self._all_layouts())
        for series in wanted:
            for row in chain.from_iterable(self._chunks(series, *span_ns, sql=sql)):
                yield row[0], RowEnd(row[2], row[3]), row[4:]

    def hourly_sums(
        self,
        series: StoredSeries,
        fields: Sequence[str],
        span_ns: tuple[int, int],
        cuts_ns: Sequence[int],
    ) -> dict[str, list[number_columns.Summed]]:
        """Return the sums of totals of a series by the hour, in order of time, by their field."""
        edges_ns = number_columns.hour_edges(*_within_limits(*span_ns), cuts_ns)
        return summarized.hourly_sums(self._database, series, fields, edges_ns, self._all_layouts)

    def points(
        self, wanted: Sequence[StoredSeries], span_ns: tuple[int, int], coarsest_s: int
    ) -> Iterator[Point]:
        """Iterate over the points of the series in order of time; see `StoreReader.points`."""
        found = [self._points_of(series, span_ns, coarsest_s) for series in wanted]
        return heapq.merge(*found, key=attrgetter("time_ns")) if len(found) > 1 else chain(*found)

    def _points_of(
        self, series: StoredSeries, span_ns: tuple[int, int], coarsest_s: int
    ) -> Iterator[Point]:
        for row in self._rows(series, *span_ns, _MERGED_CHUNK_ROWS):
            if row.period_s <= coarsest_s:
                yield self.point(series, row)

    def columns(
        self, series: StoredSeries, span_ns: tuple[int, int], fields: frozenset[str]
    ) -> list[RowColumns]:
        """Return the rows of a series as columns, those of each resolution apart."""
        cells = WantedCells(fields, self._all_layouts(), self._names)
        sql = _rows_sql(cells=cells.sql)
        reading = ColumnReading(series, fields, cells)
        span_ns, hours = _within_limits(*span_ns), list[tuple[int, Any]]()
        if summarized.is_summarized(series, fields):
            hours = summarized.stored(self._database, series, "rows", span_ns)
        reading.read(hours, span_ns, lambda gap_ns: self._chunks(series, *gap_ns, sql=sql))
        return reading.parts()

    def loads(
        self,
        wanted: Iterable[StoredSeries],
        fields: Sequence[str],
        highest: Sequence[str],
        span_ns: tuple[int, int],
        edge_ns: int,
    ) -> tuple[list[tuple[int, Any]], dict[tuple[int, int], list[NumberRow]]]:
        """Return summaries of hours, and rows of the rest; see `StoreReader.loads`."""
        hours, rows = [], dict[tuple[int, int], list[NumberRow]]()
        since_ns, until_ns = _within_limits(*span_ns)
        for series in wanted:
            own = summarized.stored(self._database, series, "load", (since_ns, until_ns))
            hours += own
            for gap in summarized.gaps(own, (since_ns, until_ns)):
                around = max(since_ns, gap[0] - edge_ns), min(until_ns, gap[1] + edge_ns)
                found = self.numbers([series], fields, highest, around)
                rows.setdefault(gap, []).extend(found)
        return hours, rows

    def _all_layouts(self) -> dict[int, list[str]]:
        """Return the field names of every layout."""
        with self._database.reading("read") as connection:
            rows = connection.execute("SELECT id FROM layouts").fetchall()
        return {layout_id: self._names(layout_id) for (layout_id,) in rows}

    def rolled_number(self, row: FoundRow, name: str) -> tuple[float, int] | None:
        """Return an aggregated value and the number of rows that had it."""
        names = self._names(row.layout_id)
        if name not in names:
            return None
        return number_in(stored_json(self._database.path, row.text)[names.index(name)], row.rows)

    def _names(self, layout_id: int) -> list[str]:
        """Return the field names of a layout, which never change."""
        if layout_id not in self._layouts:
            sql, path = "SELECT names FROM layouts WHERE id = ?", self._database.path
            with self._database.reading("read") as connection:
                ((text,),) = connection.execute(sql, (layout_id,)).fetchall()
            names = stored_json(path, text)
            if not isinstance(names, list):
                raise StoreError("read", path, "shape", "the names of fields are no list")
            self._layouts[layout_id] = names
        return self._layouts[layout_id]


def stored_json(path: Path, document: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a document of the store.

    Raises:
        StoreError: It is malformed.
    """
    with translated("read", path):
        return bounded_json(document)


def _within_limits(since_ns: int, until_ns: int) -> tuple[int, int]:
    """Clamp a time range to 64 bits."""
    lowest, highest = _TIME_NS_LIMITS
    return max(since_ns, lowest), min(until_ns, highest)
