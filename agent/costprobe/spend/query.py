"""What devices cost in a span, by hour, day, service, label, tenant, namespace or model.

The cost of a gap between rows is unknown: spend has the share of the time that stored rows of
`device` or `allocation` cover. Forecasts, reports and the dashboard use the same figures; a fleet
divides its cost among services, tenants and models by the same function.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from costprobe.adapters.databases.question import Question
from costprobe.core.columns import RowEnd, RowSpan, row_spans
from costprobe.core.money import divided, exact
from costprobe.core.periods import DAY_NS, HOUR_NS, TimeSpan
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import UNATTRIBUTED
from costprobe.core.units import HOUR_S
from costprobe.spend.settings import HISTORY_HOURS

if TYPE_CHECKING:  # a command about a fleet has no store
    from costprobe.adapters.store.read import SeriesValues, StoreReader

# A span with a lower coverage is not compared with another.
COMPARED_SHARE = 0.5
# Longest delay and longest interval of rows before an hour counts as final.
LATE_NS = 2 * HOUR_NS
# Length of a service's window in s if there are too few rows to derive it.
WINDOW_S = 300.0

# Rounding of the sums of models, as a share of them.
_ROUNDING: Final = 1e-9
PROBING: Final = "probing"
UNALLOCATED: Final = "unallocated"

Key = Literal["tenant", "namespace", "service", "model"]
# Lines of no key.
Rest = Literal["unattributed", "probing", "unallocated"]
# A group: the values of the tags that a question is grouped by.
Group = tuple[str, ...]
# Answers questions: the number of each group for each question.
Each = Callable[..., Sequence[Mapping[Group, float]]]


class Payer(NamedTuple):
    """The service and device whose cost a series contains.

    Attributes:
        service: Name of the service; empty for the whole cost of a device.
        device: Name of the device.
        currency: ISO 4217 code; empty if the rows have none.
    """

    service: str
    device: str
    currency: str


class SpendHour(NamedTuple):
    """The cost of an hour, or of another span.

    Attributes:
        cost: Currency of the covered part.
        covered_s: Seconds that rows cover.
    """

    cost: float
    covered_s: float


NOTHING = SpendHour(0.0, 0.0)


class SpendBook:
    """Costs of all payers by the hour, aligned to a time zone's full hours; read on from the store.

    Args:
        phase_ns: Offset of its hours from UTC's full hours, in ns.
        hours: Number of hours that are read at first.
    """

    def __init__(self, phase_ns: int = 0, hours: int = HISTORY_HOURS) -> None:
        self.phase_ns = phase_ns
        self.hours = hours
        # Before this UTC ns the hours are final.
        self.final_ns = 0
        # Number of the first hour; costs and covered seconds by the hour since then.
        self._first = 0
        self._series: dict[Payer, tuple[array[float], array[float]]] = {}

    @property
    def payers(self) -> tuple[Payer, ...]:
        """Return all payers with a cost."""
        return tuple(self._series)

    def hour_of(self, time_ns: int) -> int:
        """Return the number of the hour that contains a UTC ns."""
        return (time_ns - self.phase_ns) // HOUR_NS

    def start_ns(self, hour: int) -> int:
        """Return the UTC ns at which an hour starts."""
        return hour * HOUR_NS + self.phase_ns

    def at(self, payer: Payer, hour: int) -> SpendHour:
        """Return the cost of a payer's hour."""
        index = hour - self._first
        costs, covered_s = self._series.get(payer, (array("d"), array("d")))
        return SpendHour(costs[index], covered_s[index]) if 0 <= index < len(costs) else NOTHING

    def add_rows(
        self, payer: Payer, rows: Iterable[SeriesValues], within: TimeSpan, usual_s: float
    ) -> None:
        """Add the part of rows that lies within a span, whose hours must have been cut before.

        Rows and length are as of `spend_by_step`; rows before and after the span define the intervals at its
        edges.
        """
        if not self._series:
            self._first = self.hour_of(within.start_ns)
        for hour, cost, part_s in spend_by_step(rows, usual_s, within, HOUR_NS, self.phase_ns):
            costs, covered_s = columns = self._series.setdefault(payer, (array("d"), array("d")))
            index = hour - self._first
            if index >= len(costs):
                for column in columns:
                    column.extend([0.0] * (index + 1 - len(column)))
            costs[index] += cost
            covered_s[index] = min(HOUR_S, covered_s[index] + part_s)

    def cut(self, time_ns: int) -> None:
        """Discard the hour of a UTC ns and all later ones, to add them again."""
        kept = max(0, self.hour_of(time_ns) - self._first)
        for costs, covered_s in self._series.values():
            del costs[kept:], covered_s[kept:]

    def between(self, payer: Payer, span: TimeSpan) -> SpendHour:
        """Return a payer's cost in a span; of its first hour, the part that lies in it."""
        first = self.hour_of(span.start_ns)
        part = 1 - (span.start_ns - self.start_ns(first)) / HOUR_NS
        edges = (first + 1, self.hour_of(span.end_ns - 1) + 1)
        rest = slice(*(max(0, hour - self._first) for hour in edges))
        columns = self._series.get(payer, ((), ()))
        sums = zip(columns, self.at(payer, first), strict=True)
        return SpendHour(*(reduce(add, column[rest], amount * part) for column, amount in sums))

    def read(self, reader: StoreReader, now_ns: int, usual_s: float) -> None:
        """Add the rows since the last call; all of its hours at the first.

        Args:
            reader: The store.
            now_ns: UTC in ns.
            usual_s: Length of a row of `device` in s if there are too few to derive it.

        Raises:
            StoreError: The store cannot be read.
        """
        if not 0 < self.final_ns <= now_ns - LATE_NS:
            # No reading was completed, or the wall clock was set back: rows may come into final hours.
            self.final_ns, self._series = 0, {}
        since_ns = max(self.final_ns, self.start_ns(self.hour_of(now_ns) - self.hours + 1))
        self.cut(since_ns)
        span = TimeSpan(since_ns, now_ns)
        for measurement, length_s in (("device", usual_s), ("allocation", WINDOW_S)):
            rows: dict[Payer, list[SeriesValues]] = defaultdict(list)
            for series in costs_around(reader, measurement, span):
                rows[Payer(*(series.tags.get(tag, "") for tag in Payer._fields))].append(series)
            for payer, paid in rows.items():
                if payer.device and (payer.service or measurement == "device"):
                    self.add_rows(payer, paid, span, length_s)
        self.final_ns = max(self.final_ns, self.start_ns(self.hour_of(now_ns - LATE_NS)))


