"""Rows of a series as columns of numbers, and the time that they cover.

A report reads hundreds of thousands of rows, and few fields of each.

Rows are raw or rolled up. A row of an interval is stamped at its end, and a rolled-up row holds
the time of the newest row in it and their number. The length of a row is not stored: it starts at
the end of the previous row, unless that is further away than usual; then there is a gap between
them.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise, repeat
from typing import NamedTuple, cast

from costprobe.core.clock import NS_PER_MS
from costprobe.core.records import NS_PER_S, FieldValue, Point

# A distance of more than this many usual intervals is a gap.
GAP_STEPS = 2.5
# At least so many of the rolled-up rows follow another and lack no row, as one in this number.
_FULL_ONE_IN = 10


def as_number(value: FieldValue | None) -> float | None:
    """Return a numeric value; None for any other."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def number(row: Point, field: str) -> float | None:
    """Return a numeric field of a row; None if it is absent."""
    return as_number(row.fields.get(field))


def numbers(rows: Iterable[Point], field: str) -> list[float]:
    """Return the values of a numeric field of the rows that have it."""
    return [value for row in rows if (value := number(row, field)) is not None]


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
            found: Their values by field.
        """
        before = len(self)
        self.times_ns.extend(times_ns)
        self.ends_ns.extend(ends_ns)
        for name, values in found.items():
            column = self.columns.setdefault(name, [])
            # Earlier rows lack the field.
            column.extend(repeat(None, before - len(column)))
            column.extend(values)

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


class RowEnd(NamedTuple):
    """The end of a row, or of the newest of the rows in a rolled-up one.

    Attributes:
        end_ns: UTC ns.
        rows: Number of rows in it: 1 for a raw row.
        step_ns: Mean distance of the rows in it, where it is known; else 0.
    """

    end_ns: int
    rows: int = 1
    step_ns: int = 0


class RowSpan(NamedTuple):
    """The time of a row.

    Attributes:
        start_ns: UTC ns.
        end_ns: UTC ns.
        covered_s: Seconds of it that were measured; less than its length where rows are missing in
            a rolled-up row.
    """

    start_ns: int
    end_ns: int
    covered_s: float


def row_spans(ends: Sequence[RowEnd], usual_s: float) -> list[RowSpan]:
    """Return the span of each row of a series.

    Args:
        ends: The rows, in the order of their ends.
        usual_s: Length of a row in s if there are too few rows to derive it.
    """
    step_ns = _usual_step_ns(ends, usual_s)
    spans = []
    before_ns: int | None = None
    for end_ns, rows, _ in ends:
        usual_ns = max(1, rows * step_ns)
        length_ns = usual_ns
        if before_ns is not None and end_ns - before_ns <= GAP_STEPS * usual_ns:
            length_ns = end_ns - before_ns
        # Within a rolled-up row a missing row is known by their number.
        covered_ns = length_ns if rows == 1 else min(length_ns, usual_ns)
        spans.append(RowSpan(end_ns - length_ns, end_ns, covered_ns / NS_PER_S))
        before_ns = end_ns
    return spans


def _usual_step_ns(ends: Sequence[RowEnd], usual_s: float) -> int:
    """Return the usual length of a raw row, by those that are raw or by the rolled-up ones."""
    steps = [(after.end_ns - before.end_ns, after) for before, after in pairwise(ends)]
    # Less than a millisecond after another are rows that had its time: the wall clock was set back.
    raw = [step_ns for step_ns, row in steps if row.rows == 1 and step_ns >= NS_PER_MS]
    # Rows are missing in many rolled-up rows of a host that is often off: the full ones show it.
    rolled = sorted(row.step_ns or step_ns // row.rows for step_ns, row in steps if row.rows > 1)
    if len(raw) > max(1, len(rolled)):
        return int(statistics.median(raw))
    if len(rolled) > 1:
        return rolled[len(rolled) // _FULL_ONE_IN]
    # The rows in the only rolled-up one show it as well.
    known = [row.step_ns for row in ends if row.step_ns >= NS_PER_MS]
    return known[0] if known else max(1, int(usual_s * NS_PER_S))
