"""Build a report from a store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.configuration import Config
from costprobe.core.columns import RowColumns
from costprobe.core.periods import DAY_NS, TimeSpan
from costprobe.core.records import is_slice_kind, natural
from costprobe.core.schema import PAID_FIELDS, SERVICE_FIELDS
from costprobe.core.units import HOUR_S
from costprobe.pricing.book import PriceBook, Terms
from costprobe.pricing.catalogue_files import hosted_models
from costprobe.pricing.electricity import ElectricityConfig, tariff_per_kwh
from costprobe.savings.evidence import History
from costprobe.savings.hosted_apis import HostingChoice, hosting_choices
from costprobe.savings.savings import savings
from costprobe.spend.evaluate import BudgetOverview
from costprobe.spend.query import (
    LATE_NS,
    Usual,
    allocation_by,
    cost_rows,
    coverage_of,
    ended_values,
    spend_by_step,
)
from costprobe.ui.host_overview import overview
from costprobe.ui.report.changes import changes
from costprobe.ui.report.model import (
    Drawn,
    Price,
    Report,
    Spend,
)
from costprobe.ui.report.spend import Period, spent
from costprobe.ui.report.trends import CountedTrend, counted_trends, trends
from costprobe.unit_costs.compare import Candidate, compared, probe_candidates, service_candidates

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
    groups, left_out = compared(
        sorted(found.candidates, key=lambda one: (one.basis, natural(one.name)))
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
        hardware={
            one.tags.get("device", ""): one.tags.get("model", "") for one in reader.series("device")
        },
        changes=listed,
        more_changes=unlisted,
        savings=savings(past.history),
        budgets=[budget.status for budget in budgets],
        prices=_prices(past, config.electricity, until_ns),
        label=label,
        hosting=found.hosting,
        tenants=allocation_by(
            "tenant", reader, TimeSpan(*period), Usual(config.telemetry.aggregate_s)
        )
        if reader.series("tenant")
        else (),
    )


def _spend_and_drawn(
    past: ReportSources, period: Period, label: str
) -> tuple[Sequence[Spend], Drawn]:
    """Read the rows of `device` once for money, energy and emissions."""
    reader, usual = past.reader, Usual(past.config.telemetry.aggregate_s)
    around_ns = period.before.since_ns - LATE_NS, period.until_ns + LATE_NS
    totals = reader.hourly_sums("device", ("cost", *DRAWN), *around_ns, cuts_ns=period)
    allocations = list(ended_values(reader, "allocation", "cost", TimeSpan(*period)))
    spend = spent(totals["cost"], allocations, period, usual, label)
    return spend, drawn_in(totals, period, usual)


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
        found.candidates += service_candidates(now, of_services)
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


def drawn_in(totals: Mapping[str, Sequence[SeriesValues]], period: Period, usual: Usual) -> Drawn:
    """Sum energy and emissions; a board's energy includes its MIG devices.

    Args:
        totals: DRAWN of the rows of `device`, over the period and LATE_NS around it.
        period: The period.
        usual: Length of rows if there are too few to derive it.
    """
    amounts: dict[str, float] = {}
    covered_s: dict[str, dict[str, float]] = {}
    for total in DRAWN:
        boards = [
            series for series in totals[total] if not is_slice_kind(series.tags.get("kind", ""))
        ]
        for device in sorted({series.tags.get("device", "") for series in boards}):
            rows = cost_rows(series for series in boards if series.tags.get("device", "") == device)
            for _, amount, part_s in spend_by_step(rows, usual.device_s, TimeSpan(*period), DAY_NS):
                amounts[total] = amounts.get(total, 0.0) + amount
                device_covered_s = covered_s.setdefault(total, {})
                device_covered_s[device] = device_covered_s.get(device, 0.0) + part_s
    energy_j, carbon_g = amounts.get("energy_j"), amounts.get("carbon_g")
    of_energy, of_carbon = covered_s.get("energy_j", {}), covered_s.get("carbon_g", {})
    known_s = math.fsum(of_energy.values())
    return Drawn(
        energy_j=energy_j,
        energy_coverage=coverage_of(of_energy, period.hours * HOUR_S) if of_energy else None,
        carbon_g=carbon_g,
        carbon_coverage=min(1.0, math.fsum(of_carbon.values()) / known_s) if known_s else None,
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
            per_kwh = tariff_per_kwh(electricity, time_ns) * electricity.pue
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
