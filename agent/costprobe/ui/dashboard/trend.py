"""The trend of a field: series read, downsampled, grouped, and compared with their baselines.

The baseline of a series is its median (of production the ratio of sums) over the last 30 days. It does
not depend on the range that is shown, so that the same row has the same change in every range.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from costprobe.adapters.store.read import StoreReader
from costprobe.core.records import NS_PER_S, natural
from costprobe.ui.dashboard.grouping import grouped, is_mixed
from costprobe.ui.dashboard.parameters import DAY_S, TimeRange, TrendQuery
from costprobe.ui.dashboard.thinning import (
    NO_RATIOS,
    ThinnedSeries,
    interval_ratios,
    is_production_ratio,
    thin,
)
from costprobe.unit_costs.now import (
    ContinuedSeries,
    Identity,
    continued_series,
    identity_of,
)

SERIES_MAX: Final = 60
BASE_DAYS: Final = 30
BASE_ROWS: Final = 2000
# Beyond this ratio of magnitudes the smaller series would be a flat line at the bottom.
RATIO_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class TrendAnswer:
    """Result of a trend query.

    Attributes:
        series: At most SERIES_MAX, the most recently written.
        scale: "amount", or "change" if values are changes from the baseline in percent.
        left_out: Number of omitted series.
        without_base: Number of series without a change: their baseline is unknown or 0.
        is_sampled: True if only a sample of the rows was read.
    """

    series: list[ThinnedSeries]
    scale: str
    left_out: int
    without_base: int
    is_sampled: bool


def trend_answer(reader: StoreReader, query: TrendQuery) -> TrendAnswer:
    """Read the history of a field and reduce it to what the query asks for.

    Raises:
        StoreError: The store cannot be read.
    """
    found = _read(reader, query, query.time, query.rows)
    is_sampled = any(one.series.is_sampled for one in found)
    # Prefer the most recently written series.
    found.sort(key=lambda one: one.series.times_ns[-1], reverse=True)
    left_out = 0
    if query.group == "series":
        left_out, found = max(0, len(found) - SERIES_MAX), found[:SERIES_MAX]
    found.sort(key=lambda one: natural(*chain(*sorted(one.series.tags.items()))))
    all_series = _thinned(reader, query, found)
    if query.scale != "amount" or is_mixed(all_series, query):
        bases = _bases(reader, query)
        for series in all_series:
            series.base = bases.get(identity_of(series.tags))
    scale, all_series, without_base = _scaled(all_series, query)
    if query.group != "series":
        all_series = grouped(all_series, query)
        left_out, all_series = max(0, len(all_series) - SERIES_MAX), all_series[:SERIES_MAX]
    return TrendAnswer(all_series, scale, left_out, without_base, is_sampled)


def _read(
    reader: StoreReader, query: TrendQuery, time: TimeRange, rows: int
) -> list[ContinuedSeries]:
    return continued_series(
        reader.values(
            query.measurement,
            query.field,
            time.since_ns,
            time.until_ns,
            query.tags or None,
            sample=rows,
        )
    )


def _thinned(
    reader: StoreReader, query: TrendQuery, found: Sequence[ContinuedSeries]
) -> list[ThinnedSeries]:
    is_long = any(_is_served(one) and len(one.series.values) > query.points for one in found)
    ratios: Mapping[Identity, Mapping[int, float]] = {}
    if is_long and is_production_ratio(query):
        ratios = interval_ratios(reader, query, query.time, query.points, query.rows)
    thinned = []
    for one in found:
        series = thin(one.series, query, ratios.get(identity_of(one.series.tags), NO_RATIOS))
        series.changes = one.changes
        thinned.append(series)
    return thinned


def _is_served(one: ContinuedSeries) -> bool:
    return one.series.tags.get("basis") == "serving"


def _bases(reader: StoreReader, query: TrendQuery) -> dict[Identity, float]:
    """Return the baseline of each series that has rows in the last BASE_DAYS."""
    time = TimeRange(query.now_ns - int(BASE_DAYS * DAY_S * NS_PER_S), query.now_ns)
    found = _read(reader, query, time, BASE_ROWS)
    bases = {identity_of(one.series.tags): statistics.median(one.series.values) for one in found}
    if is_production_ratio(query) and any(_is_served(one) for one in found):
        ratios = interval_ratios(reader, query, time, 1, BASE_ROWS)
        bases |= {identity: of[0] for identity, of in ratios.items() if 0 in of}
    return bases


def _scaled(
    all_series: list[ThinnedSeries], query: TrendQuery
) -> tuple[str, list[ThinnedSeries], int]:
    """Return the scale, the series in it, and the number of those that have no change."""
    based = [series for series in all_series if series.base is not None and series.base > 0]
    if query.scale == "change" or is_mixed(all_series, query):
        is_change = True
    else:
        is_change = query.scale == "auto" and len(based) == len(all_series) and _is_wide(based)
    if not is_change:
        return "amount", all_series, 0
    for series in based:
        series.values, series.lows, series.highs = (
            [_change_pct(value, series.base or 1.0) for value in values]
            for values in (series.values, series.lows, series.highs)
        )
    return "change", based, len(all_series) - len(based)


def _change_pct(value: float, base: float) -> float:
    return (value / base - 1) * 100


def _is_wide(all_series: Sequence[ThinnedSeries]) -> bool:
    medians = [statistics.median(series.values) for series in all_series]
    return bool(medians) and max(medians) > RATIO_MAX * min(medians)
