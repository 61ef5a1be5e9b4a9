"""Build a report from a store: spend, energy, unit costs and their trends, and merged events."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.configuration import Config
from costprobe.core.columns import RowColumns, number, numbers_of
from costprobe.core.money import PER_THOUSAND, exact, total_of
from costprobe.core.periods import DAY_NS, HOUR_NS, TimeSpan
from costprobe.core.records import NS_PER_S, Point, devices_text, is_slice_kind, natural
from costprobe.core.schema import PAID_FIELDS, SERVICE_FIELDS, SLO_FIELDS
from costprobe.core.units import HOUR_S
from costprobe.pricing.book import PriceBook, Terms
from costprobe.pricing.catalogue_files import hosted_models
from costprobe.pricing.electricity import ElectricityConfig, tariff_at
from costprobe.savings.evidence import History
from costprobe.savings.hosted_apis import HostingChoice, hosting_choices
from costprobe.savings.savings import savings
from costprobe.spend.evaluate import BudgetOverview
from costprobe.spend.query import (
    LATE_NS,
    SpanSpend,
    allocation_by,
    coverage_of,
    ended_values,
    hourly_change,
    label_spend,
    share_of,
    span_spend,
    spend_by_step,
)
from costprobe.spend.server import server_others
from costprobe.ui.host_overview import overview
from costprobe.ui.report.model import (
    Amount,
    Bucket,
    Drawn,
    Price,
    Report,
    ReportedChange,
    Spend,
    Trend,
    Use,
)
from costprobe.unit_costs.change import ratio_of_columns
from costprobe.unit_costs.compare import (
    Candidate,
    compared,
    on_identical,
    probe_candidates,
    service_candidates,
)

# Smaller than any currency's unit, larger than the rounding error of float sums.
_DIGITS: Final = 9


class Period(NamedTuple):
    """A half-open time span in UTC ns."""

    since_ns: int
    until_ns: int

    @property
    def before(self) -> Period:
        """The preceding span of equal length."""
        return Period(2 * self.since_ns - self.until_ns, self.since_ns)

    @property
    def hours(self) -> float:
        """Its length in hours."""
        return (self.until_ns - self.since_ns) / HOUR_NS


def spent(
    costs: Iterable[SeriesValues],
    allocations: Iterable[SeriesValues],
    period: Period,
    usual_s: float,
    label: str = "",
) -> list[Spend]:
    """Return the cost of a period, compared with the preceding one, one entry per currency.

    Args:
        costs: `cost` of the rows of `device`, over both periods and LATE_NS around them.
        allocations: `cost` of the rows of `allocation`, over the period.
        period: The period.
        usual_s: Length of a row of `device` in s if there are too few to derive it.
        label: Tag that the cost is divided by; empty for none.
    """
    costs, allocations = list(costs), list(allocations)
    now, before = (span_spend(costs, TimeSpan(*span), usual_s) for span in (period, period.before))
    uses = _uses(allocations)
    spends = [
        _spend(currency, spend, before.get(currency), period, uses.get(currency, ()))
        for currency, spend in sorted(now.items())
    ]
    if not label:
        return spends
    labelled = label_spend(label, costs, allocations, TimeSpan(*period), usual_s)
    return [
        replace(spend, by_label=_with_remainder(spend.total, labelled.get(spend.currency, {})))
        for spend in spends
    ]


def _with_remainder(total: Decimal, labelled: Mapping[str, float]) -> list[Amount]:
    """Return the cost of each value of a label, and that of none, the largest first."""
    parts = [Amount(value, rounded(cost)) for value, cost in labelled.items()]
    parts.append(Amount("", total - total_of([part.amount for part in parts])))
    return sorted(
        (p for p in parts if p.amount), key=lambda part: (-part.amount, natural(part.name))
    )


def _spend(
    currency: str, spend: SpanSpend, before: SpanSpend | None, period: Period, uses: Sequence[Use]
) -> Spend:
    amounts = [
        Amount(name, rounded(device_spend.cost)) for name, device_spend in spend.by_device.items()
    ]
    amounts.sort(key=lambda entry: (-entry.amount, natural(entry.name)))
    length_s = period.hours * HOUR_S
    per_hour = before and hourly_change(before.by_device, spend.by_device, length_s)
    return Spend(
        currency,
        total=total_of([entry.amount for entry in amounts]),
        coverage=spend.coverage,
        before=None
        if before is None
        else total_of([rounded(device_spend.cost) for device_spend in before.by_device.values()]),
        coverage_before=None if before is None else before.coverage,
        per_hour=per_hour[1] if per_hour else None,
        per_hour_before=per_hour[0] if per_hour else None,
        by_device=amounts,
        by_day=[
            Bucket(day * DAY_NS, round(cost, _DIGITS)) for day, cost in sorted(spend.by_day.items())
        ],
        by_use=uses,
    )


def _uses(allocations: Iterable[SeriesValues]) -> Mapping[str, Sequence[Use]]:
    by_key: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for series in allocations:
        tags = series.tags
        key = (tags.get("currency", ""), tags.get("service", ""), tags.get("part", ""))
        by_key[key] += series.values
    uses: dict[str, list[Use]] = defaultdict(list)
    for (currency, service, part), values in by_key.items():
        amount = rounded(math.fsum(values))
        if amount:
            uses[currency].append(Use(service, part, amount))
    return {
        currency: sorted(uses_of_currency, key=lambda use: (-use.cost, use.service, use.part))
        for currency, uses_of_currency in uses.items()
    }


def rounded(amount: float) -> Decimal:
    """Remove the rounding error of a float sum."""
    return exact(round(amount, _DIGITS))


# Totals of energy and emissions.
DRAWN: Final = ("energy_j", "carbon_g")


@dataclass(frozen=True, slots=True)
class ReportSources:
    """The sources of a report.

    Attributes:
        reader: The store.
        config: The configuration: model qualities and the tariff.
        history: Input of the savings.
        book: Current and past prices.
        runs: RUN_FIELDS of the rows of `probe` of the period, or more of them.
    """

    reader: StoreReader
    config: Config
    history: History
    book: PriceBook
    runs: Sequence[RowColumns]


def report_of(
    past: ReportSources,
    period: Period,
    made_ns: int,
    budgets: Sequence[BudgetOverview] = (),
    months: Sequence[BudgetOverview] = (),
    label: str = "",
) -> Report:
    """Build the report of a period.

    Args:
        past: The sources.
        period: The period; savings are computed up to the present.
        made_ns: UTC ns of the present.
        budgets: Present status of the budgets.
        months: Present spend of this month of each currency; empty for a period in the past.
        label: Label that spend is divided by; empty for none.
    """
    reader, config = past.reader, past.config
    since_ns, until_ns = period
    spend, drawn = _spend_and_drawn(past, period, label)
    found = _unit_costs(past, period)
    hardware = {one.tags["device"]: one.tags.get("model", "") for one in reader.series("device")}
    groups, left_out = compared(
        sorted(
            on_identical(found.candidates, hardware), key=lambda one: (one.basis, natural(one.name))
        )
    )
    listed, unlisted = changes(reader.points("event", since_ns, until_ns))
    return Report(
        host=_host(reader),
        since_ns=since_ns,
        until_ns=until_ns,
        made_ns=made_ns,
        spend=spend,
        drawn=drawn,
        models=groups,
        left_out=left_out,
        trends=trends(found.trends),
        overview=overview(reader, config, until_ns, months),
        hardware=hardware,
        changes=listed,
        more_changes=unlisted,
        savings=savings(past.history),
        budgets=[budget.status for budget in budgets],
        prices=_prices(past, config.electricity, until_ns),
        label=label,
        hosting=found.hosting,
        tenants=allocation_by("tenant", reader, TimeSpan(*period), config.telemetry.aggregate_s)
        if reader.series("tenant")
        else (),
        server=server_others(reader, TimeSpan(*period)),
    )


def _spend_and_drawn(
    past: ReportSources, period: Period, label: str
) -> tuple[Sequence[Spend], Drawn]:
    """Read the rows of `device` once for money, energy and emissions."""
    reader, usual_s = past.reader, past.config.telemetry.aggregate_s
    around_ns = period.before.since_ns - LATE_NS, period.until_ns + LATE_NS
    totals = reader.hourly_sums("device", ("cost", *DRAWN), *around_ns, cuts_ns=period)
    allocations = ended_values(reader, "allocation", ("cost",), TimeSpan(*period))["cost"]
    spend = spent(totals["cost"], allocations, period, usual_s, label)
    return spend, drawn_in(totals, period, usual_s)


@dataclass(slots=True)
class _UnitCosts:
    """What the rows of `cost` say of probes and services."""

    candidates: list[Candidate] = field(default_factory=list)
    hosting: list[HostingChoice] = field(default_factory=list)
    trends: list[CountedTrend] = field(default_factory=list)


def _unit_costs(past: ReportSources, period: Period) -> _UnitCosts:
    """Read the rows of `cost` of each probe on a device, then of each service.

    One after the other, and only their needed fields: a year of all of them would not fit in memory.
    """
    reader, config, found = past.reader, past.config, _UnitCosts()
    span = (period.before.since_ns, period.until_ns)
    qualities = {probe.name: probe.quality for probe in config.probe}
    series = reader.series("cost")
    runs: dict[tuple[str, str], list[RowColumns]] = {}
    for part in past.runs:
        runs.setdefault(_pair(part.tags), []).append(part.between(*period))
    for pair in sorted({_pair(one.tags) for one in series if one.tags.get("probe")}):
        tags = {"device": pair[0], "probe": pair[1]}
        paid = reader.columns("cost", *span, tags, fields=PAID_FIELDS)
        now = [part.between(*period) for part in paid]
        found.candidates += probe_candidates(runs.get(pair, ()), now, qualities)
        found.trends += counted_trends(paid, period)
    listed = hosted_models() if config.api else {}
    of_services = {service.name: service.quality for service in config.service}
    for service in sorted({name for one in series if (name := one.tags.get("service", ""))}):
        paid = reader.columns("cost", *span, {"service": service}, fields=SERVICE_FIELDS)
        now = [part.between(*period) for part in paid]
        timed = reader.columns("slo", *period, {"service": service}, fields=SLO_FIELDS)
        found.candidates += service_candidates(now, of_services, timed)
        found.hosting += hosting_choices(now, config.api, listed)
        found.trends += counted_trends(paid, period)
    return found


def _pair(tags: Mapping[str, str]) -> tuple[str, str]:
    return tags.get("device", ""), tags.get("probe", "")


def _host(reader: StoreReader) -> str:
    names = {series.tags.get("host", "") for series in reader.series("device")}
    return ", ".join(sorted((name for name in names if name), key=natural)) or "this host"


def _terms(past: ReportSources, device: str, time_ns: int) -> Terms | None:
    try:
        return past.book.terms(device, time_ns)
    except KeyError:
        return None  # a device that was removed


def drawn_in(totals: Mapping[str, Sequence[SeriesValues]], period: Period, usual_s: float) -> Drawn:
    """Sum energy and emissions; a board's energy includes its MIG devices.

    Args:
        totals: DRAWN of the rows of `device`, over the period and LATE_NS around it.
        period: The period.
        usual_s: Length of a row of `device` in s if there are too few to derive it.
    """
    amounts: dict[str, float] = {}
    covered_s: dict[str, dict[str, float]] = {}
    for total in DRAWN:
        boards = [
            series for series in totals[total] if not is_slice_kind(series.tags.get("kind", ""))
        ]
        for device in sorted({series.tags.get("device", "") for series in boards}):
            rows = (series for series in boards if series.tags.get("device", "") == device)
            for _, amount, part_s in spend_by_step(rows, usual_s, TimeSpan(*period), DAY_NS):
                amounts[total] = amounts.get(total, 0.0) + amount
                device_covered_s = covered_s.setdefault(total, {})
                device_covered_s[device] = device_covered_s.get(device, 0.0) + part_s
    energy_j, carbon_g = amounts.get("energy_j"), amounts.get("carbon_g")
    of_energy, of_carbon = covered_s.get("energy_j", {}), covered_s.get("carbon_g", {})
    known_s = math.fsum(of_energy.values())
    return Drawn(
        energy_j=energy_j,
        energy_coverage=coverage_of(of_energy.values(), period.hours * HOUR_S)
        if of_energy
        else None,
        carbon_g=carbon_g,
        carbon_coverage=share_of(math.fsum(of_carbon.values()), known_s),
    )


def _prices(
    past: ReportSources, electricity: ElectricityConfig | None, time_ns: int
) -> Sequence[Price]:
    prices = []
    for name, history in past.history.devices.items():
        terms = _terms(past, name, time_ns)
        if terms is None:
            continue
        rate, per_kwh = terms.rate, None
        if electricity is not None and not rate.electricity_included:
            per_kwh = tariff_at(electricity, time_ns).metered_per_kwh
        prices.append(
            Price(
                device=name,
                model=history.device.model,
                plan=rate.plan,
                currency=rate.currency,
                price_rate_per_h=rate.per_hour,
                source=rate.source,
                assumed=rate.plan == "assumed",
                stale=rate.is_stale,
                electricity_included=rate.electricity_included,
                electricity_per_kwh=per_kwh,
            )
        )
    return prices


MAX_MODELS: Final = 24
# Of 30 days six hours are a step, so that a change of the last hours is not lost in a day's median.
MAX_BUCKETS: Final = 124
# Common calendar units.
_STEPS_NS: Final = (
    60 * NS_PER_S,
    600 * NS_PER_S,
    HOUR_NS,
    6 * HOUR_NS,
    DAY_NS,
    3 * DAY_NS,
    7 * DAY_NS,
    28 * DAY_NS,
)

Key = tuple[str, str, str, str, str]
# The number of its rows, and the trend.
CountedTrend = tuple[int, Trend]


def step_ns(period: Period) -> int:
    """Return the step length in ns that divides a period into at most about 120 steps."""
    length_ns = period.until_ns - period.since_ns
    fitting = (step for step in _STEPS_NS if length_ns <= step * MAX_BUCKETS)
    return next(fitting, -(-length_ns // MAX_BUCKETS))


def trends(found: Sequence[CountedTrend]) -> list[Trend]:
    """Return the trends of all models on all devices; of too many models, of those with most samples."""
    samples = Counter[tuple[str, ...]]()
    for count, trend in found:
        samples[_model_of(trend)] += count
    kept = sorted(samples, key=lambda model: (-samples[model], natural(*model)))[:MAX_MODELS]
    return sorted(
        (trend for _, trend in found if _model_of(trend) in kept),
        key=lambda trend: (trend.currency, natural(trend.name)),
    )


def _model_of(trend: Trend) -> tuple[str, ...]:
    # A probe on each device has a trend, a service one for each of its models.
    return trend.currency, trend.basis, trend.subject if trend.basis == "probe" else trend.name


def counted_trends(costs: Iterable[RowColumns], period: Period) -> Iterator[CountedTrend]:
    """Yield the trends of a probe on a device, or of a service, each with its number of rows.

    A probe's step is the median of its samples; a service's step is the cost of its windows
    divided by their inferences.

    Args:
        costs: Its rows of `cost`, over the period and the one before.
        period: The period.
    """
    groups: dict[Key, list[RowColumns]] = defaultdict(list)
    for part in costs:
        groups[_key(part.tags)].append(part)
    has_models = {key[4] for key, parts in groups.items() if key[3] and any(map(len, parts))}
    for key, parts in groups.items():
        if key[4] in has_models and not key[3]:
            continue  # the row of several models together
        trend = _trend(key, parts, period)
        if trend is not None:
            yield sum(map(len, parts)), trend


def _key(tags: Mapping[str, str]) -> Key:
    return (
        tags.get("basis", "probe"),
        tags.get("device", ""),
        tags.get("service") or tags.get("probe", ""),
        tags.get("served_model", ""),
        tags.get("currency", "?"),
    )


def _trend(key: Key, parts: Sequence[RowColumns], period: Period) -> Trend | None:
    basis, device, subject, model, currency = key
    cost_of = _RATIO if basis == "serving" else _median
    buckets, now = _buckets(parts, period, cost_of), cost_of(_between(parts, *period))
    if now is None or not buckets:
        return None
    before = cost_of(_between(parts, *period.before))
    words = f"{subject}/{model}" if model else subject
    return Trend(
        name=words if basis == "serving" else f"{words} on {device}",
        basis=basis,
        device=device,
        subject=subject,
        currency=currency,
        buckets=buckets,
        before=None if before is None else before * PER_THOUSAND,
        now=now * PER_THOUSAND,
    )


def _between(parts: Iterable[RowColumns], since_ns: int, until_ns: int) -> list[RowColumns]:
    return [part.between(since_ns, until_ns) for part in parts]


def _buckets(
    parts: Sequence[RowColumns],
    period: Period,
    cost_of: Callable[[Sequence[RowColumns]], float | None],
) -> list[Bucket]:
    step, (since_ns, until_ns) = step_ns(period), period
    starts_ns = range(since_ns // step * step, until_ns, step)
    spans = [(max(since_ns, at_ns), min(until_ns, at_ns + step)) for at_ns in starts_ns]
    costs = [cost_of(_between(parts, *span)) for span in spans]
    return [
        Bucket(start_ns, cost * PER_THOUSAND)
        for start_ns, cost in zip(starts_ns, costs, strict=True)
        if cost is not None
    ]


# Total cost over total inferences: the cost of idle windows is included.
_RATIO: Final = partial(ratio_of_columns, field="cost_per_inference")


def _median(parts: Sequence[RowColumns]) -> float | None:
    """Return the median cost, of contended runs only where there are no others."""
    alone = [part.where([one is not True for one in part.column("contended")]) for part in parts]
    costs = numbers_of(alone if any(map(len, alone)) else parts, "cost_per_inference")
    return statistics.median(costs) if costs else None


MAX_CHANGES: Final = 40
_RANKS: Final = {"drift": 0, "price": 1, "annotation": 2, "software": 3, "fault": 4, "anomaly": 5}
# The same change of several devices is one if each is no later than this after the first.
_TOGETHER_NS: Final = HOUR_NS
_ANY: Final = "*"
_AMOUNT: Final = re.compile(r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?")
_SEVERITIES: Final = ("critical", "warning", "info")


def changes(events: Iterable[Point]) -> tuple[list[ReportedChange], int]:
    """Return the most important events, the newest first, and the number of omitted ones.

    Events with the same title are merged and counted; the same event on several devices within an
    hour, such as a new price of all of them, is one. If there are too many, drift and price events
    and annotations take precedence over software, faults and anomalies.

    Args:
        events: Rows of `event` in time order.
    """
    by_key: dict[tuple[str, str, str], ReportedChange] = {}
    for row in events:
        change = _change(row, 1)
        key = (change.kind, change.subject, change.title)
        present = by_key.get(key)
        by_key[key] = change if present is None else _change(row, present.occurrences + 1)
    merged = _merged(by_key.values())
    ranked = sorted(merged, key=_rank)
    listed = sorted(ranked[:MAX_CHANGES], key=lambda change: -change.time_ns)
    return listed, len(ranked) - len(listed)


def _merged(found: Iterable[ReportedChange]) -> list[ReportedChange]:
    """Return the changes, one for each that several devices have at about the same time."""
    groups: dict[tuple[object, ...], list[ReportedChange]] = {}
    for change in sorted(found, key=lambda one: one.time_ns):
        texts = (change.kind, change.subject, change.title, change.detail)
        key: tuple[object, ...] = (
            *(_named(text, change, _ANY) for text in texts),
            change.before,
            change.after,
            change.change_pct,
            change.occurrences,
        )
        group = groups.get(key)
        if group and change.time_ns - group[0].time_ns <= _TOGETHER_NS:
            group.append(change)
        else:
            groups[(*key, change.time_ns) if group else key] = [change]
    return [_together(group) for group in groups.values()]


def _named(text: str, change: ReportedChange, name: str) -> str:
    """Return a text with another name instead of that of the change's device."""
    if not change.devices:
        return text
    return re.sub(rf"(?<![\w.]){re.escape(change.devices[0])}(?![\w.])", lambda _: name, text)


