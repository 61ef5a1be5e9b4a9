"""The trend of a field: its series over time.

The series of a trend are read, downsampled, grouped, and compared with their baselines.
The baseline of a series is its median (of production the ratio of sums) over the last 30 days. It does
not depend on the range that is shown, so that the same row has the same change in every range.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from types import MappingProxyType
from typing import Final

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.records import NS_PER_S, Point, natural
from costprobe.core.schema import SERVING_RATIOS
from costprobe.ui.dashboard.parameters import DAY_S, TimeRange, TrendQuery
from costprobe.unit_costs.change import ratio_of_sums
from costprobe.unit_costs.now import (
    OUTLIER_SHARE,
    ContinuedSeries,
    Identity,
    TagChange,
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
        is_hourly: True if a series was read by the hour.
    """

    series: list[ThinnedSeries]
    scale: str
    left_out: int
    without_base: int
    is_hourly: bool


def trend_answer(reader: StoreReader, query: TrendQuery) -> TrendAnswer:
    """Read the history of a field and reduce it to what the query asks for.

    Raises:
        StoreError: The store cannot be read.
    """
    found = _read(reader, query, query.time, query.rows)
    is_hourly = any(one.series.is_hourly for one in found)
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
    return TrendAnswer(all_series, scale, left_out, without_base, is_hourly)


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
            most=rows,
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


# A series without a sample for this many of its usual distances does not count.
HELD_STEPS: Final = 3
_UNITS: Final = ("basis", "currency")

Names = tuple[str, ...]


def model_of(tags: Mapping[str, str], measurement: str) -> Names:
    """Return what identifies a model: probe, or service and model; of a device its own model."""
    tag_names = ("model",) if measurement == "device" else ("probe", "service", "served_model")
    return tuple(tags.get(name, "") for name in tag_names)


def grouped(all_series: Sequence[ThinnedSeries], query: TrendQuery) -> list[ThinnedSeries]:
    """Return one series for each model or device, as the query has it; units are not mixed."""
    groups: dict[Names, list[ThinnedSeries]] = {}
    for series in all_series:
        units = tuple(series.tags.get(name, "") for name in _UNITS)
        groups.setdefault((*_key(series, query), *units), []).append(series)
    ordered = [groups[key] for key in sorted(groups, key=lambda key: natural(*key))]
    return [one for members in ordered for one in (_merged(members, query), *_outliers(members))]


def _outliers(members: Sequence[ThinnedSeries]) -> list[ThinnedSeries]:
    """Return the members whose newest value deviates from that of the others."""
    newest = [series.values[-1] for series in members]
    middle = statistics.median_low(newest)
    deviating = [
        series
        for series, value in zip(members, newest, strict=True)
        if abs(value - middle) > OUTLIER_SHARE * abs(middle)
    ]
    if 2 * len(deviating) > len(members):
        return []  # they have little in common
    for series in deviating:
        series.is_outlier = True
    return deviating


def is_mixed(all_series: Sequence[ThinnedSeries], query: TrendQuery) -> bool:
    """Whether a group by device has several models, whose amounts have nothing in common."""
    if query.group != "device":
        return False
    models: dict[Names, set[Names]] = {}
    for series in all_series:
        models.setdefault(_key(series, query), set()).add(model_of(series.tags, query.measurement))
    return any(len(names) > 1 for names in models.values())


def _key(series: ThinnedSeries, query: TrendQuery) -> Names:
    if query.group == "device":
        return (series.tags.get("device", ""),)
    return model_of(series.tags, query.measurement)


def _merged(members: Sequence[ThinnedSeries], query: TrendQuery) -> ThinnedSeries:
    common = set(members[0].tags.items()).intersection(*(m.tags.items() for m in members))
    whole = ThinnedSeries(dict(sorted(common)), sum(member.samples for member in members))
    whole.members = len({_other(member, query) for member in members})
    whole.changes = sorted(change for member in members for change in member.changes)
    held = [_held(member, query) for member in members]
    newest: dict[int, int] = {}
    for member in members:
        for time_ns in member.times_ns:
            interval = interval_of(time_ns, query)
            newest[interval] = max(newest.get(interval, time_ns), time_ns)
    for interval in sorted(newest):
        found = [places[interval] for places in held if interval in places]
        whole.times_ns.append(newest[interval])
        whole.values.append(statistics.median(value for value, _, _ in found))
        whole.lows.append(min(low for _, low, _ in found))
        whole.highs.append(max(high for _, _, high in found))
    return whole


def _other(member: ThinnedSeries, query: TrendQuery) -> Names:
    if query.group == "device":
        return model_of(member.tags, query.measurement)
    return (member.tags.get("device", ""),)


def _held(member: ThinnedSeries, query: TrendQuery) -> dict[int, tuple[float, float, float]]:
    """Return value, least and greatest of a series in each interval in which it has them."""
    places = [interval_of(time_ns, query) for time_ns in member.times_ns]
    steps = [after - before for before, after in pairwise(places)]
    reach = max(1, int(HELD_STEPS * statistics.median(steps))) if steps else 1
    held: dict[int, tuple[float, float, float]] = {}
    rows = zip(member.values, member.lows, member.highs, strict=True)
    ends = [*places[1:], query.points]
    for place, end, row in zip(places, ends, rows, strict=True):
        for interval in range(place, max(place + 1, min(end, place + reach))):
            held[interval] = row
    return held


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
        is_outlier: Whether it is one of a group, from which it deviates.
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
    is_outlier: bool = False


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
        rows_max: A series with more rows is read by the hour.
    """
    length_ns = time.until_ns - time.since_ns
    rows: dict[Identity, dict[int, list[Point]]] = {}
    tags = {**query.tags, "basis": "serving"}
    for row in reader.points("cost", time.since_ns, time.until_ns, tags, most=rows_max):
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