def costs_around(reader: StoreReader, measurement: str, span: TimeSpan) -> list[SeriesValues]:
    """Return costs by the hour of a span, divided at its ends, and LATE_NS around it.

    Raises:
        StoreError: The store cannot be read.
    """
    edges_ns = span.start_ns, span.end_ns
    around_ns = span.start_ns - LATE_NS, span.end_ns + LATE_NS
    return reader.hourly_sums(measurement, ("cost",), *around_ns, cuts_ns=edges_ns)["cost"]


class _Row(NamedTuple):
    """The amount of a row, and whether the end of the row before is the start of its span."""

    span: RowSpan
    amount: float
    has_start: bool


def _rows(rows: Iterable[SeriesValues], usual_s: float) -> Iterator[_Row]:
    """Yield the rows of series that are counted as one, in order; those that end together are summed."""
    found: dict[int, tuple[RowEnd, float]] = {}
    for series in rows:
        for time_ns, amount, end in zip(series.times_ns, series.values, series.ends, strict=True):
            other, before = found.get(time_ns, (end, 0.0))
            both = RowEnd(max(other.end_ns, end.end_ns), max(other.rows, end.rows), end.step_ns)
            found[time_ns] = both, before + amount
    ordered = sorted(found.values())
    before_ns = None
    spans = row_spans([end for end, _ in ordered], usual_s)
    for (_, amount), span in zip(ordered, spans, strict=True):
        yield _Row(span, amount, span.start_ns == before_ns)
        before_ns = span.end_ns


def cost_per_hour(rows: Iterable[SeriesValues], usual_s: float, within: TimeSpan) -> float | None:
    """Return the cost an hour of a device, over the part of a span that rows cover; None without any.

    The first row after a start is shorter than others, by an unknown time: it counts only if there
    is no other.

    Args:
        rows: Its rows.
        usual_s: Length of a row in s if there are too few rows to derive it.
        within: The span.
    """
    parts = [
        (row.has_start, row.amount * share, row.span.covered_s * share)
        for row in _rows(rows, usual_s)
        if (share := _share_within(row.span, within)) > 0
    ]
    known = [part for part in parts if part[0]] or parts
    _, cost, covered_s = map(math.fsum, zip(*known, strict=True)) if known else (0, 0.0, 0.0)
    return cost / covered_s * HOUR_S if covered_s > 0 else None