def _together(group: Sequence[ReportedChange]) -> ReportedChange:
    first = group[0]
    if len(group) == 1:
        return first
    devices = tuple(name for change in group for name in change.devices)
    name = devices_text(devices)
    title = _named(first.title, first, name)
    if first.kind == "price" and first.before and first.after:
        title = f"{name} cost {first.after} each instead of {first.before}"
    return replace(
        first,
        subject=_named(first.subject, first, name),
        title=title,
        detail=_named(first.detail, first, name),
        devices=devices,
    )


def _rank(change: ReportedChange) -> tuple[int, int, int]:
    severity = change.severity if change.severity in _SEVERITIES else _SEVERITIES[-1]
    kind = _RANKS.get(change.kind, len(_RANKS))
    return kind, _SEVERITIES.index(severity), -change.time_ns


def _change(row: Point, times: int) -> ReportedChange:
    tags, fields = row.tags, row.fields
    subject = tags.get("service") or tags.get("probe", "")
    device = tags.get("device", "")
    since_ns = number(row, "since_ns")

    def text(name: str) -> str:
        return str(fields.get(name, ""))

    return ReportedChange(
        time_ns=row.time_ns,
        since_ns=row.time_ns if since_ns is None else int(since_ns),
        kind=tags.get("kind", ""),
        severity=text("severity") or "info",
        subject=" on ".join(part for part in (subject, device) if part) or "the host",
        title=text("title"),
        detail=text("detail"),
        cause=text("cause"),
        before=text("before"),
        after=text("after"),
        change_pct=_price_pct(text("before"), text("after"))
        if tags.get("kind") == "price"
        else number(row, "change_pct"),
        occurrences=times,
        devices=(device,) if device else (),
        named=subject,
    )


def _price_pct(before: str, after: str) -> float | None:
    """Return the change between two prices as events write them, "$4.5/h"; None between currencies."""
    amounts = [_AMOUNT.search(text) for text in (before, after)]
    old, new = (0.0 if one is None else float(one[0].replace(",", "")) for one in amounts)
    is_alike = _AMOUNT.sub("", before) == _AMOUNT.sub("", after)
    return (new / old - 1) * 100 if old and new and is_alike else None
