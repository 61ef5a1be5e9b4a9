"""A long series as a picture holds it: a median and the extremes for each stretch of time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import groupby

from agent.dashboard.parameters import TrendQuery
from agent.storage.history import SeriesValues
from agent.storage.reader import StoreReader

SERIES_MAX = 60


@dataclass(slots=True)
class Thinned:
    """A series with few enough points to draw.

    Attributes:
        tags: Tags of the series.
        samples: How many values it was made from.
        times_ns: UTC in ns, rising.
        values: The value, or the median of a stretch of time.
        lows: The least value of each stretch.
        highs: The greatest value of each stretch.
    """

    tags: dict[str, str]
    samples: int = 0
    times_ns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ThinnedAnswer:
    """What a trend query found.

    Attributes:
        series: At most SERIES_MAX, those that were written last.
        left_out: How many series are left out.
        is_sampled: True if only some rows, spread evenly over the time, were read.
    """

    series: list[Thinned]
    left_out: int
    is_sampled: bool


def thinned_trend(reader: StoreReader, query: TrendQuery) -> ThinnedAnswer:
    """Reads a field's history and thins it to what the query allows.

    Raises:
        StoreError: The store cannot be read.
    """
    time = query.time
    found = reader.values(
        query.measurement,
        query.field,
        time.since_ns,
        time.until_ns,
        query.tags or None,
        sample=query.rows,
    )
    is_sampled = any(series.is_sampled for series in found)
    # The series that were written last are the ones that a reader asks after.
    found.sort(key=lambda series: series.times_ns[-1], reverse=True)
    kept = sorted(found[:SERIES_MAX], key=lambda series: sorted(series.tags.items()))
    return ThinnedAnswer(
        [thin(series, query) for series in kept], max(0, len(found) - SERIES_MAX), is_sampled
    )


def thin(series: SeriesValues, query: TrendQuery) -> Thinned:
    """A series with at most `query.points` points; a short one as it is.

    A mean would let one outlier draw the curve, and a median alone would hide it: so a stretch
    is its median, its least and its greatest value.
    """
    found = Thinned(dict(series.tags), len(series.values))
    if len(series.values) <= query.points:
        found.times_ns, found.values = series.times_ns, series.values
        found.lows = found.highs = series.values
        return found
    since_ns, length_ns = query.time.since_ns, query.time.until_ns - query.time.since_ns
    rows = zip(series.times_ns, series.values, strict=True)
    for _, group in groupby(rows, lambda row: (row[0] - since_ns) * query.points // length_ns):
        together = list(group)
        values = [value for _, value in together]
        found.times_ns.append(together[len(together) // 2][0])
        found.values.append(statistics.median(values))
        found.lows.append(min(values))
        found.highs.append(max(values))
    return found
