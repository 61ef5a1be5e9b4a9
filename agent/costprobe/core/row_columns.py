"""Rows of a series as columns: a report reads hundreds of thousands of them, and few fields of each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from typing import cast

from costprobe.core.records import FieldValue, Point
from costprobe.core.row_values import as_number

Column = list[FieldValue | None]


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows of one series at one resolution.

    Attributes:
        tags: Tags of the series.
        times_ns: UTC ns, ascending; of an aggregated row the start of its period.
        ends_ns: UTC ns of the newest measured row in each; the same for rows as measured.
        columns: Values of each field that a row has; None where a row lacks it.
        period_s: Length of the period of each row in s; 0 for rows as measured.
    """

    tags: Mapping[str, str]
    times_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)
    period_s: int = 0

    def __len__(self) -> int:
        return len(self.times_ns)

    def append(
        self,
        times_ns: Sequence[int],
        ends_ns: Sequence[int],
        found: Mapping[str, Sequence[FieldValue | None]],
    ) -> None:
        """Append rows that are newer than all others.

        Args:
            times_ns: Their times in UTC ns.
            ends_ns: Their ends in UTC ns.
            found: Their values by field; one value where all are the same.
        """
        before, count = len(self), len(times_ns)
        self.times_ns.extend(times_ns)
        self.ends_ns.extend(ends_ns)
        for name, values in found.items():
            column = self.columns.setdefault(name, [])
            # Earlier rows lack the field.
            column.extend(repeat(None, before - len(column)))
            column.extend(values if len(values) == count else repeat(values[0], count))

    def column(self, name: str) -> Sequence[FieldValue | None]:
        """Return the values of a field, one for each row."""
        found = self.columns.get(name, [])
        missing = len(self) - len(found)
        return [*found, *repeat(None, missing)] if missing else found

    def numbers(self, name: str) -> Sequence[float]:
        """Return the values of a numeric field of the rows that have it."""
        column = self.columns.get(name, [])
        if set(map(type, column)) == {float}:
            return cast("Sequence[float]", column)  # as nearly all are
        return [value for value in map(as_number, column) if value is not None]

    def where(self, kept: Sequence[bool]) -> RowColumns:
        """Return some rows.

        Args:
            kept: For each row whether it is one of them.
        """
        if all(kept):
            return self
        columns = {name: list(compress(column, kept)) for name, column in self.columns.items()}
        times_ns, ends_ns = (
            list(compress(all_ns, kept)) for all_ns in (self.times_ns, self.ends_ns)
        )
        return RowColumns(self.tags, times_ns, ends_ns, columns, self.period_s)

    def between(self, since_ns: int, until_ns: int) -> RowColumns:
        """Return the rows of a span in UTC ns, its end excluded."""
        first, end = bisect_left(self.times_ns, since_ns), bisect_left(self.times_ns, until_ns)
        if not first and end == len(self):
            return self
        columns = {name: column[first:end] for name, column in self.columns.items()}
        times_ns, ends_ns = self.times_ns[first:end], self.ends_ns[first:end]
        return RowColumns(self.tags, times_ns, ends_ns, columns, self.period_s)


def columns_of(rows: Iterable[Point]) -> list[RowColumns]:
    """Return rows as measured, in the order of time, as columns, one for each series."""
    found: dict[tuple[tuple[str, str], ...], RowColumns] = {}
    for row in rows:
        part = found.setdefault(tuple(sorted(row.tags.items())), RowColumns(row.tags))
        fields = {name: [value] for name, value in row.fields.items()}
        part.append([row.time_ns], [row.time_ns], fields)
    return list(found.values())


def numbers_of(parts: Iterable[RowColumns], name: str) -> list[float]:
    """Return the values of a numeric field of all rows that have it."""
    return [number for part in parts for number in part.numbers(name)]