def _share_within(span: RowSpan, within: TimeSpan) -> float:
    inside_ns = min(span.end_ns, within.end_ns) - max(span.start_ns, within.start_ns)
    return inside_ns / (span.end_ns - span.start_ns)


def spend_by_step(
    rows: Iterable[SeriesValues], usual_s: float, within: TimeSpan, step_ns: int, phase_ns: int = 0
) -> Iterator[tuple[int, float, float]]:
    """Return amount and covered seconds of rows in each step of a span, evenly divided by time.

    Args:
        rows: The rows of what is counted as one, such as a device with its former plans; summed where several
            end together.
        usual_s: Length of a row in seconds if there are too few rows to derive it.
        within: The span; what lies outside is left out.
        step_ns: Length of a step, such as an hour or a day.
        phase_ns: Offset of the steps from UTC's.

    Returns:
        The number of the step, the amount and seconds; a step may occur several times.
    """
    for (start_ns, end_ns, covered_s), amount, _ in _rows(rows, usual_s):
        first, last = max(start_ns, within.start_ns), min(end_ns, within.end_ns)
        while first < last:
            step = (first - phase_ns) // step_ns
            until_ns = min(last, (step + 1) * step_ns + phase_ns)
            share = (until_ns - first) / (end_ns - start_ns)
            yield step, amount * share, covered_s * share
            first = until_ns


@dataclass(frozen=True, slots=True)
class SpanSpend:
    """What the devices cost in a span, in one currency.

    Attributes:
        by_device: Cost and covered seconds of each device that has a row in it.
        by_day: Cost by the number of the day since 1970, UTC.
        total: Cost of all of them.
        coverage: Share of the span that rows cover, over these devices.
    """

    by_device: Mapping[str, SpendHour]
    by_day: Mapping[int, float]
    total: float
    coverage: float


def span_spend(
    costs: Iterable[SeriesValues], span: TimeSpan, usual_s: float
) -> dict[str, SpanSpend]:
    """Return what the devices cost in a span, by currency: as budgets and forecasts count it.

    Args:
        costs: `cost` of the rows of `device`, over the span and LATE_NS around it.
        span: The span.
        usual_s: Length of a row in s if there are too few to derive it.
    """
    by_payer: dict[tuple[str, str], list[SeriesValues]] = defaultdict(list)
    for series in costs:
        by_payer[series.tags.get("currency", ""), series.tags.get("device", "")].append(series)
    by_device: dict[str, dict[str, SpendHour]] = defaultdict(dict)
    by_day: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (currency, device), rows in by_payer.items():
        cost = covered_s = 0.0
        for day, amount, part_s in spend_by_step(rows, usual_s, span, DAY_NS):
            by_day[currency][day] += amount
            cost, covered_s = cost + amount, covered_s + part_s
        if covered_s > 0:
            by_device[currency][device] = SpendHour(cost, covered_s)
    return {
        currency: SpanSpend(
            hours,
            by_day[currency],
            math.fsum(hour.cost for hour in hours.values()),
            coverage_of((hour.covered_s for hour in hours.values()), seconds_of(span)),
        )
        for currency, hours in by_device.items()
    }


def seconds_of(span: TimeSpan) -> float:
    """Return the length of a span in s."""
    return (span.end_ns - span.start_ns) / NS_PER_S


def coverage_of(covered_s: Iterable[float], elapsed_s: float) -> float:
    """Return the share of the time of all devices that rows cover; 0 without devices.

    Args:
        covered_s: Covered seconds of each device that has a row in that time.
        elapsed_s: Length of the time.
    """
    known_s = [min(elapsed_s, covered) for covered in covered_s]
    return share_of(math.fsum(known_s), elapsed_s * len(known_s)) or 0.0


def share_of(known: float, whole: float) -> float | None:
    """Return the share of a time, or of a number, that is known; None of nothing."""
    return min(1.0, known / whole) if whole > 0 else None


