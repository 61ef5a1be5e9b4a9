"""A long series as a picture holds it: a median and the extremes for each stretch of time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import groupby

from agent.dashboard.parameters import TrendQuery
from agent.storage.reader import SeriesValues, StoreReader

# So many values are read for one answer; of a longer history, a part of each stretch of time.
VALUES_MAX = 200_000
SERIES_MAX = 60
# The density of a history is judged by three such parts of it.
_JUDGED_PART = 100


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
        is_sampled: True if only a part of each stretch of time was read.
    """

    series: list[Thinned]
    left_out: int
    is_sampled: bool


def thinned_trend(reader: StoreReader, query: TrendQuery) -> ThinnedAnswer:
    """Reads a field's history and thins it to what the query allows.

    Raises:
        StoreError: The store cannot be read.
    """
    expected = _expected_values(reader, query)
    is_sampled = expected > VALUES_MAX
    if is_sampled:
        found = _sampled(reader, query, VALUES_MAX / expected)
    else:
        found = _read(reader, query, query.time.since_ns, query.time.until_ns)
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


def _expected_values(reader: StoreReader, query: TrendQuery) -> float:
    """About how many values the history holds, judged by its densest of three parts."""
    since_ns, until_ns = query.time.since_ns, query.time.until_ns
    part_ns = max(1, (until_ns - since_ns) // _JUDGED_PART)
    starts = (since_ns, (since_ns + until_ns) // 2, until_ns - part_ns)
    parts = (_read(reader, query, start_ns, start_ns + part_ns) for start_ns in starts)
    return max(sum(len(series.values) for series in part) for part in parts) * _JUDGED_PART


def _sampled(reader: StoreReader, query: TrendQuery, share: float) -> list[SeriesValues]:
    """The beginning of each stretch of time, as far as the share allows."""
    since_ns, until_ns = query.time.since_ns, query.time.until_ns
    found: dict[tuple[tuple[str, str], ...], SeriesValues] = {}
    for bucket in range(query.points):
        start_ns = since_ns + (until_ns - since_ns) * bucket // query.points
        end_ns = since_ns + (until_ns - since_ns) * (bucket + 1) // query.points
        part_ns = max(1, int((end_ns - start_ns) * share))
        for series in _read(reader, query, start_ns, start_ns + part_ns):
            key = tuple(sorted(series.tags.items()))
            whole = found.setdefault(key, SeriesValues(series.tags, [], []))
            whole.times_ns.extend(series.times_ns)
            whole.values.extend(series.values)
    return list(found.values())


def _read(
    reader: StoreReader, query: TrendQuery, since_ns: int, until_ns: int
) -> list[SeriesValues]:
    return reader.values(query.measurement, query.field, since_ns, until_ns, query.tags or None)
