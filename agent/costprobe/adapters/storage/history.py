"""Series and their values, as the store reader returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
        times_ns: UTC ns, ascending.
        values: One value for each time, in the unit of the field.
        periods_s: Time to period in s, for values of aggregated rows.
        is_sampled: True if these are a sample, spread evenly over the time range.
    """

    tags: Mapping[str, str]
    times_ns: list[int]
    values: list[float]
    periods_s: dict[int, int] = field(default_factory=dict)
    is_sampled: bool = False

    def add(self, time_ns: int, value: float, period_s: int = 0) -> None:
        """Append a value newer than all others."""
        self.times_ns.append(time_ns)
        self.values.append(value)
        if period_s:
            self.periods_s[time_ns] = period_s
