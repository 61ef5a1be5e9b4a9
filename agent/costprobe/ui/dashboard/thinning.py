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

from costprobe.adapters.storage.history import SeriesValues
from costprobe.adapters.storage.reader import StoreReader
from costprobe.core.serving_ratios import SERVING_RATIOS
from costprobe.domain.costing.serving.serving_change import ratio_of_sums
from costprobe.ui.dashboard.parameters import TrendQuery

SERIES_MAX = 60
NO_RATIOS: Final[Mapping[int, float]] = MappingProxyType({})

Key = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class ThinnedSeries:
    """A downsampled series.

    Attributes:
        tags: Tags of the series.
        samples: Number of values before downsampling.
        times_ns: UTC in ns, ascending.
        values: Value, or median of an interval.
        lows: Minimum of each interval.
        highs: Maximum of each interval.
    """

    tags: dict[str, str]
    samples: int = 0
    times_ns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ThinnedAnswer:
    """Result of a trend query.

    Attributes:
        series: At most SERIES_MAX, the most recently written.
        left_out: Number of omitted series.
        is_sampled: True if only a sample of the rows was read.
    """

    series: list[ThinnedSeries]
    left_out: int
    is_sampled: bool


def thinned_trend(reader: StoreReader, query: TrendQuery) -> ThinnedAnswer:
    """Read the history of a field and downsample it to the limits of the query.

    Raises:
        StoreError: The store cannot be read.
    """
    all_series = reader.values(
        query.measurement,
        query.field,
        query.time.since_ns,
        query.time.until_ns,
        query.tags or None,
        sample=query.rows,
    )
    is_sampled = any(series.is_sampled for series in all_series)
    ratios = _ratios(reader, query) if _is_long_production(all_series, query) else {}
    # Prefer the most recently written series.
    all_series.sort(key=lambda series: series.times_ns[-1], reverse=True)
    first_series = sorted(all_series[:SERIES_MAX], key=lambda series: sorted(series.tags.items()))
    return ThinnedAnswer(
        [
            thin(series, query, ratios.get(tuple(sorted(series.tags.items())), {}))
            for series in first_series
        ],
        max(0, len(all_series) - SERIES_MAX),
        is_sampled,
    )


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
    for interval, group in groupby(rows, lambda row: _interval(row[0], query)):
        together = list(group)
        values = [value for _, value in together]
        value = ratios.get(interval, statistics.median(values))
        thinned.times_ns.append(together[len(together) // 2][0])
        thinned.values.append(value)
        # The cost of windows without an inference is in the ratio of sums alone.
        thinned.lows.append(min(value, *values))
        thinned.highs.append(max(value, *values))
    return thinned


def _interval(time_ns: int, query: TrendQuery) -> int:
    length_ns = query.time.until_ns - query.time.since_ns
    return (time_ns - query.time.since_ns) * query.points // length_ns


def _is_long_production(all_series: Sequence[SeriesValues], query: TrendQuery) -> bool:
    return (
        query.measurement == "cost"
        and query.field in SERVING_RATIOS
        and any(
            series.tags.get("basis") == "serving" and len(series.values) > query.points
            for series in all_series
        )
    )


def _ratios(reader: StoreReader, query: TrendQuery) -> Mapping[Key, Mapping[int, float]]:
    """Return the ratio of sums of each interval, by the tags of the series."""
    ratios: dict[Key, dict[int, float]] = {}
    tags = {**query.tags, "basis": "serving"}
    for rows in reader.rows(
        "cost", query.time.since_ns, query.time.until_ns, tags, sample=query.rows
    ):
        for interval, group in groupby(rows, lambda row: _interval(row.time_ns, query)):
            together = list(group)
            ratio = ratio_of_sums(together, query.field)
            if ratio is not None:
                key = tuple(sorted(together[0].tags.items()))
                ratios.setdefault(key, {})[interval] = ratio
    return ratios
