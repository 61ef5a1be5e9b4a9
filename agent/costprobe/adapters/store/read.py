"""Rows of a series from the store, as points or columns, raw and rolled up, in order of time.

Access is read-only, also while the daemon writes. Rows are raw, or aggregated to a minute or an
hour, and are found in one order, in chunks or as a sample. Columns hold many rows without an
object for each. Full hours are read from their summaries, where these exist. States, delivery and
counters are read here as well.

A sample of a long history is spread evenly over time and takes time independent of its length:
three months of eight devices are a million rows, of which a chart shows some hundred. The time
range is divided into equal intervals, and in each the row at or after one instant is read. The
position of the instant within its interval varies (golden-ratio sequence), so that the sample
does not alias with hourly or daily patterns.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from costprobe.adapters.store.cursors import (
    NotifierStatus,
    RejectedLine,
    SinkStatus,
    dropped_points,
    notifier_statuses,
    sink_statuses,
)
from costprobe.adapters.store.database import (
    Database,
    StoreError,
    open_reader,
    size_bytes,
    translated,
)
from costprobe.adapters.store.hours import (
    HOURS,
    MINUTES,
    SUMMED,
    Cell,
    SummaryKind,
    Summed,
    WantedCells,
    decoded,
    hour_edges,
    hourly_number_sums,
    number_in,
    read_summaries,
    rows_sql,
    summary_fields,
)
from costprobe.adapters.store.rows import read_totals
from costprobe.core.columns import Column, RowColumns, RowEnd
from costprobe.core.line_protocol import (
    field_set,
    fields_reader,
    number_reader,
    parse_field_set,
    series_key,
    written_tags,
)
from costprobe.core.outside import bounded_json
from costprobe.core.records import FieldValue, Point, natural
from costprobe.core.schema import StoredSample


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """One series of the store.

    Attributes:
        id: Number in this store.
        measurement: Name of the series family.
        key: Measurement and tags in line protocol.
        tags: Tag names to values, as sent to databases.
    """

    id: int
    measurement: str
    key: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SeriesValues:
    """The values of one numeric field of one series.

    Attributes:
        tags: Tags of the series.
        times_ns: UTC ns, ascending; of an aggregated row the start of its period.
        values: One value for each time, in the unit of the field.
        ends: The end of each row, and the number of measured rows with the field in it.
        is_sampled: True if these are a sample, spread evenly over the time range.
    """

    tags: Mapping[str, str]
    times_ns: list[int]
    values: list[float]
    ends: list[RowEnd] = field(default_factory=list)
    is_sampled: bool = False

    def add(self, time_ns: int, value: float, end: RowEnd | None = None) -> None:
        """Append a value newer than all others; without an end it is of a raw row."""
        self.times_ns.append(time_ns)
        self.values.append(value)
        self.ends.append(RowEnd(time_ns) if end is None else end)


# In line protocol an aggregated row is a series of its own, so that no sum counts a value twice.
ROLLUP_TAG: Final = "rollup"
_PERIOD_NAMES: Final = {60: "1m", 3600: "1h"}


@dataclass(frozen=True, slots=True)
class RolledPoint(Point):
    """Aggregate of the rows of a minute or an hour; its time is the start of the period.

    Fields are sums of totals (joules, money, seconds of throttling), means of readings, medians of
    samples of `probe` and `cost`, maxima of maxima, the newest of counters, settings and texts, and
    true if any value was (`complete`: if all were). A row that arrived after its period was
    aggregated is separate until the next aggregation.

    Attributes:
        period_s: Length of the period in s.
        rows: Number of aggregated rows.
        newest_ns: UTC ns of the newest of them.
        cells: For each field also the number of rows that had it, and the range of a mean or median.
    """

    period_s: int
    rows: int
    newest_ns: int
    cells: Mapping[str, Cell]


class FoundRow(NamedTuple):
    """One row of the file.

    Attributes:
        time_ns: UTC ns; of an aggregated row the start of its period.
        period_s: Length of its period in s; 0 for a raw row.
        text: Field set, or encoded cells.
        newest_ns: UTC ns of the newest aggregated row; 0 for a raw row.
        rows: Number of aggregated rows; 0 for a raw row.
        layout_id: Layout of its cells; 0 for a raw row.
    """

    time_ns: int
    period_s: int
    text: str
    newest_ns: int
    rows: int
    layout_id: int


def rolled_point(
    measurement: str,
    tags: Mapping[str, str],
    row: FoundRow,
    names: Sequence[str],
) -> RolledPoint:
    """Decode an aggregated row."""
    cells = decoded(row.text, names, row.rows)
    return RolledPoint(
        measurement,
        tags,
        {name: cell.value for name, cell in cells.items()},
        row.time_ns,
        row.period_s,
        row.rows,
        row.newest_ns,
        cells,
    )


def tags_with_period(point: Point) -> Mapping[str, str]:
    """Return the tags of a point, with the period of an aggregated one."""
    if isinstance(point, RolledPoint):
        return {**point.tags, ROLLUP_TAG: _PERIOD_NAMES[point.period_s]}
    return point.tags


def rolled_line(point: RolledPoint) -> str:
    """Render an aggregated row: tagged with its period, with ranges as further fields."""
    fields: dict[str, FieldValue] = {}
    for name, cell in point.cells.items():
        fields[name] = cell.value
        if cell.low is not None and cell.high is not None:
            fields[f"{name}_min"], fields[f"{name}_max"] = cell.low, cell.high
    fields["rows"] = point.rows
    return f"{series_key(point.measurement, tags_with_period(point))} {field_set(fields)} {point.time_ns}"


_PERIOD_AND_LAYOUT: Final = itemgetter(
    FoundRow._fields.index("period_s"), FoundRow._fields.index("layout_id")
)


class ColumnReading:
    """Collects the rows of a series, those of each resolution apart.

    Args:
        series: The series.
        fields: Fields that are needed.
        cells: Those of aggregated rows: the text of such a row is what its `sql` returns.
    """

    def __init__(
        self,
        series: StoredSeries,
        fields: frozenset[str],
        cells: WantedCells,
    ) -> None:
        self._series = series
        self._fields = fields
        self._cells = cells
        self._read = fields_reader(fields)
        self._parts: dict[int, RowColumns] = {}

    def parts(self) -> list[RowColumns]:
        """Return the rows, the coarsest resolution first."""
        return [self._parts[period_s] for period_s in sorted(self._parts, reverse=True)]

    def read(
        self,
        hours: Iterable[tuple[int, Any]],
        span: tuple[int, int],
        chunks_in: Callable[[tuple[int, int]], Iterable[Sequence[tuple[Any, ...]]]],
    ) -> None:
        """Collect the rows of a span.

        Args:
            hours: Its summaries of the kind `rows`, in order of time.
            span: UTC ns.
            chunks_in: Returns the rows of a span without summaries, in order of time, each with the
                attributes of `FoundRow`.
        """
        at_ns, until_ns = span
        for hour_ns, (offsets_ns, columns) in hours:
            if at_ns < hour_ns:
                self._add_rows(chunks_in((at_ns, hour_ns)))
            wanted = {name: column for name, column in columns.items() if name in self._fields}
            times_ns = [hour_ns + offset_ns for offset_ns in offsets_ns]
            self._part(0).append(times_ns, times_ns, wanted)
            at_ns = hour_ns + HOURS.period_ns
        if at_ns < until_ns:
            self._add_rows(chunks_in((at_ns, until_ns)))

    def _part(self, period_s: int) -> RowColumns:
        if period_s not in self._parts:
            self._parts[period_s] = RowColumns(self._series.tags, period_s=period_s)
        return self._parts[period_s]

    def _add_rows(self, chunks: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        for rows in chunks:
            for (period_s, layout_id), group in groupby(rows, _PERIOD_AND_LAYOUT):
                times_ns, _, texts, ends_ns, _, _ = zip(*group, strict=True)
                if period_s:
                    columns = self._rolled_columns(layout_id, texts)
                else:
                    ends_ns, columns = times_ns, self._raw_columns(texts)
                self._part(period_s).append(times_ns, ends_ns, columns)

    def _rolled_columns(self, layout_id: int, texts: Sequence[str]) -> dict[str, Column]:
        names, rows = self._cells.decoded(layout_id, texts)
        return {
            name: [cell[0] if isinstance(cell, list) else cell for cell in column]
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
            if name in self._fields
        }

    def _raw_columns(self, texts: Sequence[str]) -> dict[str, Column]:
        rows = [self._read(text) for text in texts]
        return {name: [row.get(name) for row in rows] for name in {n for row in rows for n in row}}


# Fractional parts of its multiples fill the unit interval evenly (low-discrepancy sequence).
_GOLDEN: Final = 0.6180339887498949

# Fewest rows that are read of a series, however many series there are.
SHARE_ROWS_MIN: Final = 32


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of rows.

    Attributes:
        name: Name of the table.
        period_s: Length in s of the period of a row; 0 for raw rows.
        columns: Columns of `FoundRowRow` after time and period.
    """

    name: str
    period_s: int
    columns: str