def hourly_change(
    before: Mapping[str, SpendHour], after: Mapping[str, SpendHour], elapsed_s: float
) -> tuple[float, float] | None:
    """Return the cost per covered hour before and after, of the devices that both know.

    Unequal coverage must not read as a change: a device counts if rows cover at least half of both
    spans, with its cost per covered hour.

    Args:
        before: Cost and coverage of each device in the earlier span.
        after: The same in the later one.
        elapsed_s: Length of each span in seconds.

    Returns:
        Currency per hour in both; None where no device is known in both.
    """
    known = [
        name
        for name in after
        if min(before.get(name, NOTHING).covered_s, after[name].covered_s)
        >= COMPARED_SHARE * elapsed_s
    ]
    if not known:
        return None
    first, second = (
        math.fsum(hours[name].cost / hours[name].covered_s for name in known) * HOUR_S
        for hours in (before, after)
    )
    return first, second


def ended_values(
    reader: StoreReader,
    measurement: str,
    fields: Sequence[str],
    span: TimeSpan,
    tags: Mapping[str, str] | None = None,
) -> dict[str, list[SeriesValues]]:
    """Return the values of each series whose rows end in a span, its end included, by field.

    Raises:
        StoreError: The store cannot be read.
    """
    start_ns, end_ns = span.start_ns, span.end_ns
    cuts_ns = start_ns + 1, end_ns
    sums = reader.hourly_sums(measurement, fields, start_ns, end_ns + 1, tags, cuts_ns=cuts_ns)
    found: dict[str, list[SeriesValues]] = {}
    for name, listed in sums.items():
        found[name] = []
        for series in listed:
            own = replace(series, times_ns=[], values=[], ends=[])
            for time_ns, value, end in zip(
                series.times_ns, series.values, series.ends, strict=True
            ):
                if start_ns < end.end_ns <= end_ns:
                    own.add(time_ns, value, end)
            found[name] += [own] if own.values else []
    return found


def store_sums(
    reader: StoreReader, span: TimeSpan, *questions: Question
) -> list[Mapping[Group, float]]:
    """Return the sum of each group for each question, of the rows that end in a span of the store.

    Raises:
        StoreError: The store cannot be read.
    """
    fields: dict[Group, dict[str, None]] = defaultdict(dict)
    for question in questions:
        fields[_rows_of(question)][question.field] = None
    found = {
        rows: ended_values(
            reader, rows[0], tuple(names), span, dict(zip(rows[1::2], rows[2::2], strict=True))
        )
        for rows, names in fields.items()
    }
    return [_sums(question, found[_rows_of(question)][question.field]) for question in questions]


def _rows_of(question: Question) -> Group:
    """Return measurement, and tags with their values, of the rows that are read for a question."""
    tags = (item for item in question.where.items() if item[1])
    return question.measurement, *chain.from_iterable(tags)


def _sums(question: Question, rows: Iterable[SeriesValues]) -> Mapping[Group, float]:
    absent = [tag for tag, value in question.where.items() if not value]
    values: dict[Group, list[float]] = defaultdict(list)
    for series in rows:
        tags = series.tags
        if all(map(tags.get, question.present)) and not any(map(tags.get, absent)):
            values[tuple([tags.get(tag, "") for tag in question.by])] += series.values
    return {group: math.fsum(found) for group, found in values.items()}


class PartCost(NamedTuple):
    """What one name cost in one currency.

    Attributes:
        cost: Currency.
        idle: The part of it in which the devices were idle; None if that is unknown.
    """

    cost: float
    idle: float | None


def cost_by(each: Each, key: str) -> dict[Group, PartCost]:
    """Return what services, models or tenants cost, by name and currency.

    Args:
        each: Answers the questions, about a store or a fleet.
        key: `model`, `tenant`, `service`, or a label of services. Models have what their services were allocated;
            a service of one model has its name, as has cost of no known model.
    """
    if key == "tenant":
        (paid,) = each(Question("tenant", "cost", "sum", by=("tenant", "currency")))
        return {group: PartCost(cost, None) for group, cost in paid.items()}
    tag = "service" if key == "model" else key
    by = (tag, "part", "currency")
    (paid,) = each(Question("allocation", "cost", "sum", by=by, present=(tag,)))
    lines: Iterable[tuple[Group, float]] = paid.items()
    if key == "model":
        of_models = divided_by_model(each, paid).items()
        lines = [((group[1] or group[0], *group[2:]), cost) for group, cost in of_models]
    found: dict[Group, PartCost] = {}
    for (name, part, currency), cost in lines:
        if part not in (PROBING, UNALLOCATED):
            before = found.get((name, currency), PartCost(0.0, 0.0))
            idle = {"idle": cost, "busy": 0.0}.get(part)
            is_known = idle is not None and before.idle is not None
            idle = (idle or 0.0) + (before.idle or 0.0) if is_known else None
            found[name, currency] = PartCost(before.cost + cost, idle)
    return found


