"""What devices cost in a span, by hour, day, service, label, tenant, namespace or model.

The cost of a gap between rows is unknown: spend has the share of the time that stored rows of
`device` or `allocation` cover. Forecasts, reports and the dashboard use the same figures.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.columns import RowEnd, row_spans
from costprobe.core.periods import DAY_NS, HOUR_NS, PERIOD_HOURS, TimeSpan
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import UNATTRIBUTED
from costprobe.core.units import HOUR_S
from costprobe.spend.settings import HISTORY_HOURS, BudgetConfig

# A span with a lower coverage is not compared with another.
COMPARED_SHARE = 0.5
# Significant digits of stored amounts.
DIGITS = 9
# Longest delay and longest interval of rows before an hour counts as final.
LATE_NS = 2 * HOUR_NS
# Length of a service's window if there are too few rows to derive it.
WINDOW_S = 300.0

# Rounding of the sums of models.
_LEAST: Final = 1e-9
PROBING: Final = "probing"
UNALLOCATED: Final = "unallocated"

Key = Literal["tenant", "namespace", "service", "model"]
# Lines of no key.
Rest = Literal["unattributed", "probing", "unallocated"]


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


class CostRow(NamedTuple):
    """The cost of a row, or of the rows in a rolled-up one.

    Attributes:
        end_ns: UTC ns of its end, or of the newest row in it.
        cost: Currency.
        rows: Number of rows in it: 1 for a raw row.
        step_ns: Mean distance of the rows in it, where it is known; else 0.
    """

    end_ns: int
    cost: float
    rows: int = 1
    step_ns: int = 0


class SpendHour(NamedTuple):
    """An hour's cost.

    Attributes:
        cost: Currency of the covered part.
        covered_s: Seconds that rows cover.
    """

    cost: float
    covered_s: float


NOTHING = SpendHour(0.0, 0.0)


@dataclass(slots=True)
class HourSeries:
    """The last `hours` costs of one payer by the hour; `first` is the number of the first hour."""

    hours: int
    first: int = 0
    costs: array[float] = field(default_factory=lambda: array("d"))
    covered_s: array[float] = field(default_factory=lambda: array("d"))

    def add(self, hour: int, cost: float, covered_s: float) -> None:
        """Add to an hour; hours that are too old are ignored."""
        if not self.costs:
            self.first = hour
        if hour < self.first:
            return
        lacking = hour - self.first + 1 - len(self.costs)
        if lacking > self.hours:
            self.first, lacking = hour, 1
            self.costs, self.covered_s = array("d"), array("d")
        if lacking > 0:
            self.costs.extend([0.0] * lacking)
            self.covered_s.extend([0.0] * lacking)
        self.costs[hour - self.first] += cost
        self.covered_s[hour - self.first] += covered_s
        surplus = len(self.costs) - self.hours
        if surplus > 0:
            del self.costs[:surplus], self.covered_s[:surplus]
            self.first += surplus

    def at(self, hour: int) -> SpendHour:
        """Return an hour's cost."""
        index = hour - self.first
        if not 0 <= index < len(self.costs):
            return NOTHING
        return SpendHour(self.costs[index], min(self.covered_s[index], HOUR_S))

    def cut(self, hour: int) -> None:
        """Discard an hour and all later ones."""
        first_kept = max(0, hour - self.first)
        del self.costs[first_kept:], self.covered_s[first_kept:]


@dataclass(frozen=True, slots=True)
class Usual:
    """Length of a row's interval if there are too few rows to derive it.

    Attributes:
        device_s: Seconds of a row of `device`.
        service_s: Seconds of a row of `allocation`.
    """

    device_s: float
    service_s: float = WINDOW_S


@dataclass(frozen=True, slots=True)
class SpanSpend:
    """What the devices cost in a span, in one currency.

    Attributes:
        by_device: Cost and covered seconds of each device that has a row in it.
        by_day: Cost by the number of the day since 1970, UTC.
        coverage: Share of the span that rows cover, over these devices.
    """

    by_device: Mapping[str, SpendHour]
    by_day: Mapping[int, float]
    coverage: float


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


