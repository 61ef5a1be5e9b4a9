"""Stored rows as readers receive them: raw, or aggregated to a minute or an hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from costprobe.adapters.storage.rollup.aggregation import Cell, decoded
from costprobe.core.line_protocol import field_set, series_key
from costprobe.core.records import FieldValue, Point

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
