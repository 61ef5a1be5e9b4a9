"""Series, and what one field of theirs was over a time, as readers of the store get them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Series:
    """One series of the store.

    Attributes:
        id: Its number in this store.
        measurement: Name of the series family.
        key: Measurement and tags in line protocol.
        tags: Tag names to values, as databases get them.
    """

    id: int
    measurement: str
    key: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SeriesValues:
    """The numbers that one field of one series took.

    Attributes:
        tags: Tags of the series.
        times_ns: UTC ns, rising.
        values: As many values, in the field's unit.
        periods_s: By time, the length in s of the period that a rolled row there stands for.
        is_sampled: True if there are more values, of which these are spread evenly over the time.
    """

    tags: Mapping[str, str]
    times_ns: list[int]
    values: list[float]
    periods_s: dict[int, int] = field(default_factory=dict)
    is_sampled: bool = False

    def add(self, time_ns: int, value: float, period_s: int = 0) -> None:
        """Adds a value that is newer than all others."""
        self.times_ns.append(time_ns)
        self.values.append(value)
        if period_s:
            self.periods_s[time_ns] = period_s
