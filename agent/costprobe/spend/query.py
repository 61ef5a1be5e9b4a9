"""What devices cost in a span, by hour, day, service, label, tenant, namespace or model.

The cost of a gap between rows is unknown: spend has the share of the time that stored rows of
`device` or `allocation` cover. Forecasts, reports and the dashboard use the same figures.

Charges of a period: the cost is that of the ledger of allocations; of a device without one in a
period, that of its own rows. A row counts in the period that contains its time, its end. Tenants
divide a charge by the rows of `tenant`: its cost, idle cost and hours by the tenants' cost of the
service in the period, its tokens by the tenants' tokens. What no row of a tenant explains is
unattributed. Sums are exact.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple, TypeVar

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.columns import RowEnd, row_spans
from costprobe.core.money import divided, exact, total_of
from costprobe.core.periods import DAY_NS, HOUR_NS, PERIOD_HOURS, TimeSpan
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import SCHEMA, UNATTRIBUTED
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

# Tags of rows that are not labels of the operator.
_OWN_TAGS: Final = frozenset({"host", *SCHEMA["device"].tags, *SCHEMA["allocation"].tags})
_MICROSECONDS: Final = 6
# A service's cost and the sum of its tenants' differ by less than this share through rounding.
_ROUNDING: Final = Fraction(1, 10**9)

# Rounding of the sums of models.
_LEAST: Final = 1e-9
PROBING: Final = "probing"
UNALLOCATED: Final = "unallocated"

Group = TypeVar("Group")
Key = Literal["tenant", "namespace", "service", "model"]
# Lines of no key.
Rest = Literal["unattributed", "probing", "unallocated"]
_ByTenant = dict[str, Fraction]


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


class _Holder(NamedTuple):
    """A device in a period.

    Attributes:
        step: Number of the period since 1970.
        host: Name of the host.
        device: Name of the device.
    """

    step: int
    host: str
    device: str


@dataclass(frozen=True, slots=True)
class PeriodCharge:
    """Cost of a device in a period for one service, or the remainder without a service.

    Attributes:
        span: The period, within the exported time.
        host: Name of the host.
        device: Name of the device.
        kind: Kind of the device: gpu, mig or cpu.
        model: Product name of the device.
        service: Name of the service; empty for cost without one.
        currency: ISO 4217 code.
        cost: Currency.
        idle_cost: Currency, the part for idle time; 0 for a device without an allocation.
        device_hours: Hours of the device, divided among its charges by cost.
        tokens: Input and output tokens of the service, divided among its charges by cost; None
            where it counts none.
        labels: Labels of the operator.
        tenant: Name of the service's tenant; empty for a charge that is not divided.
    """

    span: TimeSpan
    host: str
    device: str
    kind: str
    model: str
    service: str
    currency: str
    cost: Decimal
    idle_cost: Decimal
    device_hours: Decimal
    tokens: Decimal | None
    labels: Mapping[str, str]
    tenant: str = ""


@dataclass(slots=True)
class KeyCost:
    """What one tenant, namespace, service or model cost.

    Attributes:
        name: Its name; that of the rest for a line of no key.
        cost: Currency.
        idle: The part of it in which the devices were idle; None if that is unknown.
        rest: Why the line has no key; None for a key.
    """

    name: str
    cost: float = 0.0
    idle: float | None = None
    rest: Rest | None = None


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
    if book.final_ns > now_ns:
        book.clear()  # the wall clock was set back
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


class _Key(NamedTuple):
    holder: _Holder
    service: str
    currency: str
    labels: tuple[tuple[str, str], ...]


def period_charges(
    reader: StoreReader, span: TimeSpan, step_ns: int, usual: Usual
) -> list[PeriodCharge]:
    """Return the charges of a span, by period, host, device and service.

    Args:
        reader: The store.
        span: The span.
        step_ns: Length of a period, which starts at a multiple of it.
        usual: Length of rows if there are too few to derive it.
    """
    costs: dict[_Key, list[Decimal]] = defaultdict(list)
    idle: dict[_Key, list[Decimal]] = defaultdict(list)
    for point in reader.points("allocation", span.start_ns, span.end_ns):
        key = _key(point, step_ns)
        costs[key] += _costs_of(point)
        if point.tags.get("part") == "idle":
            idle[key] += _costs_of(point)
    allocated = {key.holder for key in costs}
    described: dict[tuple[str, str], Mapping[str, str]] = {}
    for point in reader.points("device", span.start_ns, span.end_ns):
        key = _key(point, step_ns)
        described[key.holder.host, key.holder.device] = point.tags
        if key.holder not in allocated:
            costs[key] += _costs_of(point)
    amounts = {key: total_of(found) for key, found in sorted(costs.items()) if found}
    hours = _shared(amounts, _hours(reader, span, step_ns, usual), lambda key: key.holder)
    tokens = _shared(amounts, _tokens(reader, span, step_ns), _consumer)
    return [
        PeriodCharge(
            _within(span, key.holder.step, step_ns),
            key.holder.host,
            key.holder.device,
            described.get(key.holder[1:], {}).get("kind", ""),
            described.get(key.holder[1:], {}).get("model", ""),
            key.service,
            key.currency,
            cost,
            total_of(idle[key]),
            hours.get(key, Decimal(0)),
            tokens.get(key),
            dict(key.labels),
        )
        for key, cost in amounts.items()
    ]


def _key(point: Point, step_ns: int) -> _Key:
    tags = point.tags
    holder = _Holder(point.time_ns // step_ns, tags.get("host", ""), tags.get("device", ""))
    labels = tuple(sorted(item for item in tags.items() if item[0] not in _OWN_TAGS))
    return _Key(holder, tags.get("service", ""), tags.get("currency", ""), labels)


def _costs_of(point: Point) -> list[Decimal]:
    cost = point.fields.get("cost")
    # Without a currency an amount is no money.
    return [exact(cost)] if isinstance(cost, float) and point.tags.get("currency") else []


def _consumer(key: _Key) -> tuple[int, str, str]:
    return key.holder.step, key.holder.host, key.service


def _hours(
    reader: StoreReader, span: TimeSpan, step_ns: int, usual: Usual
) -> dict[_Holder, Decimal]:
    """Return the hours that the rows of each device cover, by period."""
    seconds: dict[_Holder, float] = defaultdict(float)
    by_device = defaultdict(list)
    around = (span.start_ns - LATE_NS, span.end_ns + LATE_NS)
    for series in reader.values("device", "cost", *around):
        by_device[series.tags.get("host", ""), series.tags.get("device", "")].append(series)
    for (host, device), found in by_device.items():
        for step, _, covered_s in spend_by_step(cost_rows(found), usual.device_s, span, step_ns):
            seconds[_Holder(step, host, device)] += covered_s
    return {
        holder: exact(round(covered_s / HOUR_S, _MICROSECONDS))
        for holder, covered_s in seconds.items()
    }


def _tokens(
    reader: StoreReader, span: TimeSpan, step_ns: int
) -> dict[tuple[int, str, str], Decimal]:
    """Return the tokens of each service, by period."""
    counts: dict[tuple[int, str, str], list[Decimal]] = defaultdict(list)
    for point in reader.points("serving", span.start_ns, span.end_ns):
        if "served_model" in point.tags:
            continue
        key = (point.time_ns // step_ns, point.tags.get("host", ""), point.tags["service"])
        for name in ("tokens_in", "tokens_out"):
            count = point.fields.get(name)
            if isinstance(count, float):
                counts[key].append(exact(count))
    return {key: total_of(found) for key, found in counts.items()}


def _shared(
    amounts: Mapping[_Key, Decimal],
    totals: Mapping[Group, Decimal],
    group_of: Callable[[_Key], Group],
) -> dict[_Key, Decimal]:
    """Divide quantities among the charges of a group by cost; evenly where nothing has a cost."""
    members: dict[Group, list[_Key]] = defaultdict(list)
    for key in amounts:
        members[group_of(key)].append(key)
    shared: dict[_Key, Decimal] = {}
    for group, keys in members.items():
        if group in totals:
            weights = [Fraction(max(amounts[key], Decimal(0))) for key in keys]
            even = weights if any(weights) else [Fraction(1)] * len(keys)
            shared |= dict(zip(keys, divided(totals[group], even), strict=True))
    return shared


def _within(span: TimeSpan, step: int, step_ns: int) -> TimeSpan:
    return TimeSpan(max(span.start_ns, step * step_ns), min(span.end_ns, (step + 1) * step_ns))


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


class _Served(NamedTuple):
    """A service in a period, in one currency."""

    step: int
    host: str
    service: str
    currency: str


def tenant_charges(
    charges: Sequence[PeriodCharge], reader: StoreReader, span: TimeSpan, step_ns: int
) -> Iterator[PeriodCharge]:
    """Iterate over charges, one for each tenant of a service that has tenants.

    Args:
        charges: The charges, by period, host, device and service.
        reader: The store.
        span: The exported time.
        step_ns: Length of a period, which starts at a multiple of it.
    """
    costs: dict[_Served, _ByTenant] = defaultdict(lambda: defaultdict(Fraction))
    tokens: dict[_Served, _ByTenant] = defaultdict(lambda: defaultdict(Fraction))
    for point in reader.points("tenant", span.start_ns, span.end_ns):
        tags = point.tags
        served = _Served(
            point.time_ns // step_ns, tags["host"], tags["service"], tags.get("currency", "")
        )
        costs[served][tags["tenant"]] += _number(point.fields.get("cost"))
        for name in ("tokens_in", "tokens_out"):
            tokens[served][tags["tenant"]] += _number(point.fields.get(name))
    whole_cost: dict[_Served, Fraction] = defaultdict(Fraction)
    whole_tokens: dict[_Served, Fraction] = defaultdict(Fraction)
    for charge in charges:
        whole_cost[_served(charge, step_ns)] += Fraction(charge.cost)
        whole_tokens[_served(charge, step_ns)] += Fraction(charge.tokens or 0)
    for charge in charges:
        served = _served(charge, step_ns)
        by_cost = _with_rest(costs.get(served, {}), whole_cost[served])
        by_tokens = _with_rest(tokens.get(served, {}), whole_tokens[served])
        yield from _parts(charge, by_cost, by_tokens)


def _served(charge: PeriodCharge, step_ns: int) -> _Served:
    return _Served(charge.span.start_ns // step_ns, charge.host, charge.service, charge.currency)


def _number(value: object) -> Fraction:
    return Fraction(exact(value)) if isinstance(value, float) else Fraction(0)


def _with_rest(parts: Mapping[str, Fraction], whole: Fraction) -> Mapping[str, Fraction]:
    """Return the parts with what they lack of the whole as unattributed; none where none is known."""
    rest = whole - sum(parts.values(), Fraction(0))
    if not parts or rest <= whole * _ROUNDING:
        return parts
    return {**parts, UNATTRIBUTED: parts.get(UNATTRIBUTED, Fraction(0)) + rest}


def _parts(
    charge: PeriodCharge, by_cost: Mapping[str, Fraction], by_tokens: Mapping[str, Fraction]
) -> Iterator[PeriodCharge]:
    """Divide a charge; one without tenants is returned as it is."""
    names = sorted(
        (name for name in by_cost if by_cost[name] > 0 or by_tokens.get(name)),
        key=lambda name: (name == UNATTRIBUTED, name),
    )
    shares = [by_cost[name] for name in names]
    if not any(shares) or charge.cost < 0:
        yield charge
        return

    counted = [by_tokens.get(name, Fraction(0)) for name in names]
    tokens: Sequence[Decimal | None] = [None] * len(names)
    if charge.tokens is not None:
        tokens = divided(charge.tokens, counted if any(counted) else shares)
    parts = zip(
        names,
        divided(charge.cost, shares),
        divided(charge.idle_cost, shares),
        divided(charge.device_hours, shares),
        tokens,
        strict=True,
    )
    for name, cost, idle_cost, hours, token_count in parts:
        yield replace(
            charge,
            tenant=name,
            cost=cost,
            idle_cost=idle_cost,
            device_hours=hours,
            tokens=token_count,
        )


def summed(
    reader: StoreReader,
    measurement: str,
    field: str,
    span: TimeSpan,
    tags: Mapping[str, str] | None = None,
) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield the tags and the sum of a field of each series in a span, its end included."""
    within = span.start_ns + 1, span.end_ns + 1
    for series in reader.hourly_sums(measurement, (field,), *within, tags)[field]:
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
    found = [
        _allocation(
            currency, [hour.cost for hour in spend.by_device.values()], spend.coverage, parts
        )
        for currency, spend in spent.items()
        for parts in [_merged(by_key.get(currency, []))]
    ]
    return sorted(found, key=lambda allocation: -allocation.total)


def _allocation(
    currency: str, device_costs: list[float], coverage: float, parts: list[KeyCost]
) -> KeyAllocation:
    total = math.fsum(device_costs)
    whole = math.fsum(part.cost for part in parts)
    if whole > total:
        for part in parts:
            part.cost *= total / whole
            part.idle = None if part.idle is None else part.idle * total / whole
    rest = max(0.0, total - whole)
    parts.sort(key=lambda part: (part.rest is not None, -part.cost, part.name))
    return KeyAllocation(
        currency, total, coverage, (*parts, KeyCost(UNALLOCATED, rest, rest=UNALLOCATED))
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
        if model or cost > _LEAST:
            known = None if idle is None else max(0.0, idle)
            found[currency].append(KeyCost(model or service, max(0.0, cost), known))
    return found


_SOURCES: Final[Mapping[Key, Callable[[StoreReader, TimeSpan], _Parts]]] = {
    "tenant": _by_tenant,
    "namespace": _by_tag("namespace"),
    "service": _by_tag("service"),
    "model": _by_model,
}