_Parts = dict[str, list[KeyCost]]


class SpendBook:
    """Costs of all payers by the hour, aligned to a time zone's full hours.

    Args:
        phase_ns: Offset of its hours from UTC's full hours, in ns.
        hours: Number of hours that are kept.
    """

    def __init__(self, phase_ns: int = 0, hours: int = HISTORY_HOURS) -> None:
        self.phase_ns = phase_ns
        self.hours = hours
        # Before this UTC ns the hours are final.
        self.final_ns = 0
        self._series: dict[Payer, HourSeries] = {}

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
        series = self._series.get(payer)
        return NOTHING if series is None else series.at(hour)

    def add_rows(
        self, payer: Payer, rows: Sequence[CostRow], within: TimeSpan, usual_s: float
    ) -> None:
        """Add the part of rows that lies within a span.

        Args:
            payer: The payer.
            rows: The payer's rows, in the order of their ends; also some before and after the span,
                which define the intervals at its edges.
            within: The span; its hours must have been cut before.
            usual_s: Length of an interval in seconds if there are too few rows to derive it.
        """
        series = self._series.setdefault(payer, HourSeries(self.hours))
        for hour, cost, covered_s in spend_by_step(rows, usual_s, within, HOUR_NS, self.phase_ns):
            series.add(hour, cost, covered_s)

    def clear(self) -> None:
        """Discard all hours."""
        self.final_ns = 0
        self._series = {}

    def cut(self, time_ns: int) -> None:
        """Discard the hour of a UTC ns and all later ones, to add them again."""
        hour = self.hour_of(time_ns)
        for series in self._series.values():
            series.cut(hour)

    def between(self, payer: Payer, span: TimeSpan) -> SpendHour:
        """Return a payer's cost in a span; of an hour at its edge, the part that lies in it."""
        cost = covered_s = 0.0
        for hour in range(self.hour_of(span.start_ns), self.hour_of(span.end_ns - 1) + 1):
            spend = self.at(payer, hour)
            begins_ns = self.start_ns(hour)
            outside_ns = max(0, span.start_ns - begins_ns)
            part = 1 - outside_ns / HOUR_NS
            cost += spend.cost * part
            covered_s += spend.covered_s * part
        return SpendHour(cost, covered_s)

    def to_document(self) -> dict[str, Any]:
        """Return the final hours as JSON."""
        final = self.hour_of(self.final_ns)
        return {
            "phase_ns": self.phase_ns,
            "hours": self.hours,
            "final_ns": self.final_ns,
            "series": [
                [
                    *payer,
                    series.first,
                    _rounded(series.costs[: max(0, final - series.first)]),
                    _rounded(series.covered_s[: max(0, final - series.first)]),
                ]
                for payer, series in self._series.items()
            ],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SpendBook:
        """Return the book of a document.

        Raises:
            KeyError, TypeError, ValueError: The document is damaged.
        """
        book = cls(int(document["phase_ns"]), int(document["hours"]))
        book.final_ns = int(document["final_ns"])
        for service, device, currency, first, costs, covered_s in document["series"]:
            if len(costs) != len(covered_s):
                raise ValueError("costs and covered times differ in number")
            series = HourSeries(book.hours, int(first), array("d", costs), array("d", covered_s))
            book._series[Payer(service, device, currency)] = series
        return book


def spend_by_step(
    rows: Sequence[CostRow], usual_s: float, within: TimeSpan, step_ns: int, phase_ns: int = 0
) -> Iterator[tuple[int, float, float]]:
    """Return the cost and the covered seconds of rows in each step of a span, evenly divided by time.

    Args:
        rows: The rows of one payer, in the order of their ends.
        usual_s: Length of a row in seconds if there are too few rows to derive it.
        within: The span; what lies outside is left out.
        step_ns: Length of a step, such as an hour or a day.
        phase_ns: Offset of the steps from UTC's.

    Returns:
        The number of the step, currency and seconds; a step may occur several times.
    """
    spans = row_spans([RowEnd(row.end_ns, row.rows, row.step_ns) for row in rows], usual_s)
    for row, (start_ns, end_ns, covered_s) in zip(rows, spans, strict=True):
        first, last = max(start_ns, within.start_ns), min(end_ns, within.end_ns)
        while first < last:
            step = (first - phase_ns) // step_ns
            until_ns = min(last, (step + 1) * step_ns + phase_ns)
            share = (until_ns - first) / (end_ns - start_ns)
            yield step, row.cost * share, covered_s * share
            first = until_ns


def hourly_change(
    before: Mapping[str, SpendHour],
    after: Mapping[str, SpendHour],
    before_s: float,
    after_s: float,
) -> tuple[float, float] | None:
    """Return the cost per covered hour before and after, of the devices that both know.

    Unequal coverage must not read as a change: a device counts if rows cover at least half of both
    spans, with its cost per covered hour.

    Args:
        before: Cost and coverage of each device in the earlier span.
        after: The same in the later one.
        before_s: Length of the earlier span in seconds.
        after_s: Length of the later one.

    Returns:
        Currency per hour in both; None where no device is known in both.
    """
    known = [
        name
        for name in after
        if name in before
        and before[name].covered_s >= COMPARED_SHARE * before_s
        and after[name].covered_s >= COMPARED_SHARE * after_s
    ]
    if not known:
        return None
    first, second = (
        math.fsum(hours[name].cost / hours[name].covered_s for name in known) * HOUR_S
        for hours in (before, after)
    )
    return first, second


def coverage_of(covered_s: Mapping[str, float], elapsed_s: float) -> float:
    """Return the share of the time of all devices that rows cover.

    Args:
        covered_s: Covered seconds of each device that has a row in that time.
        elapsed_s: Length of the time.
    """
    known_s = math.fsum(min(elapsed_s, covered) for covered in covered_s.values())
    whole_s = elapsed_s * len(covered_s)
    return min(1.0, known_s / whole_s) if whole_s > 0 else 0.0


def _rounded(values: array[float]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def book_name(phase_ns: int) -> str:
    """Return the name of a book's stored document."""
    return f"budget hours {phase_ns // NS_PER_S}"


def hours_of(budgets: Iterable[BudgetConfig]) -> int:
    """Return the number of hours that the books of budgets keep: the longest period, or the history."""
    return max([HISTORY_HOURS, *(PERIOD_HOURS[budget.period] for budget in budgets)])


def read_spend(
    book: SpendBook,
    reader: StoreReader,
    now_ns: int,
    usual: Usual,
    pause: Callable[[], bool] | None = None,
) -> bool:
    """Add the rows since the last call; all hours of the book at the first.

    Args:
        book: The book to update.
        reader: The store.
        now_ns: UTC in ns.
        usual: Length of intervals if there are too few rows.
        pause: Called after each day; True ends the reading. None to read all at once.

    Returns:
        False if it was ended early.
    """
    if book.final_ns > now_ns - LATE_NS:
        book.clear()  # the wall clock was set back: rows may come into final hours
    oldest_ns = book.start_ns(book.hour_of(now_ns) - book.hours + 1)
    since_ns = max(book.final_ns, oldest_ns)
    book.cut(since_ns)
    payers = _payers(reader)
    while since_ns < now_ns:
        until_ns = now_ns if pause is None else min(since_ns + DAY_NS, now_ns)
        for payer, tags in payers.items():
            _book_one(book, reader, payer, tags, TimeSpan(since_ns, until_ns), usual)
        final_ns = book.start_ns(book.hour_of(min(until_ns, now_ns - LATE_NS)))
        book.final_ns = max(book.final_ns, final_ns)
        since_ns = until_ns
        if since_ns < now_ns and pause is not None and pause():
            return False
    return True


def _payers(reader: StoreReader) -> dict[Payer, Mapping[str, str]]:
    """Return all payers in the store, with the tags of their series."""
    payers: dict[Payer, Mapping[str, str]] = {}
    for series in reader.series("device"):
        device = series.tags.get("device")
        if device:
            payer = Payer("", device, series.tags.get("currency", ""))
            payers[payer] = {"device": device}
    for series in reader.series("allocation"):
        device, service = series.tags.get("device"), series.tags.get("service")
        if device and service:
            payer = Payer(service, device, series.tags.get("currency", ""))
            payers[payer] = {"device": device, "service": service}
    return payers


def _book_one(
    book: SpendBook,
    reader: StoreReader,
    payer: Payer,
    tags: Mapping[str, str],
    span: TimeSpan,
    usual: Usual,
) -> None:
    measurement, usual_s = (
        ("allocation", usual.service_s) if payer.service else ("device", usual.device_s)
    )
    edges_ns = (span.start_ns, span.end_ns)
    around_ns = edges_ns[0] - LATE_NS, edges_ns[1] + LATE_NS
    found = reader.hourly_sums(measurement, ("cost",), *around_ns, tags, cuts_ns=edges_ns)
    rows = cost_rows(
        series for series in found["cost"] if series.tags.get("currency", "") == payer.currency
    )
    if rows:
        book.add_rows(payer, rows, span, usual_s)


def cost_rows(all_series: Iterable[SeriesValues]) -> list[CostRow]:
    """Return the rows of one payer in the order of their ends, summed over its series."""
    rows: dict[int, CostRow] = {}
    for series in all_series:
        for time_ns, cost, end in zip(series.times_ns, series.values, series.ends, strict=True):
            before = rows.get(time_ns)
            if before is None:
                rows[time_ns] = CostRow(end.end_ns, cost, end.rows, end.step_ns)
                continue
            rows[time_ns] = CostRow(
                max(before.end_ns, end.end_ns),
                before.cost + cost,
                max(before.rows, end.rows),
                end.step_ns,
            )
    return sorted(rows.values())


def span_spend(costs: Iterable[SeriesValues], span: TimeSpan, usual: Usual) -> dict[str, SpanSpend]:
    """Return what the devices cost in a span, by currency: as budgets and forecasts count it.

    Args:
        costs: `cost` of the rows of `device`, over the span and LATE_NS around it.
        span: The span.
        usual: Length of intervals if there are too few rows.
    """
    by_payer: dict[tuple[str, str], list[SeriesValues]] = {}
    for series in costs:
        payer = series.tags.get("currency", ""), series.tags.get("device", "")
        by_payer.setdefault(payer, []).append(series)
    by_device: dict[str, dict[str, SpendHour]] = {}
    by_day: dict[str, dict[int, float]] = {}
    for (currency, device), payer_series in by_payer.items():
        cost = covered_s = 0.0
        days = by_day.setdefault(currency, {})
        rows = cost_rows(payer_series)
        for day, amount, part_s in spend_by_step(rows, usual.device_s, span, DAY_NS):
            days[day] = days.get(day, 0.0) + amount
            cost, covered_s = cost + amount, covered_s + part_s
        if covered_s > 0:
            by_device.setdefault(currency, {})[device] = SpendHour(cost, covered_s)
    length_s = (span.end_ns - span.start_ns) / NS_PER_S
    return {
        currency: SpanSpend(
            hours,
            by_day[currency],
            coverage_of({n: hour.covered_s for n, hour in hours.items()}, length_s),
        )
        for currency, hours in by_device.items()
    }


def label_spend(
    label: str,
    costs: Sequence[SeriesValues],
    allocations: Sequence[SeriesValues],
    span: TimeSpan,
    usual: Usual,
) -> dict[str, dict[str, float]]:
    """Return the cost of each value of a label by currency: as allocated, else that of the devices.

    Cost without the label is not included.

    Args:
        label: The tag.
        costs: `cost` of the rows of `device`, over the span and LATE_NS around it.
        allocations: `cost` of the rows of `allocation`, over the span.
        span: The span.
        usual: Length of intervals if there are too few rows.
    """
    amounts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for series in allocations:
        own = amounts[series.tags.get("currency", "")]
        own[series.tags.get(label, "")] += math.fsum(series.values)
    of_services = set(amounts)
    for value in {series.tags.get(label, "") for series in costs}:
        labelled = (series for series in costs if series.tags.get(label, "") == value)
        for currency, spend in span_spend(labelled, span, usual).items():
            if currency not in of_services:
                amounts[currency][value] += math.fsum(d.cost for d in spend.by_device.values())
    return {
        currency: {value: cost for value, cost in own.items() if value}
        for currency, own in amounts.items()
    }


def ended_values(
    reader: StoreReader,
    measurement: str,
    field: str,
    span: TimeSpan,
    tags: Mapping[str, str] | None = None,
) -> Iterator[SeriesValues]:
    """Yield the values of a field of each series whose rows end in a span, its end included."""
    start_ns, end_ns = span.start_ns, span.end_ns
    cuts_ns = start_ns + 1, end_ns
    sums = reader.hourly_sums(measurement, (field,), start_ns, end_ns + 1, tags, cuts_ns=cuts_ns)
    for series in sums[field]:
        found = SeriesValues(series.tags, [], [])
        for time_ns, value, end in zip(series.times_ns, series.values, series.ends, strict=True):
            if start_ns < end.end_ns <= end_ns:
                found.add(time_ns, value, end)
        if found.values:
            yield found


def summed(
    reader: StoreReader,
    measurement: str,
    field: str,
    span: TimeSpan,
    tags: Mapping[str, str] | None = None,
) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield the tags and the sum of a field of each series in a span, its end included."""
    for series in ended_values(reader, measurement, field, span, tags):
        yield series.tags, math.fsum(series.values)


def allocation_by(
    key: Key, reader: StoreReader, span: TimeSpan, usual: Usual
) -> list[KeyAllocation]:
    """Return what the devices cost in a span by a key, one entry per currency, the largest first.

    The total is that of budgets and reports. Windows at the edges of the span may reach beyond it: if the
    parts exceed the total by them, they are reduced in proportion.

    Args:
        key: What the cost is divided by.
        reader: The store.
        span: The span.
        usual: Length of intervals if there are too few rows.

    Raises:
        StoreError: The store cannot be read.
    """
    edges_ns = span.start_ns, span.end_ns
    totals = reader.hourly_sums(
        "device", ("cost",), edges_ns[0] - LATE_NS, edges_ns[1] + LATE_NS, cuts_ns=edges_ns
    )
    spent = span_spend(totals["cost"], span, usual)
    by_key = _SOURCES[key](reader, span)
    for tags, cost in summed(reader, "allocation", "cost", span, {"part": PROBING}):
        by_key[tags.get("currency", "")].append(KeyCost(PROBING, cost, rest=PROBING))
    merged = {currency: _merged(parts) for currency, parts in by_key.items()}
    _add_cache(key, reader, span, merged)
    found = [
        _allocation(currency, spend, merged.get(currency, [])) for currency, spend in spent.items()
    ]
    return sorted(found, key=lambda allocation: -allocation.total)


def _allocation(currency: str, spend: SpanSpend, parts: list[KeyCost]) -> KeyAllocation:
    total = math.fsum(hour.cost for hour in spend.by_device.values())
    whole = math.fsum(part.cost for part in parts)
    rest = total - whole
    # With electricity below zero the amounts may be below zero, too.
    if abs(rest) < _LEAST or (total * whole >= 0 and abs(whole) > abs(total)):
        for part in parts:
            part.cost *= total / (whole or 1.0)
            part.idle = part.idle and part.idle * total / (whole or 1.0)
        rest = 0.0
    parts.sort(key=lambda part: (part.rest is not None, -part.cost, part.name))
    return KeyAllocation(
        currency, total, spend.coverage, (*parts, KeyCost(UNALLOCATED, rest, rest=UNALLOCATED))
    )


def _merged(parts: list[KeyCost]) -> list[KeyCost]:
    """Return one part for each name; its idle part is known if that of all is."""
    merged: dict[tuple[str, Rest | None], KeyCost] = {}
    for part in parts:
        before = merged.setdefault((part.name, part.rest), KeyCost(part.name, 0.0, 0.0, part.rest))
        before.cost += part.cost
        is_known = before.idle is not None and part.idle is not None
        before.idle = (before.idle or 0.0) + (part.idle or 0.0) if is_known else None
    return list(merged.values())


def _add_cache(key: Key, reader: StoreReader, span: TimeSpan, parts: _Parts) -> None:
    """Add to the parts what a cache answered and saved."""
    rows = "tenant" if key == "tenant" else "cost"
    within = span.start_ns + 1, span.end_ns + 1
    sums: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    columns = ("tokens_in", "cached_tokens", "cost_cache_saved")
    for column, found in reader.hourly_sums(rows, columns, *within).items():
        for series in found:
            tags, model = series.tags, series.tags.get("served_model", "")
            # The row of the whole service contains that of each of its models.
            if key == "model" or not model:
                name = model or tags.get("service" if key == "model" else key, "")
                sums[tags.get("currency", ""), name][column] += math.fsum(series.values)
    for currency, named in parts.items():
        for part in named:
            own = sums.get((currency, part.name), {})
            if own.get("tokens_in") and "cached_tokens" in own:
                part.cached_share = own["cached_tokens"] / own["tokens_in"]
                part.cache_saved = own.get("cost_cache_saved")


def _by_tag(tag: str) -> Callable[[StoreReader, TimeSpan], _Parts]:
    """Return how rows of `allocation` are divided by one of their tags."""

    def divided(reader: StoreReader, span: TimeSpan) -> _Parts:
        found: _Parts = defaultdict(list)
        for tags, cost in summed(reader, "allocation", "cost", span):
            part, name = tags.get("part", ""), tags.get(tag)
            if name and part != PROBING:
                idle = {"idle": cost, "busy": 0.0}.get(part)
                found[tags.get("currency", "")].append(KeyCost(name, cost, idle))
        return found

    return divided


def _by_tenant(reader: StoreReader, span: TimeSpan) -> _Parts:
    found: _Parts = defaultdict(list)
    for tags, cost in summed(reader, "tenant", "cost", span):
        name = tags.get("tenant", UNATTRIBUTED)
        rest: Rest | None = "unattributed" if name == UNATTRIBUTED else None
        found[tags.get("currency", "")].append(KeyCost(name, cost, rest=rest))
    return found


def _by_model(reader: StoreReader, span: TimeSpan) -> _Parts:
    """Return the cost of models; a service of one model has its name, as has cost of no model."""
    sums: dict[str, dict[tuple[str, str, str], float]] = {}
    for name in ("cost_total", "cost_idle"):
        amounts: dict[tuple[str, str, str], float] = defaultdict(float)
        for tags, cost in summed(reader, "cost", name, span, {"basis": "serving"}):
            currency, service = tags.get("currency", ""), tags.get("service", "")
            model = tags.get("served_model", "")
            amounts[currency, service, model] += cost
            if model:
                # The row of the whole service contains that of each of its models.
                amounts[currency, service, ""] -= cost
        sums[name] = amounts
    found: _Parts = defaultdict(list)
    for place, cost in sums["cost_total"].items():
        currency, service, model = place
        idle = sums["cost_idle"].get(place)
        if model or abs(cost) > _LEAST:
            known = idle if idle is None or abs(idle) > _LEAST else 0.0
            found[currency].append(KeyCost(model or service, cost, known))
    return found


_SOURCES: Final[Mapping[Key, Callable[[StoreReader, TimeSpan], _Parts]]] = {
    "tenant": _by_tenant,
    "namespace": _by_tag("namespace"),
    "service": _by_tag("service"),
    "model": _by_model,
}
