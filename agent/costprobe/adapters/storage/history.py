"""Series and their values, as the store reader returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from costprobe.core.row_spans import RowEnd


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
