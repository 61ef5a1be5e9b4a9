"""Downsampling of a long series for a chart: median and extremes of each interval."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import groupby

from costprobe.adapters.storage.history import SeriesValues
from costprobe.adapters.storage.reader import StoreReader
from costprobe.ui.dashboard.parameters import TrendQuery

SERIES_MAX = 60


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
    time = query.time
    all_series = reader.values(
        query.measurement,
        query.field,
        time.since_ns,
        time.until_ns,
        query.tags or None,
        sample=query.rows,
    )
    is_sampled = any(series.is_sampled for series in all_series)
    # Prefer the most recently written series.
    all_series.sort(key=lambda series: series.times_ns[-1], reverse=True)
    first_series = sorted(all_series[:SERIES_MAX], key=lambda series: sorted(series.tags.items()))
    return ThinnedAnswer(
        [thin(series, query) for series in first_series],
        max(0, len(all_series) - SERIES_MAX),
        is_sampled,
    )


def thin(series: SeriesValues, query: TrendQuery) -> ThinnedSeries:
    """Return a series with at most `query.points` points; a short one is unchanged.

    Each interval has its median, minimum and maximum: a mean would be distorted by an outlier, and a
    median alone would hide it.
    """
    thinned = ThinnedSeries(dict(series.tags), len(series.values))
    if len(series.values) <= query.points:
        thinned.times_ns, thinned.values = series.times_ns, series.values
        thinned.lows = thinned.highs = series.values
        return thinned
    since_ns, length_ns = query.time.since_ns, query.time.until_ns - query.time.since_ns
    rows = zip(series.times_ns, series.values, strict=True)
    for _, group in groupby(rows, lambda row: (row[0] - since_ns) * query.points // length_ns):
        together = list(group)
        values = [value for _, value in together]
        thinned.times_ns.append(together[len(together) // 2][0])
        thinned.values.append(statistics.median(values))
        thinned.lows.append(min(values))
        thinned.highs.append(max(values))
    return thinned
