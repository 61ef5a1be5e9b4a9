"""Groups of series for a chart: one line for each model or device, with its spread.

A point of a group is the median of its series at that time, with the least and the greatest of them.
Between two samples of a series its last value counts, for as long as its samples are usually apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from costprobe.core.records import natural
from costprobe.ui.dashboard.parameters import TrendQuery
from costprobe.ui.dashboard.thinning import ThinnedSeries, interval_of

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
    return [_merged(groups[key], query) for key in sorted(groups, key=lambda key: natural(*key))]


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