_TABLES: Final = (
    _Table("points", 0, "fields, 0, 0, 0"),
    _Table(MINUTES.table, MINUTES.period_s, "cells, newest_ns, rows, layout_id"),
    _Table(HOURS.table, HOURS.period_s, "cells, newest_ns, rows, layout_id"),
)
_WITHIN = "series_id = :series AND time_ns >= :since AND time_ns < :until"


@dataclass(frozen=True, slots=True)
class SeriesRange:
    """The rows of a series in a time range; the end is excluded.

    Attributes:
        series_id: Id of the series.
        since_ns: UTC ns.
        until_ns: UTC ns.
    """

    series_id: int
    since_ns: int
    until_ns: int

    def parameters(self, **more: int | str) -> dict[str, int | str]:
        """Return the parameters of a statement."""
        return {
            "series": self.series_id,
            "since": self.since_ns,
            "until": self.until_ns,
            **more,
        }


def samples_of_series(
    connection: sqlite3.Connection, ranges: Sequence[SeriesRange], sample: int
) -> list[list[FoundRow] | None]:
    """Return a sample for each series; None where every row is to be read.

    Args:
        connection: The store, in a transaction: a row aggregated meanwhile would be missed.
        ranges: The rows of each series.
        sample: Most rows of all series together, unless there are very many series. Looking up a
            row takes longer than reading it in order: of a longer history two thirds are sampled.
    """
    # Counting takes time too: first up to an equal share, then up to what other series leave.
    even = max(SHARE_ROWS_MIN, sample // max(1, len(ranges)))
    counts = [count_rows(connection, range_, even + 1) for range_ in ranges]
    long = sum(count > even for count in counts)
    left = sample - sum(count for count in counts if count <= even)
    share = max(even, left // max(1, long))
    return [
        None
        if count <= even or count_rows(connection, range_, share + 1) <= share
        else spread_rows(connection, range_, max(SHARE_ROWS_MIN, share * 2 // 3))
        for range_, count in zip(ranges, counts, strict=True)
    ]


def count_rows(connection: sqlite3.Connection, range_: SeriesRange, limit: int) -> int:
    """Count rows, up to about `limit`.

    Args:
        connection: The store.
        range_: The rows.
        limit: Greater than 0.
    """
    total = 0
    for table in _TABLES:
        sql = (
            f"SELECT count(*) FROM (SELECT 1 FROM {table.name}"  # noqa: S608 - literals
            f" WHERE {_WITHIN} LIMIT :limit)"
        )
        (count,) = connection.execute(sql, range_.parameters(limit=limit)).fetchone()
        total += count
    return total


def spread_rows(connection: sqlite3.Connection, range_: SeriesRange, count: int) -> list[FoundRow]:
    """Return about `count` rows in order of time: the first, the last, and one of each interval.

    An interval without a row adds none; if two tables have one, the earlier counts.

    Args:
        connection: The store, in a transaction.
        range_: The rows.
        count: Number of intervals; greater than 0.
    """
    bounds = [(table, *_bounds(connection, range_, table)) for table in _TABLES]
    held = [(table, first, last) for table, first, last in bounds if first is not None]
    if not held:
        return []
    first_ns, last_ns = min(first for _, first, _ in held), max(last for _, _, last in held)
    step_ns = max(1, (last_ns - first_ns) // count)
    times_ns = [
        first_ns,
        *(first_ns + int(step_ns * (index + index * _GOLDEN % 1)) for index in range(count)),
        last_ns,
    ]
    nearest: dict[int, FoundRow] = {}
    for table, first, last in held:
        near = [time_ns for time_ns in times_ns if first - step_ns <= time_ns <= last]
        for time_ns, row in zip(near, _at_or_after(connection, range_, table, near), strict=True):
            previous = nearest.get(time_ns)
            if previous is None or row.time_ns < previous.time_ns:
                nearest[time_ns] = row
    rows = {(row.time_ns, row.period_s): row for row in nearest.values()}
    return [rows[key] for key in sorted(rows)]


def _bounds(
    connection: sqlite3.Connection, range_: SeriesRange, table: _Table
) -> tuple[int, int] | tuple[None, None]:
    """Return the times of the first and last row of a table; one statement each is one seek each."""
    first, last = (
        connection.execute(
            f"SELECT {end}(time_ns) FROM {table.name} WHERE {_WITHIN}",  # noqa: S608 - literals
            range_.parameters(),
        ).fetchone()[0]
        for end in ("min", "max")
    )
    return first, last


def _at_or_after(
    connection: sqlite3.Connection, range_: SeriesRange, table: _Table, times_ns: list[int]
) -> list[FoundRow]:
    """Return the row of a table at or after each time; times are not after its last row."""
    sql = (
        f"SELECT time_ns, {table.period_s}, {table.columns}"  # noqa: S608 - literals
        f" FROM json_each(:times) AS wanted CROSS JOIN {table.name} ON series_id = :series"
        f" AND time_ns = (SELECT min(time_ns) FROM {table.name}"
        " WHERE series_id = :series AND time_ns >= wanted.value AND time_ns < :until)"
        " ORDER BY wanted.id"
    )
    parameters = range_.parameters(times=json.dumps(times_ns))
    return [FoundRow._make(row) for row in connection.execute(sql, parameters)]


Span = tuple[int, int]


def is_summarized(series: StoredSeries, fields: frozenset[str]) -> bool:
    """Return whether summaries hold these fields of the rows of a series."""
    return fields <= summary_fields(series.measurement, series.tags)


def summary_gaps(hours: Iterable[tuple[int, Any]], span: Span) -> list[Span]:
    """Return the spans between the summaries of a series."""
    at_ns, until_ns = span
    found = []
    for hour_ns, _ in hours:
        found.append((at_ns, hour_ns))
        at_ns = hour_ns + HOURS.period_ns
    return [
        (since_ns, end_ns) for since_ns, end_ns in (*found, (at_ns, until_ns)) if since_ns < end_ns
    ]


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
    all_tables = " UNION ALL ".join(
        f"SELECT time_ns, {table.period_s} AS period_s, {table.columns.replace('cells', cells)}"  # noqa: S608 - literals
        f" FROM {table.name} WHERE {_WITHIN}"
        for table in _TABLES
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
        ranges = [SeriesRange(series.id, since_ns, until_ns) for series in wanted]
        spread: Sequence[list[FoundRow] | None] = [None] * len(ranges)
        if sample is not None:
            with self._database.snapshot("read") as connection:
                spread = samples_of_series(connection, ranges, sample)
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
        series: StoredSeries,
        fields: Sequence[str],
        highest: Sequence[str],
        span_ns: tuple[int, int],
    ) -> Iterator[NumberRow]:
        """Iterate over numeric fields of the rows of a series."""
        sql = rows_sql(fields, highest, self._all_layouts())
        for row in chain.from_iterable(self._chunks(series, *span_ns, sql=sql)):
            yield row[0], RowEnd(row[2], row[3]), row[4:]

    def summaries(
        self, series: StoredSeries, kind: SummaryKind, span_ns: Span
    ) -> list[tuple[int, Any]]:
        """Return the summaries of the full hours in a span, by their start in UTC ns."""
        with self._database.reading("read") as connection:
            return read_summaries(connection, series.id, kind, *span_ns)

    def hourly_sums(
        self,
        series: StoredSeries,
        fields: Sequence[str],
        span_ns: tuple[int, int],
        cuts_ns: Sequence[int],
    ) -> dict[str, list[Summed]]:
        """Return the sums of totals of a series by the hour, in order of time, by their field."""
        edges_ns = hour_edges(*_within_limits(*span_ns), cuts_ns)
        known: dict[int, Mapping[str, Sequence[tuple[int, Sequence[int], float]]]] = {}
        with self._database.snapshot("read") as connection:
            if {*fields} <= {*SUMMED.get(series.measurement, ())}:
                parts = set(pairwise(edges_ns))
                hours = read_summaries(connection, series.id, "sums", edges_ns[0], edges_ns[-1])
                known = {
                    hour_ns: sums
                    for hour_ns, sums in hours
                    if (hour_ns, hour_ns + HOURS.period_ns) in parts
                }
            layouts = self._all_layouts()
            found = hourly_number_sums(connection, series.id, fields, edges_ns, layouts, known)
        for name, of_rows in found.items():
            of_rows.extend(
                (time_ns, RowEnd(*end), total)
                for sums in known.values()
                for time_ns, end, total in sums.get(name, ())
            )
            of_rows.sort()
        return found

    def points(
        self, series: StoredSeries, span_ns: tuple[int, int], coarsest_s: int
    ) -> Iterator[Point]:
        """Iterate over the points of a series in order of time, without coarser rows."""
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
        if is_summarized(series, fields):
            hours = self.summaries(series, "rows", span_ns)
        reading.read(hours, span_ns, lambda gap_ns: self._chunks(series, *gap_ns, sql=sql))
        return reading.parts()

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


class StoreReader:
    """Read the store without blocking its writer.

    Time ranges include their start and exclude their end. `tags` selects the series that have all
    of them. Methods are thread-safe and raise StoreError if the file cannot be read.

    Args:
        path: The store.
        database: Its open connection.
    """

    def __init__(self, path: Path, database: Database) -> None:
        self.path = path
        self._database = database
        self._finder = RowFinder(database)

    @classmethod
    def open(cls, path: Path) -> StoreReader:
        """Open a store read-only.

        Raises:
            StoreError: It does not exist, is not readable, or has another schema.
        """
        return cls(path, open_reader(path))

    def states(self) -> dict[str, tuple[Any, int]]:
        """Return every state document with the UTC ns of its last change."""
        rows = self._fetch("SELECT name, document, time_ns FROM states ORDER BY name")
        return {
            name: (stored_json(self.path, document), time_ns) for name, document, time_ns in rows
        }

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - any JSON value
        """Return a state document; None if there is none."""
        rows = self._fetch("SELECT document FROM states WHERE name = ?", name)
        return next((stored_json(self.path, document) for (document,) in rows), None)

    def sinks(self) -> list[SinkStatus]:
        """Return the status of every registered sink, by name."""
        with self._database.reading("read") as connection:
            return sink_statuses(connection)

    def notifiers(self) -> list[NotifierStatus]:
        """Return the status of every notifier, by name."""
        with self._database.reading("read") as connection:
            return notifier_statuses(connection)

    def rejected(self, sink: str) -> list[tuple[int, RejectedLine]]:
        """Return the newest rows that a sink rejected, with the UTC ns of the rejection, oldest first."""
        rows = self._fetch(
            "SELECT time_ns, line, reason FROM rejected WHERE sink = ? ORDER BY id", sink
        )
        return [(time_ns, RejectedLine(line, reason)) for time_ns, line, reason in rows]

    def dropped_points(self) -> int:
        """Return the points lost since the store was created: past retention unsent, or never stored."""
        with self._database.reading("read") as connection:
            return dropped_points(connection)

    def totals(self) -> list[StoredSample]:
        """Return the totals of the counters of `/metrics` since the store was created, by name and labels."""
        with self._database.reading("read") as connection:
            return list(read_totals(connection))

    def size_bytes(self) -> int:
        """Return the size of the store on disk in bytes, log included."""
        return size_bytes(self.path)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _fetch(self, sql: str, *values: str | int) -> list[Any]:
        with self._database.reading("read") as connection:
            return connection.execute(sql, values).fetchall()

    def series(
        self, measurement: str | None = None, tags: Mapping[str, str] | None = None
    ) -> list[StoredSeries]:
        """Return the series of a measurement, or all, in the natural order of their keys."""
        tag_items = written_tags(tags or {}).items()
        of_name, names = (
            ("", ()) if measurement is None else (" WHERE measurement = ?", (measurement,))
        )
        rows = self._fetch(
            f"SELECT id, measurement, key, tags FROM series{of_name}",  # noqa: S608 - literals
            *names,
        )
        selected = (
            StoredSeries(number, name, key, self._tags(text)) for number, name, key, text in rows
        )
        found = [series for series in selected if tag_items <= series.tags.items()]
        return sorted(found, key=lambda series: natural(series.key))

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
        span_ns = (since_ns, until_ns)
        found = [
            self._finder.points(series, span_ns, coarsest_s)
            for series in self.series(measurement, tags)
        ]
        return heapq.merge(*found, key=attrgetter("time_ns")) if len(found) > 1 else chain(*found)

    def columns(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        fields: frozenset[str],
    ) -> list[RowColumns]:
        """Return some fields of the rows of a measurement as columns, each series by resolution.

        Args:
            measurement: Name of the series family.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            fields: Names of the fields.
        """
        return [
            part
            for series in self.series(measurement, tags)
            for part in self._finder.columns(series, (since_ns, until_ns), fields)
        ]

    def lines(self, since_ns: int, until_ns: int, measurement: str | None = None) -> Iterator[str]:
        """Iterate over stored line protocol in order of time, without line ends.

        Aggregated rows have the tag `rollup` with their period, `1m` or `1h`.
        """
        for time_ns, series, row in self._finder.merged(
            self.series(measurement), since_ns, until_ns
        ):
            point = self._finder.point(series, row) if row.period_s else None
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
        for series, is_sampled, rows in self._finder.sampled(wanted, since_ns, until_ns, sample):
            values = SeriesValues(series.tags, [], [], is_sampled=is_sampled)
            for row in rows:
                if row.period_s:
                    rolled = self._finder.rolled_number(row, field)
                    if rolled is not None:
                        values.add(row.time_ns, rolled[0], RowEnd(row.newest_ns, rolled[1]))
                elif (value := number(row.text)) is not None:
                    values.add(row.time_ns, value)
            if values.values:
                results.append(values)
        return results

    def hourly_sums(
        self,
        measurement: str,
        fields: Sequence[str],
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        cuts_ns: Sequence[int] = (),
    ) -> dict[str, list[SeriesValues]]:
        """Return the sums of totals by the hour: by field, for each series that has it.

        The rows of a full hour in UTC are one value, as if they were aggregated.

        Args:
            measurement: `device`, `allocation` or `cost`.
            fields: Totals of it, such as `cost` and `energy_j`: rows are read once for all of them.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            cuts_ns: Instants that no value crosses, such as the start of a period.
        """
        results: dict[str, list[SeriesValues]] = {field: [] for field in fields}
        for series in self.series(measurement, tags):
            found = self._finder.hourly_sums(series, fields, (since_ns, until_ns), cuts_ns)
            for name, summed in found.items():
                if summed:
                    times_ns, ends, totals = map(list, zip(*summed, strict=True))
                    results[name].append(SeriesValues(series.tags, times_ns, totals, ends))
        return results

    def loads(
        self,
        measurement: str,
        fields: Sequence[str],
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        highest: Sequence[str] = (),
        edge_ns: int,
    ) -> tuple[list[tuple[int, Any]], Mapping[tuple[int, int], Sequence[NumberRow]]]:
        """Return the stored loads of full hours of devices, and the rows of the other spans.

        Args:
            measurement: `device`.
            fields: Names of numeric fields.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            highest: Those fields whose highest value is wanted of an aggregated row, not the mean.
            edge_ns: How far outside of their span rows are wanted, within the whole range.

        Returns:
            The start of each hour in UTC ns with its document (`hour_load`), and by span the time,
            end and fields of each row; None where absent.
        """
        hours, rows = [], dict[tuple[int, int], list[NumberRow]]()
        since_ns, until_ns = _within_limits(since_ns, until_ns)
        for series in self.series(measurement, tags):
            own = self._finder.summaries(series, "load", (since_ns, until_ns))
            hours += own
            for gap in summary_gaps(own, (since_ns, until_ns)):
                around = max(since_ns, gap[0] - edge_ns), min(until_ns, gap[1] + edge_ns)
                found = self._finder.numbers(series, fields, highest, around)
                rows.setdefault(gap, []).extend(found)
        return hours, rows

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
        for series, _, found in self._finder.sampled(wanted, since_ns, until_ns, sample):
            yield (self._finder.point(series, row) for row in found)

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
        points = [
            self._finder.point(series, row)
            for series in self.series(measurement, tags)
            for row in self._finder.newest(series, since_ns, until_ns, limit)
        ]
        return sorted(points, key=attrgetter("time_ns"))

    def _tags(self, document: str) -> dict[str, str]:
        tags = stored_json(self.path, document)
        if isinstance(tags, dict) and all(isinstance(value, str) for value in tags.values()):
            return tags
        raise StoreError(
            "read", self.path, "shape", "the tags of a series have an unexpected shape"
        )
