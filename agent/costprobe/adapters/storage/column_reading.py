"""Rows of a series read as columns: many at once, without an object for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from costprobe.adapters.storage.history import StoredSeries
from costprobe.adapters.storage.rollup.rolled import FoundRow
from costprobe.adapters.storage.rollup.rollup import HOURS
from costprobe.adapters.storage.rollup.wanted_cells import WantedCells
from costprobe.core.line_protocol import fields_reader
from costprobe.core.row_columns import Column, RowColumns

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
