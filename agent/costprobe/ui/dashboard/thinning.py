"""Downsampling of a long series for a chart: median and extremes of each interval.

A ratio of production, such as the cost of a service's inferences, is the ratio of the interval's
sums: a median of windows would weigh an idle one as much as a busy one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Final

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.records import Point
from costprobe.core.schema import SERVING_RATIOS
from costprobe.ui.dashboard.parameters import TimeRange, TrendQuery
from costprobe.unit_costs.change import ratio_of_sums
from costprobe.unit_costs.now import Identity, TagChange, identity_of

NO_RATIOS: Final[Mapping[int, float]] = MappingProxyType({})


@dataclass(slots=True)
class ThinnedSeries:
    """A downsampled series, or a group of them.

    Attributes:
        tags: Tags of the series; of a group those that all have in common.
        samples: Number of values before downsampling.
        times_ns: UTC in ns, ascending.
        values: Value, or median of an interval.
        lows: Minimum of each interval; of a group the least of its series.
        highs: Maximum of each interval; of a group the greatest of its series.
        changes: Changes of plan and labels.
        base: Baseline, in the unit of the field; None if it is unknown or not asked for.
        members: Number of devices or models in a group; 1 without one.
    """

    tags: dict[str, str]
    samples: int = 0
    times_ns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    changes: Sequence[TagChange] = ()
    base: float | None = None
    members: int = 1


def thin(
    series: SeriesValues, query: TrendQuery, ratios: Mapping[int, float] = NO_RATIOS
) -> ThinnedSeries:
    """Return a series with at most `query.points` points; a short one is unchanged.

    Each interval has its median, minimum and maximum: a mean would be distorted by an outlier, and a
    median alone would hide it.

    Args:
        series: The values.
        query: The query.
        ratios: Ratio of the sums of each interval, instead of its median.
    """
    thinned = ThinnedSeries(dict(series.tags), len(series.values))
    if len(series.values) <= query.points:
        thinned.times_ns, thinned.values = series.times_ns, series.values
        thinned.lows = thinned.highs = series.values
        return thinned
    rows = zip(series.times_ns, series.values, strict=True)
    for interval, group in groupby(rows, lambda row: interval_of(row[0], query)):
        together = list(group)
        values = [value for _, value in together]
        value = ratios.get(interval, statistics.median(values))
        thinned.times_ns.append(together[len(together) // 2][0])
        thinned.values.append(value)
        # The cost of windows without an inference is in the ratio of sums alone.
        thinned.lows.append(min(value, *values))
        thinned.highs.append(max(value, *values))
    return thinned


def interval_of(time_ns: int, query: TrendQuery) -> int:
    """Return the number of the interval of a time: the range has `query.points` of them."""
    length_ns = query.time.until_ns - query.time.since_ns
    return (time_ns - query.time.since_ns) * query.points // length_ns


def is_production_ratio(query: TrendQuery) -> bool:
    """Whether the values of services are ratios of sums."""
    return query.measurement == "cost" and query.field in SERVING_RATIOS


def interval_ratios(
    reader: StoreReader, query: TrendQuery, time: TimeRange, intervals: int, rows_max: int
) -> Mapping[Identity, Mapping[int, float]]:
    """Return the ratio of sums of each interval of a time range, for each service.

    Args:
        reader: The store.
        query: The field and its tags.
        time: Time range.
        intervals: Number of intervals in it.
        rows_max: Most rows to read, of all series together.
    """
    length_ns = time.until_ns - time.since_ns
    rows: dict[Identity, dict[int, list[Point]]] = {}
    tags = {**query.tags, "basis": "serving"}
    for found in reader.rows("cost", time.since_ns, time.until_ns, tags, sample=rows_max):
        for row in found:
            interval = (row.time_ns - time.since_ns) * intervals // length_ns
            rows.setdefault(identity_of(row.tags), {}).setdefault(interval, []).append(row)
    return {
        identity: {
            interval: ratio
            for interval, together in of_intervals.items()
            if (ratio := ratio_of_sums(together, query.field)) is not None
        }
        for identity, of_intervals in rows.items()
    }
