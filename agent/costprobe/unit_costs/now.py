"""The cost of an inference or a token now, with its change and trend, from rows of `cost`.

Devices of the same type are compared: which one deviates from the others.

One history continues over changes of the price plan and of labels. A row of another plan or label
belongs to another stored series, but to the same model on the same device: drawn as two series, a
change of plan would look like an end and a beginning.

Answers are plain records; unknown values are None.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.columns import RowColumns, number, numbers_of
from costprobe.core.money import price_scale
from costprobe.core.periods import DAY_NS, HOUR_NS, WEEK_NS
from costprobe.core.records import TOGETHER, Point, natural
from costprobe.core.schema import GROUP_TAGS, OWN_TAGS, SLO_FIELDS
from costprobe.core.slo import BOUNDS, SloShare
from costprobe.unit_costs.change import ratio_of_sums

# What a cost is divided by: an inference of a probe or a service, or an output token.
Unit = Literal["inference", "request", "token"]
# Tags of how a probe runs.
_WAYS: Final = ("batch", "concurrency", "cold", "compile", "cuda_graph", "weights")
# Modified z-score above which a value is an outlier (Iglewicz and Hoaglin 1993), and the smallest deviation
# that matters: devices of one type differ by 1 to 2 % from their manufacturing.
OUTLIER_SCORE: Final = 3.5
_NORMAL_MAD: Final = 0.6745
OUTLIER_SHARE: Final = 0.03
# A series without a row for a week is omitted.
FORGOTTEN_NS: Final = WEEK_NS
# The row that a day or week ago was the newest may be this much older: probes may run rarely.
LATE_NS: Final = 6 * HOUR_NS
TREND_POINTS: Final = 42
_MILLION: Final = 1_000_000
# Identity of a series across price plans: basis, device, probe, service, served model, currency.
Key = tuple[str, str, str, str, str, str]
# Tags of costprobe that identify what is measured; others may change while it stays the same.
_IDENTITY = OWN_TAGS - {"plan", *GROUP_TAGS}
Identity = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What one unit of a model costs on one device, or of a service.

    Attributes:
        tags: Its tags: device and probe, or service and served_model; basis and currency.
        unit: What the cost is divided by.
        cost: Currency per unit in the last hour with a value.
        scale: How many units the cost is written for; constant for a series.
        change_24h_pct: Change of the last hour against the same hour a day before, in percent.
        change_7d_pct: The same against a week before.
        trend: Times in UTC ns and currency per unit, of the last seven days, by the hour.
        latency_ms: Median latency.
        energy_j: Joules per unit, of tokens per million output tokens.
        time_ns: UTC in ns of the newest row.
        is_contended: Whether others used the device.
        devices: Its device, or those of the service.
        device_model: Product name of the device; empty for a service.
        limit_share: Cost at the hardware's limit, as a share of the cost; None if it is unknown.
        slo: The requests of the last hour within each bound of the service's level.
    """

    tags: Mapping[str, str]
    unit: Unit
    cost: float
    scale: int
    change_24h_pct: float | None
    change_7d_pct: float | None
    trend: Sequence[tuple[int, float]]
    latency_ms: float | None
    energy_j: float | None
    time_ns: int
    devices: Sequence[str]
    is_contended: bool = False
    device_model: str = ""
    limit_share: float | None = None
    slo: tuple[SloShare, ...] = ()

    @property
    def name(self) -> str:
        """The model or service: "encoder", "chat", "chat/llama-3.1-8b"."""
        tags = self.tags
        parts = (tags.get("service") or tags.get("probe", ""), tags.get("served_model", ""))
        return "/".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """A model on identical devices, or a service.

    Attributes:
        typical: The member with the median cost, outliers aside, whose figures stand for all.
        members: All of them, by device.
        spread: Largest minus smallest cost, as a share of the median; 0 for one member.
        outliers: Devices whose cost, or whose change against 24 h, deviates from that of the others.
    """

    typical: UnitCost
    members: Sequence[UnitCost]
    spread: float = 0.0
    outliers: Sequence[str] = ()


def _by_device_type(units: Iterable[UnitCost]) -> list[UnitGroup]:
    """Group a model's costs on devices of the same type, in the same currency and execution mode."""
    groups: dict[tuple[str, ...], list[UnitCost]] = defaultdict(list)
    for unit in units:
        tags = unit.tags
        ways = (tags.get(name, "") for name in ("currency", *_WAYS))
        groups[
            tags.get("probe", ""), unit.device_model or tags.get("device", ""), unit.unit, *ways
        ].append(unit)
    return [
        _group(members) for _, members in sorted(groups.items(), key=lambda item: natural(*item[0]))
    ]


def deviating(costs: Sequence[float]) -> list[bool]:
    """Return which costs of identical devices deviate from their median."""
    middle = statistics.median_low(costs)
    deviations = [abs(cost - middle) for cost in costs]
    limit = max(OUTLIER_SHARE * middle, OUTLIER_SCORE / _NORMAL_MAD * statistics.median(deviations))
    return [deviation > limit for deviation in deviations]


