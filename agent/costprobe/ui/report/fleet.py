"""The sections of a fleet's report: sentences, then a table each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from costprobe.core.money import cents, common_scale, money, scale_words
from costprobe.core.units import HOUR_S, MONTH_H, counted, percent
from costprobe.fleet.answers import hours_of
from costprobe.fleet.report import FleetReport, idle_cost
from costprobe.fleet.spend import FleetSpend
from costprobe.fleet.unit_costs import FleetUnitCost
from costprobe.ui.amounts import si
from costprobe.ui.fleet_documents import price_cell, spend_cells
from costprobe.ui.report.formats import Document, Section
from costprobe.ui.tables import Table
from costprobe.ui.text import ago, local

ROWS_MAX: Final = 20
UNALLOCATED: Final = "(unallocated)"
_KEYS: Final = {"model": "served model"}


def fleet_document(report: FleetReport) -> Document:
    """Return the report of a fleet."""
    lines = [*headlines(report), *(f"Partial: {problem}" for problem in report.problems)]
    return Document(
        title="Cost of inference of the fleet",
        subtitle=f"{local(report.period.start_ns)} to {local(report.period.end_ns)}",
        figures=(),
        first=[Section("In short", lines=lines), *tables(report)],
    )


def headlines(report: FleetReport) -> Iterator[str]:
    """Yield the sentences at the top: spend with its change, idle cost, energy, hosts."""
    before = (
        {} if report.before is None else {one.currency: one.cost for one in report.before.costs}
    )
    for one in report.total.costs:
        words = f"{cents(one.cost, one.currency)} spent"
        if before.get(one.currency):
            change = one.cost / before[one.currency] - 1
            words += f", {percent(abs(change))} {'more' if change > 0 else 'less'} than in the period before"
        if one.idle_share is not None:
            idle = money(one.cost * one.idle_share, one.currency)
            words += f"; {idle} of it paid for idle time ({percent(one.idle_share)})"
        yield f"{words}."
    if report.before is None:
        yield "Not compared with the period before: rows cover less than nine tenths of one of them."
    if report.total.coverage is not None:
        yield f"Rows cover {percent(report.total.coverage)} of the time; gaps are not extrapolated."
    if report.total.energy_j is not None:
        words = si(report.total.energy_j / HOUR_S, "Wh")
        if report.total.carbon_g is not None:
            words += f", {si(report.total.carbon_g, 'g')} CO2e"
            known = report.total.carbon_share
            words += f" for {percent(known)} of it" if known is not None and known < 1 else ""
        yield f"{words}."
    silent = [state for state in report.states if state.is_silent]
    devices = counted(report.total.series, "device")
    yield f"{devices} on {counted(len(report.states), 'host')}, {len(silent):,} of them silent."


def tables(report: FleetReport) -> Iterator[Section]:
    """Yield the sections with a table; those without a row are left out."""
    for key, spend in report.divided:
        rest = [] if spend.rest is None else _spend_rows(UNALLOCATED, spend.rest, report.total)
        yield _spend_table(_KEYS.get(key, key), spend.parts, report.total, rest)
    yield _spend_table("GPU model", report.gpu_models, report.total, [])
    yield from _idle(report)
    for basis, title in (
        ("serving", "Cost of production, idle time included"),
        ("probe", "Cost of an inference on an otherwise idle device"),
    ):
        found = [one for one in report.unit_costs if one.basis == basis]
        if found:
            yield _unit_costs(title, found)
    yield from _hosts(report)


def _spend_table(
    key: str, parts: Sequence[FleetSpend], total: FleetSpend, rest: list[tuple[str, ...]]
) -> Section:
    rows = [
        row
        for part in parts[:ROWS_MAX]
        for row in _spend_rows(" ".join(part.group) or "-", part, total)
    ]
    left = len(parts) - ROWS_MAX
    note = f"The {ROWS_MAX} largest; {left:,} more." if left > 0 else ""
    heads = (key, "cost", "share", "idle", "kWh")
    return _section(f"Spend by {key}", note, heads, (*rows, *rest))


def _section(title: str, note: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Section:
    return Section(title, tables=[Table(heads, rows, caption=note)])


def _spend_rows(name: str, part: FleetSpend, total: FleetSpend) -> list[tuple[str, ...]]:
    totals = {one.currency: one.cost for one in total.costs}
    return [cells[:5] for cells in spend_cells(name, part, totals)]


def _idle(report: FleetReport) -> Iterator[Section]:
    """Yield the hosts whose idle time costs most, as an amount for a month."""
    idle = [host for host in report.hosts if idle_cost(host) > 0][:ROWS_MAX]
    months = MONTH_H / hours_of(report.period)
    rows = tuple(
        (
            " ".join(host.group),
            money(idle_cost(host) * months, one.currency),
            percent(one.idle_share or 0.0),
            cents(one.cost, one.currency),
            "-" if host.coverage is None else percent(host.coverage),
        )
        for host in idle
        for one in host.costs[:1]
    )
    if rows:
        note = (
            f"The cost of idle time in the period, for a month of {MONTH_H} h: what fewer devices for"
            " the same work could save at most."
        )
        heads = ("host", "idle cost a month", "idle", "cost", "covered")
        yield _section("Where idle time costs most", note, heads, rows)


def _unit_costs(title: str, found: Sequence[FleetUnitCost]) -> Section:
    scale = common_scale(one.cost_per_inference for one in found)
    heads = (
        "model",
        f"per {scale_words(scale, 'inference')}",
        "per million tokens in",
        "per million tokens out",
        "idle",
    )
    rows = tuple(
        (
            one.model,
            price_cell(one.cost_per_inference, one.currency, scale),
            price_cell(one.cost_per_million_tokens_in, one.currency),
            price_cell(one.cost_per_million_tokens_out, one.currency),
            "-" if one.idle_share is None else percent(one.idle_share),
        )
        for one in found[: 2 * ROWS_MAX]
    )
    return _section(title, "", heads, rows)


def _hosts(report: FleetReport) -> Iterator[Section]:
    """Yield the hosts that need attention."""
    found = [one for one in report.states if one.is_silent or one.faults or one.firing]
    rows = tuple(
        (
            one.host,
            f"silent for {ago((report.period.end_ns - one.newest_ns) / 1e9)}"
            if one.is_silent
            else "reporting",
            f"{one.faults:,}",
            f"{one.firing:,}",
            one.version,
        )
        for one in found[:ROWS_MAX]
    )
    if rows:
        left = len(found) - ROWS_MAX
        note = f"The first {ROWS_MAX}; {left:,} more." if left > 0 else ""
        heads = ("host", "state", "faults", "firing incidents", "version")
        yield _section("Hosts that need attention", note, heads, rows)
