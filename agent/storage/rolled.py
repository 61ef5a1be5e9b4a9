"""Stored rows as readers meet them: as they were measured, or rolled up to a minute or an hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent.lineprotocol import field_set, series_key
from agent.model import FieldValue, Point
from agent.storage.fold import Cell, decoded

# A rolled row in line protocol is a series of its own, so that no sum holds anything twice.
ROLLUP_TAG: Final = "rollup"
_PERIOD_NAMES: Final = {60: "1m", 3600: "1h"}


@dataclass(frozen=True, slots=True)
class RolledPoint(Point):
    """What the rows of a minute or an hour came to; its time is the period's beginning.

    Its fields are totals for what adds up (joules, money, seconds of throttling), means for
    readings, medians for samples of `probe` and `cost`, maxima for maxima, the newest for
    counters, settings and texts, and true where one was (`complete`: where all were). A row that came after its period was
    rolled up and has not been added yet stands beside it.

    Attributes:
        period_s: Length of the period in s.
        rows: Rows that it stands for.
        newest_ns: UTC ns of the newest of them.
        cells: For each field also how many rows had it, and the range of a mean or a median.
    """

    period_s: int
    rows: int
    newest_ns: int
    cells: Mapping[str, Cell]


class Found(NamedTuple):
    """One row of the file.

    Attributes:
        time_ns: UTC ns, of a rolled row its period's beginning.
        period_s: Length of its period in s; 0 for a row as it was measured.
        text: Its field set, or its cells.
        newest_ns: UTC ns of the newest row in it; 0 for a row as it was measured.
        rows: How many are in it; 0 for a row as it was measured.
        layout_id: Which fields its cells are; 0 for a row as it was measured.
    """

    time_ns: int
    period_s: int
    text: str
    newest_ns: int
    rows: int
    layout_id: int


def rolled_point(
    measurement: str, tags: Mapping[str, str], found: Found, names: Sequence[str]
) -> RolledPoint:
    """A rolled row with all that it says."""
    cells = decoded(found.text, names, found.rows)
    return RolledPoint(
        measurement,
        tags,
        {name: cell.value for name, cell in cells.items()},
        found.time_ns,
        found.period_s,
        found.rows,
        found.newest_ns,
        cells,
    )


def told_tags(point: Point) -> Mapping[str, str]:
    """A point's tags, those of a rolled one with its period."""
    if isinstance(point, RolledPoint):
        return {**point.tags, ROLLUP_TAG: _PERIOD_NAMES[point.period_s]}
    return point.tags


def rolled_line(point: RolledPoint) -> str:
    """A rolled row in line protocol: tagged with its period, with the ranges as further fields."""
    fields: dict[str, FieldValue] = {}
    for name, cell in point.cells.items():
        fields[name] = cell.value
        if cell.low is not None and cell.high is not None:
            fields[f"{name}_min"], fields[f"{name}_max"] = cell.low, cell.high
    fields["rows"] = point.rows
    return f"{series_key(point.measurement, told_tags(point))} {field_set(fields)} {point.time_ns}"
