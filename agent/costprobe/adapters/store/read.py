"""Rows of a series from the store, as points or columns, as measured and by the hour, in order of time.

Access is read-only, also while the daemon writes. The finest resolution is read in short chunks: rows
as measured, and the hour rows that stand in the place of others. What covers a long span reads by the
hour: the hour row of every settled hour, and the rows of the others. States, delivery and counters are
read here as well.
"""

from __future__ import annotations

import heapq
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from costprobe.adapters.store.cursors import Deliveries, RejectedLine
from costprobe.adapters.store.database import (
    Database,
    StoreError,
    open_reader,
    translated,
)
from costprobe.adapters.store.hours import ROWS, hour_of, values_of
from costprobe.adapters.store.rows import read_totals
from costprobe.core.columns import RowColumns, RowEnd
from costprobe.core.hours import LOAD_FIELDS, PACKED_BYTES, load_values
from costprobe.core.line_protocol import (
    field_set,
    fields_reader,
    number_reader,
    parse_field_set,
    series_key,
    written_tags,
)
from costprobe.core.outside import bounded_json
from costprobe.core.periods import DAY_NS, HOUR_NS
from costprobe.core.records import NS_PER_S, Point, natural
from costprobe.core.schema import StoredSample

Span = tuple[int, int]
_HOUR_S: Final = HOUR_NS // NS_PER_S


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
        times_ns: UTC ns, ascending; of an hour row the start of the hour.
        values: One value for each time, in the unit of the field.
        ends: The end of each row, and the number of measured rows with the field in it.
        is_hourly: True if hours were read although rows as measured are stored.
    """

    tags: Mapping[str, str]
    times_ns: list[int]
    values: list[float]
    ends: list[RowEnd] = field(default_factory=list)
    is_hourly: bool = False

    def add(self, time_ns: int, value: float, end: RowEnd | None = None) -> None:
        """Append a value newer than all others; without an end it is of a raw row."""
        self.times_ns.append(time_ns)
        self.values.append(value)
        self.ends.append(RowEnd(time_ns) if end is None else end)


# In line protocol an hour row is of a series of its own, so that no sum counts a value twice.
ROLLUP_TAG: Final = "rollup"


@dataclass(frozen=True, slots=True)
class RolledPoint(Point):
    """The rows of an hour as one; its time is the start of the hour.

    Fields are sums of totals (joules, money, seconds of throttling), means of readings, medians of
    samples of `probe` and `cost`, maxima of maxima, the newest of counters, settings and texts, and
    true if any value was (`complete`: if all were). A row that arrived after its hour was
    reduced is separate until the next aggregation.

    Attributes:
        rows: Number of aggregated rows.
        newest_ns: UTC ns of the newest of them.
    """

    rows: int
    newest_ns: int
    period_s: ClassVar = _HOUR_S


class FoundRow(NamedTuple):
    """One row of the file.

    Attributes:
        time_ns: UTC ns; of an hour row the start of the hour.
        text: Field set.
        newest_ns: UTC ns of the newest row in it.
        rows: Number of rows in it.
        step_ns: Mean distance of the rows in it; 0 if unknown.
        is_hour: Whether it is an hour row.
    """

    time_ns: int
    text: str
    newest_ns: int
    rows: int
    step_ns: int
    is_hour: int


def tags_with_period(point: Point) -> Mapping[str, str]:
    """Return the tags of a point, with the period of an hour row."""
    return {**point.tags, ROLLUP_TAG: "1h"} if isinstance(point, RolledPoint) else point.tags


def _line(series: StoredSeries, row: FoundRow) -> str:
    """Render a row; an hour row is tagged with its period, with ranges as further fields."""
    if not row.is_hour:
        return f"{series.key} {row.text} {row.time_ns}"
    found = parse_field_set(row.text).items()
    fields = {name: value for name, value in found if not name.endswith(ROWS)}
    key = series_key(series.measurement, {**series.tags, ROLLUP_TAG: "1h"})
    return f"{key} {field_set({**fields, 'rows': row.rows})} {row.time_ns}"


def _point(series: StoredSeries, row: FoundRow) -> Point:
    fields = parse_field_set(row.text)
    if not row.is_hour:
        return Point(series.measurement, series.tags, fields, row.time_ns)
    where = (series.measurement, series.tags, values_of(fields), row.time_ns)
    return RolledPoint(*where, row.rows, row.newest_ns)


# Rows are fetched in chunks, each in its own short read: a reader that pauses (an export into a
# pager) must not block checkpoints of the write-ahead log.
_CHUNK_ROWS: Final = 2000
_MERGED_CHUNK_ROWS: Final = 400
_TIME_NS_LIMITS: Final = (-(2**63), 2**63 - 1)
_NO_LIMIT: Final = -1
_WITHIN: Final = "series_id = :series AND time_ns >= :since AND time_ns < :until"
_RAW: Final = f"SELECT time_ns, fields, time_ns, 1, 0, 0 FROM points WHERE {_WITHIN}"  # noqa: S608 - literals
_HOURS: Final = f"SELECT time_ns, fields, newest_ns, rows, step_ns, 1 FROM hours WHERE {_WITHIN}"  # noqa: S608 - as above
_FINEST: Final = f"{_RAW} UNION ALL {_HOURS} AND is_reduced ORDER BY 1"
# Hours within a span beside their rows.
_SETTLED: Final = f"AND NOT is_reduced AND time_ns <= :until - {HOUR_NS}"
# Rows that arrived late: the newest raw row may be older or newer than the newest hour row.
_NEWEST_SQL: Final = """SELECT max(time_ns) FROM (
    SELECT max(time_ns) AS time_ns FROM points WHERE series_id = ?
    UNION ALL SELECT max(time_ns) FROM hours WHERE series_id = ?)"""
_COUNT_SQL: Final = f"SELECT count(*) FROM (SELECT 1 FROM points WHERE {_WITHIN} LIMIT :limit)"  # noqa: S608 - literals
_ENDS_SQL: Final = f"SELECT min(time_ns), max(time_ns) FROM hours WHERE {_WITHIN}"  # noqa: S608 - as above
# A report reads rows as measured of a month: those of three take longer than it may.
COLUMNS_RAW_NS: Final = 30 * DAY_NS
# More hours of a series are too many to show.
HOURS_MAX: Final = 500
# Rows as measured of all series that one answer reads at most; more are shared out equally.
ROWS_READ_MAX: Final = 200_000
_LOADS_SQL: Final = f"""SELECT time_ns, load FROM hours WHERE {_WITHIN}
    AND time_ns <= :until - {HOUR_NS} AND length(load) = {PACKED_BYTES} ORDER BY time_ns"""  # noqa: S608 - literals
# Time, end and load of a row.
LoadRow = tuple[int, RowEnd, Sequence[float | None]]
_Reader = Callable[[str], float | None]


def _gaps(hours_ns: Iterable[int], span: Span) -> Iterator[Span]:
    """Yield the parts of a span without some of its hours."""
    at_ns, until_ns = span
    for hour_ns in (*hours_ns, until_ns):
        if at_ns < hour_ns:
            yield at_ns, hour_ns
        at_ns = hour_ns + HOUR_NS


def _within_limits(since_ns: int, until_ns: int) -> Span:
    """Clamp a time range to 64 bits."""
    lowest, highest = _TIME_NS_LIMITS
    return max(since_ns, lowest), min(until_ns, highest)


def stored_json(path: Path, document: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a document of the store.

    Raises:
        StoreError: It is malformed.
    """
    with translated("read", path):
        return bounded_json(document)