def divided_by_model(each: Each, allocated: Mapping[Group, float]) -> dict[Group, float]:
    """Divide what services were allocated among their models, in proportion to their rows of `cost`.

    These rows are of complete windows only; the cost of the others is divided in the same proportion.

    Args:
        each: Answers the questions, about a store or a fleet.
        allocated: Cost by service, part and currency.

    Returns:
        Cost by service, model, part and currency, which adds up to that of the service; the model is
        empty for the windows of a service with one model, and for a service without a complete window.
    """
    cost, cost_of_services, idle, idle_of_services = each(
        *served_sums("cost_total"), *served_sums("cost_idle")
    )
    costs, idles = _by_model(cost, cost_of_services), _by_model(idle, idle_of_services)
    found: dict[Group, float] = {}
    for (service, part, currency), amount in allocated.items():
        whole, waiting = costs[service, currency], idles[service, currency]
        working = {model: own - waiting.get(model, 0.0) for model, own in whole.items()}
        least = _ROUNDING * math.fsum(map(abs, whole.values()))
        weights = _weights(waiting if part == "idle" else working, least) or _weights(whole, least)
        weights = weights or {"": 1.0}
        parts = divided(exact(amount), list(weights.values()))
        for model, own in zip(weights, parts, strict=True):
            found[service, model, part, currency] = float(own)
    return found


def _by_model(
    by_model: Mapping[Group, float], whole: Mapping[Group, float]
) -> dict[Group, dict[str, float]]:
    """Return sums of models, by service and currency, from the answers to `served_sums`."""
    found: dict[Group, dict[str, float]] = defaultdict(dict)
    for (service, model, currency), amount in by_model.items():
        found[service, currency][model] = amount
    for group, amount in whole.items():
        # The row of the whole service contains that of each of its models.
        rest = amount - math.fsum(found[group].values())
        found[group][""] = rest if rest * amount > 0 else 0.0
    return found


def _weights(amounts: Mapping[str, float], least: float) -> dict[str, float]:
    """Return amounts as weights, without rounding errors; with electricity below zero they may be, too."""
    return {name: abs(amount) for name, amount in amounts.items() if abs(amount) > least}


def served_sums(field: str, dimension: Group = ()) -> tuple[Question, Question]:
    """Return the questions for a sum over models of services, and over the rows of whole services.

    Args:
        field: Of production's rows of `cost`.
        dimension: Tags of the groups beside service, model and currency.
    """
    by, where, model = ("service", "currency", *dimension), {"basis": "serving"}, "served_model"
    by_model = ("service", model, *by[1:])
    return (
        Question("cost", field, "sum", by=by_model, where=where, present=(model,)),
        Question("cost", field, "sum", by=by, where={**where, model: ""}),
    )


@dataclass(slots=True)
class KeyCost:
    """What one tenant, namespace, service or model cost.

    Attributes:
        name: Its name; that of the rest for a line of no key.
        cost: Currency.
        idle: The part of it in which the devices were idle; None if that is unknown.
        rest: Why the line has no key; None for a key.
        cached_share: Share of the input tokens that a cache answered; None if they are not counted.
        cache_saved: Currency that the cache saved; None if it saved nothing, or that is unknown.
    """

    name: str
    cost: float = 0.0
    idle: float | None = None
    rest: Rest | None = None
    cached_share: float | None = None
    cache_saved: float | None = None


@dataclass(frozen=True, slots=True)
class KeyAllocation:
    """The cost of the devices in a period, in one currency.

    Attributes:
        currency: ISO 4217 code.
        total: What the devices cost; the parts add up to it.
        coverage: Share of the period that rows cover, over the devices.
        parts: The keys, the largest first, then what has none.
    """

    currency: str
    total: float
    coverage: float
    parts: tuple[KeyCost, ...]


