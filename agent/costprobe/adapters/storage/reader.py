"""Read-only access to the store, also while the daemon writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from costprobe.adapters.storage.database import Database, open_reader
from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.history import SeriesValues, StoredSeries
from costprobe.adapters.storage.rollup.rolled import RolledPoint, rolled_line
from costprobe.adapters.storage.rollup.rollup import HOURS
from costprobe.adapters.storage.row_finder import NumberRow, RowFinder, stored_json
from costprobe.adapters.storage.state_reader import StateReader
from costprobe.core.device_names import natural
from costprobe.core.line_protocol import number_reader, parse_field_set, written_tags
from costprobe.core.records import Point
from costprobe.core.row_columns import RowColumns
from costprobe.core.row_spans import RowEnd


class StoreReader(StateReader):
    """Read the store without blocking its writer.

    Time ranges include their start and exclude their end. `tags` selects the series that have all
    of them. Methods are thread-safe and raise StoreError if the file cannot be read.
    """

    def __init__(self, path: Path, database: Database) -> None:
        super().__init__(path, database)
        self._finder = RowFinder(database)

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
        return self._finder.points(self.series(measurement, tags), (since_ns, until_ns), coarsest_s)

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
            for field, summed in found.items():
                if summed:
                    times_ns, ends, totals = map(list, zip(*summed, strict=True))
                    results[field].append(SeriesValues(series.tags, times_ns, totals, ends))
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
        wanted = self.series(measurement, tags)
        return self._finder.loads(wanted, fields, highest, (since_ns, until_ns), edge_ns)

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