def _group(members: list[UnitCost]) -> UnitGroup:
    members.sort(key=lambda unit: natural(unit.tags.get("device", "")))
    middle = statistics.median_low(unit.cost for unit in members)
    # Of two devices neither deviates from the median, but one may have changed.
    changes = sorted((unit.change_24h_pct or 0.0 for unit in members), key=abs)
    usual = changes[(len(changes) - 1) // 2]
    outliers = [
        unit
        for unit, deviates in zip(members, deviating([one.cost for one in members]), strict=True)
        if len(members) > 1
        and (
            deviates
            or abs((unit.change_24h_pct or 0.0) - usual) > max(OUTLIER_SHARE * 100, abs(usual))
        )
    ]
    alike = sorted((u for u in members if u not in outliers), key=lambda unit: unit.cost) or members
    costs = [unit.cost for unit in members]
    return UnitGroup(
        typical=alike[(len(alike) - 1) // 2],
        members=tuple(members),
        spread=(max(costs) - min(costs)) / middle if middle else 0.0,
        outliers=tuple(unit.tags.get("device", "") for unit in outliers),
    )


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
    return [*_served(reader, costs, now_ns), *_by_device_type(probed)]


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
    hour = now_ns - HOUR_NS + 1, now_ns + 1
    beside: dict[tuple[str | None, str | None], list[Point]] = defaultdict(list)
    for one in reader.points("probe", *hour):
        beside[one.tags.get("device"), one.tags.get("probe")].append(one)
    paid = _by_key(reader.points("cost", *hour, tags))
    trends = _probe_trends(reader, tags, now_ns)
    found = []
    for key, row in rows.items():
        pair = (row.tags.get("device"), row.tags.get("probe"))
        run = runs.get(pair)
        # Cost, latency and energy are of the same runs: those of the last hour like the newest.
        alike = [one for one in beside[pair] if run is not None and _way(one) == _way(run)]
        times_ns = {one.time_ns for one in alike}
        same = [one for one in paid.get(key, ()) if one.time_ns in times_ns]
        is_mixed = len(alike) < len(beside[pair])
        cost = _middle(same, "cost_per_inference") if is_mixed and same else _level(row)
        if cost is None:
            continue
        day_ago, week_ago = (_level(old[key]) if key in old else None for old in before)
        trend = trends.get(key, [])
        at_limit, newest = number(row, "cost_roofline"), number(row, "cost_per_inference")
        shown = alike or ([] if run is None else [run])
        found.append(
            UnitCost(
                tags={**row.tags, **({} if run is None else _way(run))},
                unit="request" if run is not None and run.tags.get("concurrency") else "inference",
                cost=cost,
                scale=price_scale(trend[0][1] if trend else cost),
                change_24h_pct=_change_pct(day_ago, cost),
                change_7d_pct=_change_pct(week_ago, cost),
                trend=trend,
                latency_ms=_middle(shown, "latency_p50_ms"),
                energy_j=_middle(shown, "energy_per_inference_j"),
                time_ns=row.time_ns,
                devices=(row.tags.get("device", ""),),
                is_contended=row.fields.get("contended") is True,
                device_model=models.get(row.tags.get("device", ""), ""),
                limit_share=at_limit / newest if at_limit and newest else None,
            )
        )
    return found


def _middle(rows: Iterable[Point], field: str) -> float | None:
    """Return the median of a field; None without a value."""
    values = [value for row in rows if (value := number(row, field)) is not None]
    return statistics.median(values) if values else None


def _way(run: Point) -> dict[str, str]:
    """Return how a probe runs: batch, concurrency and execution mode."""
    return {name: run.tags[name] for name in _WAYS if name in run.tags}


def _level(row: Point) -> float | None:
    """Return the median of the last hour of a probe, or its only sample."""
    rolling = number(row, "rolling_1h")
    return number(row, "cost_per_inference") if rolling is None else rolling


def _newest_within(reader: StoreReader, tags: Mapping[str, str], until_ns: int) -> dict[Key, Point]:
    rows = reader.newest("cost", until_ns - LATE_NS, until_ns + 1, tags, limit=1)
    return {_key(row): row for row in rows}


def _probe_trends(
    reader: StoreReader, tags: Mapping[str, str], now_ns: int
) -> dict[Key, list[tuple[int, float]]]:
    trends: dict[Key, list[tuple[int, float]]] = defaultdict(list)
    span = now_ns - WEEK_NS, now_ns + 1
    for series in reader.values("cost", "rolling_1h", *span, tags, most=TREND_POINTS):
        key = _key(Point("cost", series.tags, {}, 0))
        trends[key] += zip(series.times_ns, series.values, strict=True)
    return {key: sorted(points) for key, points in trends.items()}


# ---- services


def _served(reader: StoreReader, costs: Mapping[Key, Point], now_ns: int) -> list[UnitGroup]:
    tags = {"basis": "serving"}
    rows = {key: row for key, row in costs.items() if row.tags.get("basis") == "serving"}
    if not rows:
        return []
    week = _by_key(reader.points("cost", now_ns - WEEK_NS, now_ns + 1, tags, most=TREND_POINTS))
    hours = [
        _by_key(reader.points("cost", end_ns - HOUR_NS + 1, end_ns + 1, tags))
        for end_ns in (now_ns, now_ns - DAY_NS, now_ns - WEEK_NS)
    ]
    with_models = {key[3] for key in rows if key[4]}
    levels = slo_shares(reader.columns("slo", now_ns - HOUR_NS + 1, now_ns + 1, fields=SLO_FIELDS))
    found = []
    for key, row in rows.items():
        if not key[4] and key[3] in with_models:
            continue  # the row of several models together
        unit = _served_cost(
            row,
            week.get(key, []),
            [hour.get(key, []) for hour in hours],
            row.tags.get("device", "").split(TOGETHER),
            levels.get(key[3], ()),
        )
        if unit is not None:
            found.append(UnitGroup(unit, (unit,)))
    return sorted(found, key=lambda group: natural(group.typical.name))


def slo_shares(parts: Iterable[RowColumns]) -> dict[str, list[SloShare]]:
    """Return the requests within each bound of each service's level, by service.

    Args:
        parts: Rows of `slo`.
    """
    bounds: dict[tuple[str, str], list[RowColumns]] = defaultdict(list)
    for part in parts:
        bounds[part.tags.get("service", ""), part.tags.get("bound", "")].append(part)
    found: dict[str, list[SloShare]] = defaultdict(list)
    for (service, bound), own in bounds.items():
        if bound not in BOUNDS:
            continue
        counts = (math.fsum(numbers_of(own, name)) for name in ("requests", "requests_met"))
        newest = max(own, key=lambda part: part.times_ns[-1])
        ends = (newest.numbers(name)[-1:] for name in ("bound_ms", "within_ms"))
        found[service].append(SloShare(bound, *counts, *(next(iter(end), None) for end in ends)))
    return found


def _served_cost(
    row: Point,
    week: Sequence[Point],
    hours: Sequence[Sequence[Point]],
    devices: Sequence[str],
    slo: Iterable[SloShare],
) -> UnitCost | None:
    measure = next((one for one in _SERVED if any(one.field in r.fields for r in week)), None)
    if measure is None:
        return None
    trend = _ratio_trend(week, measure)
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
        slo=tuple(slo),
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


class TagChange(NamedTuple):
    """A change of a plan or label.

    Attributes:
        time_ns: UTC ns of the first row with the new value.
        tag: The tag.
        before: Value before; empty for none.
        after: Value since; empty for none.
    """

    time_ns: int
    tag: str
    before: str
    after: str


class ContinuedSeries(NamedTuple):
    """The values of one thing.

    Attributes:
        series: Its values; the tags are the newest.
        changes: Changes of its plan and labels, oldest first.
    """

    series: SeriesValues
    changes: list[TagChange]


def identity_of(tags: Mapping[str, str]) -> Identity:
    """Return the tags that identify what a row is of, without its plan and labels."""
    return tuple(sorted((name, tags[name]) for name in tags.keys() & _IDENTITY))


def continued_series(all_series: Iterable[SeriesValues]) -> list[ContinuedSeries]:
    """Join the series that differ only in plan or labels and follow each other in time.

    Series whose rows alternate, such as two teams' shares of one device, stay separate.

    Args:
        all_series: Series of one field, each with at least one value.
    """
    by_identity: dict[Identity, list[SeriesValues]] = {}
    for series in all_series:
        by_identity.setdefault(identity_of(series.tags), []).append(series)
    return [found for parts in by_identity.values() for found in _joined(parts)]


def _joined(parts: Sequence[SeriesValues]) -> list[ContinuedSeries]:
    if len(parts) == 1:
        return [ContinuedSeries(parts[0], [])]
    rows = sorted(
        (time_ns, number, value, end)
        for number, part in enumerate(parts)
        for time_ns, value, end in zip(part.times_ns, part.values, part.ends, strict=True)
    )
    steps = [(a[1], b[1], b[0]) for a, b in pairwise(rows) if a[1] != b[1]]
    is_simultaneous = any(a[0] == b[0] for a, b in pairwise(rows))
    if is_simultaneous or len(steps) > max(len(parts) - 1, len(rows) // 4):
        return [ContinuedSeries(part, []) for part in parts]
    newest = parts[rows[-1][1]]
    whole = SeriesValues(newest.tags, [], [], is_hourly=any(part.is_hourly for part in parts))
    for time_ns, _, value, end in rows:
        whole.add(time_ns, value, end)
    changes = [
        change
        for before, after, time_ns in steps
        for change in _changes(parts[before].tags, parts[after].tags, time_ns)
    ]
    return [ContinuedSeries(whole, changes)]


def _changes(before: Mapping[str, str], after: Mapping[str, str], time_ns: int) -> list[TagChange]:
    return [
        TagChange(time_ns, tag, before.get(tag, ""), after.get(tag, ""))
        for tag in sorted(before.keys() | after.keys())
        if before.get(tag) != after.get(tag)
    ]