def allocation_by(
    key: Key, reader: StoreReader, span: TimeSpan, usual_s: float
) -> list[KeyAllocation]:
    """Return what the devices cost in a span by a key, one entry per currency, the largest first.

    The total is that of budgets and reports. Windows at the edges of the span may reach beyond it: if the
    parts exceed the total by them, they are reduced in proportion.

    Args:
        key: What the cost is divided by.
        reader: The store.
        span: The span.
        usual_s: Length of a row of `device` in s if there are too few to derive it.

    Raises:
        StoreError: The store cannot be read.
    """
    spent = span_spend(costs_around(reader, "device", span), span, usual_s)
    each = partial(store_sums, reader, span)
    cached = _cached(each, key)
    parts: dict[str, list[KeyCost]] = defaultdict(list)
    for (name, currency), (cost, idle) in cost_by(each, key).items():
        rest: Rest | None = "unattributed" if (key, name) == ("tenant", UNATTRIBUTED) else None
        own = cached.get((name, currency), (None, None))
        parts[currency].append(KeyCost(name, cost, idle, rest, *own))
    of_probes = Question("allocation", "cost", "sum", by=("currency",), where={"part": PROBING})
    for (currency,), cost in each(of_probes)[0].items():
        parts[currency].append(KeyCost(PROBING, cost, rest=PROBING))
    found = [
        _allocation(currency, spend, parts.get(currency, [])) for currency, spend in spent.items()
    ]
    return sorted(found, key=lambda allocation: -allocation.total)


def _allocation(currency: str, spend: SpanSpend, parts: list[KeyCost]) -> KeyAllocation:
    total, whole = spend.total, math.fsum(part.cost for part in parts)
    rest = total - whole
    # With electricity below zero the amounts may be below zero, too.
    if abs(rest) < _ROUNDING or (total * whole >= 0 and abs(whole) > abs(total)):
        for part in parts:
            part.cost *= total / (whole or 1.0)
            part.idle = part.idle and part.idle * total / (whole or 1.0)
        rest = 0.0
    parts.sort(key=lambda part: (part.rest is not None, -part.cost, part.name))
    unallocated = KeyCost(UNALLOCATED, rest, rest=UNALLOCATED)
    return KeyAllocation(currency, total, spend.coverage, (*parts, unallocated))


def _cached(each: Each, key: Key) -> dict[Group, tuple[float, float | None]]:
    """Return what a cache answered, as a share of the input tokens, and saved, by name and currency."""
    columns = ("tokens_in", "cached_tokens", "cost_cache_saved")
    # The row of the whole service contains that of each of its models.
    table, where = "cost", {"basis": "serving", "served_model": ""}
    by: Group = (key,)
    if key == "tenant":
        table, where = "tenant", {}
    elif key == "model":
        by, where = ("served_model", "service"), {"basis": "serving"}
    asked = (Question(table, name, "sum", by=(*by, "currency"), where=where) for name in columns)
    sums: dict[Group, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for column, found in zip(columns, each(*asked), strict=True):
        for (*names, currency), amount in found.items():
            sums[next(filter(None, names), ""), currency][column] += amount
    return {
        group: (own["cached_tokens"] / own["tokens_in"], own.get("cost_cache_saved"))
        for group, own in sums.items()
        if own.get("tokens_in") and "cached_tokens" in own
    }


def label_spend(
    label: str,
    costs: Sequence[SeriesValues],
    allocations: Sequence[SeriesValues],
    span: TimeSpan,
    usual_s: float,
) -> dict[str, dict[str, float]]:
    """Return the cost of each value of a label by currency: as allocated, else that of the devices.

    Cost without the label is not included.

    Args:
        label: The tag.
        costs: `cost` of the rows of `device`, over the span and LATE_NS around it.
        allocations: `cost` of the rows of `allocation`, over the span.
        span: The span.
        usual_s: Length of a row of `device` in s if there are too few to derive it.
    """
    by = Question("allocation", "cost", "sum", by=("currency", label))
    amounts: dict[str, dict[str, float]] = defaultdict(dict)
    for (currency, value), cost in _sums(by, allocations).items():
        amounts[currency][value] = cost
    of_services = set(amounts)
    for value in {series.tags.get(label, "") for series in costs}:
        labelled = (series for series in costs if series.tags.get(label, "") == value)
        for currency, spend in span_spend(labelled, span, usual_s).items():
            if currency not in of_services:
                amounts[currency][value] = spend.total
    return {
        currency: {value: cost for value, cost in own.items() if value}
        for currency, own in amounts.items()
    }
