"""The cost of an inference or a token now, with its change and trend, from rows of `cost`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.overview.device_types import by_device_type
from costprobe.app.overview.unit_records import Unit, UnitCost, UnitGroup
from costprobe.core.device_names import natural
from costprobe.core.money_text import price_scale
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.row_values import number
from costprobe.domain.costing.serving.serving_change import DAY_NS, WEEK_NS, ratio_of_sums

HOUR_NS: Final = 3600 * NS_PER_S
# A series without a row for a week is omitted.
FORGOTTEN_NS: Final = WEEK_NS
# The row that a day or week ago was the newest may be this much older: probes may run rarely.
LATE_NS: Final = 6 * HOUR_NS
TREND_POINTS: Final = 42
# Windows that are read of each series of a service for its trend.
WINDOWS_PER_POINT: Final = 4
_MILLION: Final = 1_000_000

# Identity of a series across price plans: basis, device, probe, service, served model, currency.
Key = tuple[str, str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Measure:
    """How the cost of a unit is stored: field of `cost`, number of units, field of its energy."""

    unit: Unit
    field: str
    units: int
    energy_field: str


# In the order of preference.
_SERVED: Final = (
    _Measure("token", "cost_per_million_tokens_out", _MILLION, "energy_per_million_tokens_out_j"),
    _Measure("inference", "cost_per_inference", 1, "energy_per_inference_j"),
    _Measure("request", "cost_per_request", 1, "energy_per_request_j"),
)


def unit_groups(reader: StoreReader, now_ns: int) -> list[UnitGroup]:
    """Return the unit cost of every model and service with a row in the last week.

    Raises:
        StoreError: The store cannot be read.
    """
    costs = _newest(reader.last("cost", now_ns), now_ns)
    models = {
        series.tags.get("device", ""): series.tags.get("model", "")
        for series in reader.series("device")
    }
    probed = _probed(reader, costs, models, now_ns)
    return [*_served(reader, costs, now_ns), *by_device_type(probed)]


def _newest(rows: Iterable[Point], now_ns: int) -> dict[Key, Point]:
    """Return the newest row of each series, without earlier price plans and forgotten series."""
    newest: dict[Key, Point] = {}
    for row in rows:
        key = _key(row)
        is_known = row.time_ns >= now_ns - FORGOTTEN_NS
        if is_known and (key not in newest or newest[key].time_ns < row.time_ns):
            newest[key] = row
    return newest


def _key(row: Point) -> Key:
    tags = row.tags
    names = ("device", "probe", "service", "served_model", "currency")
    basis = tags.get("basis", "probe")
    # The device of a service is the first of several.
    device = "" if basis == "serving" else tags.get("device", "")
    return (basis, device, *(tags.get(name, "") for name in names[1:]))  # type: ignore[return-value]


def _by_key(rows: Iterable[Point]) -> dict[Key, list[Point]]:
    groups: dict[Key, list[Point]] = defaultdict(list)
    for row in rows:
        groups[_key(row)].append(row)
    return groups


# ---- probes


def _probed(
    reader: StoreReader, costs: Mapping[Key, Point], models: Mapping[str, str], now_ns: int
) -> list[UnitCost]:
    tags = {"basis": "probe"}
    rows = {key: row for key, row in costs.items() if row.tags.get("basis") == "probe"}
    before = [_newest_within(reader, tags, now_ns - shift_ns) for shift_ns in (DAY_NS, WEEK_NS)]
    runs = {
        (row.tags.get("device"), row.tags.get("probe")): row
        for row in sorted(reader.last("probe", now_ns), key=lambda row: row.time_ns)
    }
    trends = _probe_trends(reader, tags, now_ns, len(rows))
    found = []
    for key, row in rows.items():
        cost = _level(row)
        if cost is None:
            continue
        run = runs.get((row.tags.get("device"), row.tags.get("probe")))
        day_ago, week_ago = (
            _level(rows_then[key]) if key in rows_then else None for rows_then in before
        )
        trend = trends.get(key, [])
        found.append(
            UnitCost(
                tags={**row.tags, **({} if run is None else _way(run))},
                unit="request" if run is not None and run.tags.get("concurrency") else "inference",
                cost=cost,
                scale=price_scale(trend[0][1] if trend else cost),
                change_24h_pct=_change_pct(day_ago, cost),
                change_7d_pct=_change_pct(week_ago, cost),
                trend=trend,
                latency_ms=None if run is None else number(run, "latency_p50_ms"),
                energy_j=None if run is None else number(run, "energy_per_inference_j"),
                time_ns=row.time_ns,
                devices=(row.tags.get("device", ""),),
                is_contended=row.fields.get("contended") is True,
                device_model=models.get(row.tags.get("device", ""), ""),
            )
        )
    return found


def _way(run: Point) -> dict[str, str]:
    """Return how a probe runs: batch, concurrency and execution mode."""
    names = ("batch", "concurrency", "cold", "compile", "cuda_graph", "weights")
    return {name: run.tags[name] for name in names if name in run.tags}


def _level(row: Point) -> float | None:
    """Return the median of the last hour of a probe, or its only sample."""
    rolling = number(row, "rolling_1h")
    return number(row, "cost_per_inference") if rolling is None else rolling


def _newest_within(reader: StoreReader, tags: Mapping[str, str], until_ns: int) -> dict[Key, Point]:
    rows = reader.newest("cost", until_ns - LATE_NS, until_ns + 1, tags, limit=1)
    return {_key(row): row for row in rows}


def _probe_trends(
    reader: StoreReader, tags: Mapping[str, str], now_ns: int, count: int
) -> dict[Key, list[tuple[int, float]]]:
    trends: dict[Key, list[tuple[int, float]]] = defaultdict(list)
    sample = TREND_POINTS * max(1, count)
    for series in reader.values(
        "cost", "rolling_1h", now_ns - WEEK_NS, now_ns + 1, tags, sample=sample
    ):
        key = _key(Point("cost", series.tags, {}, 0))
        trends[key] += zip(series.times_ns, series.values, strict=True)
    return {key: sorted(points) for key, points in trends.items()}


# ---- services


def _served(reader: StoreReader, costs: Mapping[Key, Point], now_ns: int) -> list[UnitGroup]:
    tags = {"basis": "serving"}
    rows = {key: row for key, row in costs.items() if row.tags.get("basis") == "serving"}
    if not rows:
        return []
    sample = TREND_POINTS * WINDOWS_PER_POINT * len(rows)
    sampled: dict[Key, list[Point]] = defaultdict(list)
    for points in reader.rows("cost", now_ns - WEEK_NS, now_ns + 1, tags, sample=sample):
        for key, own in _by_key(points).items():
            sampled[key] += own
    hours = [
        _by_key(reader.points("cost", end_ns - HOUR_NS + 1, end_ns + 1, tags))
        for end_ns in (now_ns, now_ns - DAY_NS, now_ns - WEEK_NS)
    ]
    devices: dict[str, set[str]] = defaultdict(set)
    for series in reader.series("allocation"):
        devices[series.tags.get("service", "")].add(series.tags.get("device", ""))
    with_models = {key[3] for key in rows if key[4]}
    found = []
    for key, row in rows.items():
        if not key[4] and key[3] in with_models:
            continue  # the row of several models together
        of_service = devices.get(key[3]) or {row.tags.get("device", "")}
        unit = _served_cost(
            row,
            sampled[key],
            [hour.get(key, []) for hour in hours],
            sorted(of_service, key=natural),
        )
        if unit is not None:
            found.append(UnitGroup(unit, (unit,), 0.0, (), unit))
    return sorted(found, key=lambda group: natural(group.typical.name))


def _served_cost(
    row: Point,
    sampled: Sequence[Point],
    hours: Sequence[Sequence[Point]],
    devices: Sequence[str],
) -> UnitCost | None:
    measure = next((one for one in _SERVED if any(one.field in r.fields for r in sampled)), None)
    if measure is None:
        return None
    trend = _ratio_trend(sampled, measure)
    now, day_ago, week_ago = (_ratio(rows, measure) for rows in hours)
    cost = now if now is not None else (trend[-1][1] if trend else None)
    if cost is None:
        return None
    return UnitCost(
        tags=row.tags,
        unit=measure.unit,
        cost=cost,
        scale=_MILLION if measure.unit == "token" else price_scale(trend[0][1] if trend else cost),
        change_24h_pct=_change_pct(day_ago, now),
        change_7d_pct=_change_pct(week_ago, now),
        trend=trend,
        latency_ms=None,
        energy_j=ratio_of_sums(hours[0], measure.energy_field),
        time_ns=row.time_ns,
        devices=devices,
    )


def _ratio(rows: Sequence[Point], measure: _Measure) -> float | None:
    ratio = ratio_of_sums(rows, measure.field)
    return None if ratio is None else ratio / measure.units


def _ratio_trend(rows: Sequence[Point], measure: _Measure) -> list[tuple[int, float]]:
    step_ns = WEEK_NS // TREND_POINTS
    steps: dict[int, list[Point]] = defaultdict(list)
    for row in rows:
        steps[row.time_ns // step_ns].append(row)
    ratios = ((step * step_ns, _ratio(own, measure)) for step, own in sorted(steps.items()))
    return [(time_ns, value) for time_ns, value in ratios if value is not None]


def _change_pct(before: float | None, after: float | None) -> float | None:
    return None if not before or after is None else (after / before - 1) * 100