class StoreReader(Deliveries):
    """Read the store without blocking its writer.

    Time ranges include their start and exclude their end. `tags` selects the series that have all
    of them. Methods are thread-safe and raise StoreError if the file cannot be read.

    Args:
        path: The store.
        database: Its open connection.
    """

    def __init__(self, path: Path, database: Database) -> None:
        super().__init__(database)
        self.path = path

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

    def rejected(self, sink: str) -> list[tuple[int, RejectedLine]]:
        """Return the newest rows that a sink rejected, with the UTC ns of the rejection, oldest first."""
        rows = self._fetch(
            "SELECT time_ns, line, reason FROM rejected WHERE sink = ? ORDER BY id", sink
        )
        return [(time_ns, RejectedLine(line, reason)) for time_ns, line, reason in rows]

    def totals(self) -> list[StoredSample]:
        """Return the totals of the counters of `/metrics` since the store was created, by name and labels."""
        with self._database.reading("read") as connection:
            return list(read_totals(connection))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

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

    def _between(
        self, series: StoredSeries, span: Span, limit: int = _NO_LIMIT, sql: str = _FINEST
    ) -> list[FoundRow]:
        with self._database.reading("read") as connection:
            found = connection.execute(f"{sql} LIMIT :limit", _parameters(series, span, limit))
            return list(map(FoundRow._make, found))

    def _filled(self, series: StoredSeries, span: Span) -> Span:
        """Return a span until the newest row of a series."""
        since_ns, until_ns = _within_limits(*span)
        ((newest_ns,),) = self._fetch(_NEWEST_SQL, series.id, series.id)
        return since_ns, until_ns if newest_ns is None else min(until_ns, newest_ns + 1)

    def _finest(
        self, series: StoredSeries, span: Span, chunk_rows: int = _CHUNK_ROWS
    ) -> Iterator[list[FoundRow]]:
        """Yield the rows of a series at the finest resolution, in chunks.

        A chunk ends with an hour, so that the reduction of an hour between two chunks neither hides
        nor repeats a row. Rows newer than the newest at the start are skipped: an hour that grows
        while it is read would be incomplete.
        """
        since_ns, until_ns = self._filled(series, span)
        while since_ns < until_ns:
            rows = self._between(series, (since_ns, until_ns), chunk_rows)
            next_ns = until_ns
            if len(rows) == chunk_rows:
                next_ns = hour_of(rows[-1].time_ns)
                rows = [row for row in rows if row.time_ns < next_ns]
                if not rows:
                    next_ns = min(next_ns + HOUR_NS, until_ns)
                    rows = self._between(series, (since_ns, next_ns))
            yield rows
            since_ns = next_ns

    def _hourly(
        self, series: StoredSeries, span: Span, cuts_ns: Sequence[int] = ()
    ) -> list[FoundRow]:
        """Return the hour rows of a series, and rows as measured of hours without one, or that are cut."""
        span = _within_limits(*span)
        cut = {hour_of(cut_ns) for cut_ns in cuts_ns if cut_ns % HOUR_NS}
        with self._database.snapshot("read") as connection:
            reduced, settled = (
                connection.execute(f"{_HOURS} {which} ORDER BY 1", _parameters(series, span))
                for which in ("AND is_reduced", _SETTLED)
            )
            hours = [row for row in settled if row[0] not in cut]
            rows = [*reduced, *hours]
            for gap in _gaps((row[0] for row in hours), span):
                rows += connection.execute(_RAW, _parameters(series, gap))
        return sorted(map(FoundRow._make, rows), key=itemgetter(0))

    def _rows(
        self, series: StoredSeries, span: Span, most: int | None
    ) -> tuple[Iterable[FoundRow], bool]:
        """Return the rows of a series, and whether they are hours although there are finer ones."""
        span = _within_limits(*span)
        if most is not None:
            with self._database.snapshot("read") as connection:
                parameters = _parameters(series, span, most + 1)
                if connection.execute(_COUNT_SQL, parameters).fetchone()[0] > most:
                    return _shown(connection, series, span), True
        return chain.from_iterable(self._finest(series, span, _MERGED_CHUNK_ROWS)), False

    def points(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        with_hours: bool = True,
        most: int | None = None,
    ) -> Iterator[Point]:
        """Iterate over the points of a measurement in order of time, at the finest stored resolution.

        Rows past their retention are returned as RolledPoint, one per hour, at its start; every
        measured row counts in exactly one point.

        Args:
            measurement: Name of the series family.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            with_hours: Whether to return hour rows, too.
            most: A series with more rows as measured is read as by `values`; None for none.
        """
        found = [
            self._points(series, (since_ns, until_ns), most, with_hours=with_hours)
            for series in self.series(measurement, tags)
        ]
        return heapq.merge(*found, key=attrgetter("time_ns")) if len(found) > 1 else chain(*found)

    def _points(
        self, series: StoredSeries, span: Span, most: int | None, *, with_hours: bool
    ) -> Iterator[Point]:
        for row in self._rows(series, span, most)[0]:
            if with_hours or not row.is_hour:
                yield _point(series, row)

    def columns(
        self,
        measurement: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        fields: frozenset[str],
    ) -> list[RowColumns]:
        """Return some fields of the rows of a measurement as columns, of each series hour rows apart.

        Rows as measured are those of the last COLUMNS_RAW_NS of each; before, hours are read.

        Args:
            measurement: Name of the series family.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            fields: Names of the fields.
        """
        found = []
        read = fields_reader(fields)
        for series in self.series(measurement, tags):
            parts: dict[int, RowColumns] = {}
            first_ns, end_ns = self._filled(series, (since_ns, until_ns))
            middle_ns = max(first_ns, hour_of(end_ns - COLUMNS_RAW_NS))
            older = self._hourly(series, (first_ns, middle_ns)) if first_ns < middle_ns else []
            for chunk in chain([older], self._finest(series, (middle_ns, end_ns))):
                for is_hour, group in groupby(chunk, attrgetter("is_hour")):
                    new = RowColumns(series.tags, period_s=is_hour * _HOUR_S)
                    part = parts.setdefault(is_hour, new)
                    times_ns, texts, ends_ns, *_ = zip(*group, strict=True)
                    rows = [read(text) for text in texts]
                    names = {name for row in rows for name in row}
                    columns = {name: [row.get(name) for row in rows] for name in names}
                    part.append(times_ns, ends_ns, columns)
            found += [parts[is_hour] for is_hour in sorted(parts, reverse=True)]
        return found

    def lines(self, since_ns: int, until_ns: int, measurement: str | None = None) -> Iterator[str]:
        """Iterate over stored line protocol in order of time, without line ends.

        Hour rows have the tag `rollup` with the value `1h`.
        """

        def of_series(series: StoredSeries) -> Iterator[tuple[int, str]]:
            for row in self._rows(series, (since_ns, until_ns), None)[0]:
                yield row.time_ns, _line(series, row)

        found = map(of_series, self.series(measurement))
        return (line for _, line in heapq.merge(*found, key=itemgetter(0)))

    def values(
        self,
        measurement: str,
        field: str,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        most: int | None = None,
    ) -> list[SeriesValues]:
        """Return the values of a numeric field for each series that has it; old rows are aggregated.

        Args:
            measurement: Name of the series family.
            field: Name of the field.
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            most: A series with more rows as measured, or with more than its part of ROWS_READ_MAX,
                is read by the hour, of more than HOURS_MAX hours some, evenly spaced, and SeriesValues.is_hourly is True. None for
                every row.
        """
        number, counted = number_reader(field), number_reader(field + ROWS)
        results = []
        found = self.series(measurement, tags)
        if most is not None:
            most = min(most, ROWS_READ_MAX // max(1, len(found)))
        for series in found:
            rows, is_hourly = self._rows(series, (since_ns, until_ns), most)
            values = SeriesValues(series.tags, [], [], is_hourly=is_hourly)
            for time_ns, text, newest_ns, count, step_ns, is_hour in rows:
                value = number(text)
                if value is not None:
                    own = int(counted(text) or count) if is_hour and ROWS in text else count
                    values.add(time_ns, value, RowEnd(newest_ns, own, step_ns))
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
        cuts_ns = sorted(cuts_ns)
        readers = [(name, number_reader(name), number_reader(name + ROWS)) for name in fields]
        results: dict[str, list[SeriesValues]] = {name: [] for name in fields}
        for series in self.series(measurement, tags):
            found = {name: SeriesValues(series.tags, [], []) for name in fields}
            rows = self._hourly(series, (since_ns, until_ns), cuts_ns)
            for _, group in groupby(rows, lambda row: _part_of(row, cuts_ns)):
                part = list(group)
                for name, number, counted in readers:
                    _add_sum(found[name], part, number, counted)
            for name, values in found.items():
                if values.values:
                    results[name].append(values)
        return results

    def loads(
        self,
        since_ns: int,
        until_ns: int,
        tags: Mapping[str, str] | None = None,
        *,
        edge_ns: int,
    ) -> tuple[list[tuple[int, bytes]], Mapping[Span, Sequence[LoadRow]]]:
        """Return the stored loads of full hours of devices, and the load in the rows of the other spans.

        Args:
            since_ns: UTC ns.
            until_ns: UTC ns.
            tags: Tags that a series must have.
            edge_ns: How far outside of their span rows are wanted, within the whole range.

        Returns:
            The start of each hour in UTC ns with its load (`packed_hour`), and by span the time,
            end and `load_values` of each row.
        """
        hours, rows = list[tuple[int, bytes]](), dict[Span, list[LoadRow]]()
        span = since_ns, until_ns = _within_limits(since_ns, until_ns)
        read = fields_reader(frozenset(LOAD_FIELDS))
        for series in self.series("device", tags):
            with self._database.reading("read") as connection:
                own = connection.execute(_LOADS_SQL, _parameters(series, span)).fetchall()
            hours += own
            for gap in _gaps((hour_ns for hour_ns, _ in own), span):
                around = max(since_ns, gap[0] - edge_ns), min(until_ns, gap[1] + edge_ns)
                rows.setdefault(gap, []).extend(
                    (row.time_ns, RowEnd(*row[2:5]), load_values(read(row.text)))
                    for row in chain.from_iterable(self._finest(series, around))
                )
        return hours, rows

    def last(
        self, measurement: str, until_ns: int, tags: Mapping[str, str] | None = None
    ) -> list[Point]:
        """Return the newest raw point of each series of a measurement.

        Args:
            measurement: Name of the series family.
            until_ns: UTC ns, usually now: a wrong wall clock leaves later points.
            tags: Tags that a series must have.
        """
        span = _within_limits(_TIME_NS_LIMITS[0], until_ns + 1)
        return [
            _point(series, row)
            for series in self.series(measurement, tags)
            for row in self._between(series, span, 1, f"{_RAW} ORDER BY 1 DESC")
        ]

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
        span = _within_limits(since_ns, until_ns)
        points = [
            _point(series, row)
            for series in self.series(measurement, tags)
            for row in self._between(series, span, limit, f"{_FINEST} DESC")
        ]
        return sorted(points, key=attrgetter("time_ns"))

    def _tags(self, document: str) -> dict[str, str]:
        tags = stored_json(self.path, document)
        if isinstance(tags, dict) and all(isinstance(value, str) for value in tags.values()):
            return tags
        raise StoreError(
            "read", self.path, "shape", "the tags of a series have an unexpected shape"
        )


def _parameters(series: StoredSeries, span: Span, limit: int = _NO_LIMIT) -> dict[str, int]:
    return {"series": series.id, "since": span[0], "until": span[1], "limit": limit}


def _shown(connection: sqlite3.Connection, series: StoredSeries, span: Span) -> list[FoundRow]:
    """Return hour rows of a series, HOURS_MAX at most, evenly spaced, and the rows after the last."""
    parameters = _parameters(series, span)
    first_ns, last_ns = connection.execute(_ENDS_SQL, parameters).fetchone()
    if first_ns is None:
        return list(map(FoundRow._make, connection.execute(f"{_RAW} ORDER BY 1", parameters)))
    # An odd distance is of hours of all parts of a day.
    every = (last_ns - first_ns) // HOUR_NS // HOURS_MAX | 1
    is_shown = f"(time_ns / {HOUR_NS} % {every} = 0 OR time_ns IN ({first_ns}, {last_ns}))"
    hours = f"{_HOURS} AND {is_shown} ORDER BY 1"
    rest = _parameters(series, (last_ns + HOUR_NS, span[1]))
    rows = chain(
        connection.execute(hours, parameters), connection.execute(f"{_RAW} ORDER BY 1", rest)
    )
    return list(map(FoundRow._make, rows))


def _part_of(row: FoundRow, cuts_ns: Sequence[int]) -> tuple[int, ...]:
    """Return the part of a time range that a row is in: an hour row is one of its own."""
    if row.is_hour:
        return (row.time_ns,)
    return hour_of(row.time_ns), bisect_right(cuts_ns, row.time_ns)


def _add_sum(
    values: SeriesValues, part: Sequence[FoundRow], number: _Reader, counted: _Reader
) -> None:
    """Add the sum of a field of the rows of a part, or its value in one hour row."""
    numbers = [found for row in part if (found := number(row.text)) is not None]
    if not numbers:
        return
    first, last = part[0], part[-1]
    count, step_ns, time_ns = len(numbers), first.step_ns, first.time_ns
    if not first.is_hour:
        step_ns = (last.time_ns - time_ns) // max(1, count - 1)
    else:
        count = int(counted(first.text) or first.rows)
        if step_ns:
            # The time of the first row in it.
            time_ns = max(time_ns, first.newest_ns - (first.rows - 1) * step_ns)
    values.add(time_ns, sum(numbers), RowEnd(last.newest_ns, count, step_ns))
