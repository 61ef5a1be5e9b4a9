"""From a store to a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from agent.advising.history import History
from agent.advising.registry import advice
from agent.config import Config
from agent.config_price import ElectricityConfig
from agent.costing.budget import BudgetStatus
from agent.costing.compare import compared
from agent.costing.compare_rows import probe_candidates, service_candidates
from agent.pricing.book import PriceBook, Terms
from agent.pricing.tariff import tariff_per_kwh
from agent.report.changes import changes
from agent.report.model import Drawn, Price, Report
from agent.report.outlook import outlook_of
from agent.report.spend import Period, spent
from agent.report.trends import trends
from agent.storage.reader import StoreReader
from agent.units import KWH_J

UNKNOWN_CURRENCY: Final = "?"
_G_PER_KG: Final = 1000


@dataclass(frozen=True, slots=True)
class Past:
    """What a report is made from.

    Attributes:
        reader: The store.
        config: The configuration: qualities and the tariff.
        history: What advisors look at.
        book: Prices, also of the past.
    """

    reader: StoreReader
    config: Config
    history: History
    book: PriceBook


def report_of(
    past: Past, period: Period, made_ns: int, budgets: Iterable[tuple[BudgetStatus, str]] = ()
) -> Report:
    """Everything that is reported of a period.

    Args:
        past: What is known.
        period: The period; savings are looked for up to the present.
        made_ns: UTC ns of the present.
        budgets: Each as it stands at present, with a note on its forecast.
    """
    reader, config = past.reader, past.config
    since_ns, until_ns = period
    costs = reader.values("device", "cost", period.before.since_ns, until_ns)
    priced = list(reader.points("cost", period.before.since_ns, until_ns))
    now = [row for row in priced if row.time_ns >= since_ns]
    candidates = [
        *probe_candidates(
            reader.points("probe", since_ns, until_ns),
            now,
            {probe.name: probe.quality for probe in config.probe},
        ),
        *service_candidates(now, {service.name: service.quality for service in config.service}),
    ]
    groups, left_out = compared(candidates)
    kept, more = changes(reader.points("event", since_ns, until_ns))
    hints, unsaid = advice(past.history)

    def currency_at(device: str, time_ns: int) -> str:
        return _currency(past, device, time_ns)

    return Report(
        host=_host(reader),
        since_ns=since_ns,
        until_ns=until_ns,
        made_ns=made_ns,
        spend=spent(
            costs,
            reader.values("allocation", "cost", since_ns, until_ns),
            period,
            currency_at,
        ),
        drawn=_drawn(reader, period),
        models=groups,
        left_out=left_out,
        trends=trends(priced, period),
        changes=kept,
        more_changes=more,
        hints=hints,
        unsaid=unsaid,
        outlooks=[outlook_of(status, note) for status, note in budgets],
        prices=_prices(past, config.electricity, until_ns),
    )


def _host(reader: StoreReader) -> str:
    names = {series.tags.get("host", "") for series in reader.series("device")}
    return ", ".join(sorted(name for name in names if name)) or "this host"


def _terms(past: Past, device: str, time_ns: int) -> Terms | None:
    try:
        return past.book.terms(device, time_ns)
    except KeyError:
        return None  # a device that was there and is not any more


def _currency(past: Past, device: str, time_ns: int) -> str:
    terms = _terms(past, device, time_ns)
    if terms is not None:
        return terms.rate.currency
    paid_in = {
        row.tags["currency"]
        for row in past.reader.series("cost", {"device": device})
        if row.tags.get("currency")
    }
    return paid_in.pop() if len(paid_in) == 1 else UNKNOWN_CURRENCY


def _drawn(reader: StoreReader, period: Period) -> Drawn:
    """A board's energy holds that of its MIG devices."""
    energy_j, carbon_g = (
        [
            value
            for series in reader.values("device", field, *period)
            if series.tags.get("kind") != "mig"
            for value in series.values
        ]
        for field in ("energy_j", "carbon_g")
    )
    return Drawn(
        math.fsum(energy_j) / KWH_J if energy_j else None,
        math.fsum(carbon_g) / _G_PER_KG if carbon_g else None,
    )


def _prices(past: Past, electricity: ElectricityConfig | None, time_ns: int) -> Sequence[Price]:
    found = []
    for name, history in past.history.devices.items():
        terms = _terms(past, name, time_ns)
        if terms is None:
            continue
        rate, per_kwh = terms.rate, None
        if electricity is not None and not rate.electricity_included:
            per_kwh = tariff_per_kwh(electricity, time_ns) * electricity.pue
        found.append(
            Price(
                device=name,
                model=history.device.model,
                plan=rate.plan,
                currency=rate.currency,
                per_hour=rate.per_hour,
                source=rate.source,
                is_assumed=rate.plan == "assumed",
                is_stale=rate.is_stale,
                electricity_included=rate.electricity_included,
                electricity_per_kwh=per_kwh,
            )
        )
    return found
