"""Answers of `costprobe fleet` as tables, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from costprobe.core.money import common_scale, money, scale_words
from costprobe.core.outside import csv_cell, one_line
from costprobe.core.periods import TimeSpan
from costprobe.core.records import NS_PER_S, natural
from costprobe.core.units import KWH_J, counted, percent
from costprobe.fleet.hosts import HostState
from costprobe.fleet.spend import FleetForecast, FleetSpend, SpendByKey
from costprobe.fleet.unit_costs import FleetUnitCost
from costprobe.spend.forecast import MIN_HOURS
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.text import ago, joules, local

_REST: Final = "(unallocated)"
_TOTAL: Final = "total"
_HOSTS_MAX: Final = 200


def csv_lines(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a CSV file; an unknown value is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for row in rows:
        writer.writerow(
            [
                "" if cell is None else csv_cell(cell) if isinstance(cell, str) else cell
                for cell in row
            ]
        )
    yield from text.getvalue().splitlines()


# fleet status


def status_summary(states: Sequence[HostState]) -> str:
    """Return one sentence about all hosts."""
    silent = sum(state.is_silent for state in states)
    versions = Counter(state.version or "unknown" for state in states)
    listed = ", ".join(
        f"{one_line(name)} on {number:,}" for name, number in versions.most_common(5)
    )
    return (
        f"{counted(len(states), 'host')}, {silent:,} silent,"
        f" {counted(sum(state.devices for state in states), 'device')},"
        f" {counted(sum(state.faults for state in states), 'fault')},"
        f" {counted(sum(state.firing for state in states), 'firing incident')}; versions: {listed}"
    )


def status_lines(states: Sequence[HostState], label: str, end_ns: int) -> Iterator[str]:
    """Yield the hosts as a table, or the groups of a label."""
    yield status_summary(states)
    if label:
        heads = (label, "hosts", "silent", "devices", "faults", "firing")
        rows = [
            (one_line(str(group["group"])) or "-", *(f"{group[key]:,}" for key in heads[1:]))
            for group in status_groups(states)
        ]
        yield from table_lines([heads, *rows])
        return
    heads = ("host", "version", "newest row", "devices", "faults", "firing")
    shown = [
        (
            one_line(state.host),
            one_line(state.version),
            f"silent for {ago((end_ns - state.newest_ns) / NS_PER_S).removesuffix(' ago')}"
            if state.is_silent
            else f"{ago(max(0.0, (end_ns - state.newest_ns) / NS_PER_S))}",
            f"{state.devices:,}",
            f"{state.faults:,}",
            f"{state.firing:,}",
        )
        for state in states[:_HOSTS_MAX]
    ]
    yield from table_lines([heads, *shown], text_columns=3)
    if len(states) > _HOSTS_MAX:
        yield f"and {counted(len(states) - _HOSTS_MAX, 'more host')}: --json and --csv list all"


def status_groups(states: Sequence[HostState]) -> list[dict[str, Any]]:
    """Return the numbers of the hosts with each value of a label, by its value."""
    groups: dict[str, dict[str, Any]] = {}
    for state in sorted(states, key=lambda state: natural(state.label)):
        group = groups.setdefault(
            state.label,
            {"group": state.label, "hosts": 0, "silent": 0, "devices": 0, "faults": 0, "firing": 0},
        )
        group["hosts"] += 1
        group["silent"] += state.is_silent
        group["devices"] += state.devices
        group["faults"] += state.faults
        group["firing"] += state.firing
    return list(groups.values())


# fleet spend


def spend_lines(spend: SpendByKey, by: str) -> Iterator[str]:
    """Yield the spend as a table with a line for each group and currency."""
    heads = (by or "spend", "cost", "share", "idle", "kWh", "kg CO2e", "covered")
    totals = {one.currency: one.cost for one in spend.total.costs}
    rows = [
        row
        for part in spend.parts
        for row in _spend_rows(one_line(" ".join(part.group)) or "-", part, totals)
    ]
    if spend.rest is not None:
        rows += _spend_rows(_REST, spend.rest, totals)
    rows += _spend_rows(_TOTAL, spend.total, totals)
    yield from table_lines([heads, *rows])
    known = spend.total.carbon_share
    if known is not None and 0 < known < 1:
        yield f"emissions are known of {percent(known)} of the energy"


def _spend_rows(
    name: str, part: FleetSpend, totals: Mapping[str, float]
) -> Iterator[tuple[str, ...]]:
    for number, one in enumerate(part.costs):
        total = totals.get(one.currency, 0.0)
        # Energy is that of the group, whatever its currencies.
        is_first = number == 0
        yield (
            name,
            money(one.cost, one.currency),
            percent(one.cost / total, 1) if total > 0 else "-",
            "-" if one.idle_share is None else percent(one.idle_share),
            _amount(part.energy_j, KWH_J) if is_first else "",
            _amount(part.carbon_g, 1000) if is_first else "",
            "-" if part.coverage is None else percent(part.coverage) if is_first else "",
        )


def _amount(value: float | None, unit: float) -> str:
    return (
        "-"
        if value is None
        else f"{value / unit:,.4g}"
        if value < 1e4 * unit
        else f"{value / unit:,.0f}"
    )


SPEND_HEADS: Final = (
    "kind",
    "group",
    "currency",
    "cost",
    "idle_share",
    "energy_j",
    "carbon_g",
    "carbon_share",
    "coverage",
    "series",
)


def spend_cells(spend: SpendByKey) -> Iterator[tuple[object, ...]]:
    """Yield the spend as lines of CSV, one for each group and currency; `kind` distinguishes the total.

    Energy and emissions are those of the group: they stand in the first of its lines.
    """
    kinds = [("group", part) for part in spend.parts]
    kinds += [("rest", spend.rest)] if spend.rest is not None else []
    for kind, part in [*kinds, ("total", spend.total)]:
        for number, one in enumerate(part.costs):
            figures: tuple[object, ...] = (
                (part.energy_j, part.carbon_g, part.carbon_share, part.coverage, part.series)
                if number == 0
                else (None,) * 5
            )
            group = " ".join(part.group)
            yield kind, group, one.currency, one.cost, one.idle_share, *figures


# fleet compare


COMPARE_HEADS: Final = tuple(field.name for field in fields(FleetUnitCost))


def compare_lines(found: Sequence[FleetUnitCost], by: str) -> Iterator[str]:
    """Yield the unit costs as one table for each basis."""
    for basis, words in (
        ("serving", "production, idle time included: sums of costs over sums of counts"),
        ("probe", "probes on an otherwise idle device: median over the devices"),
    ):
        of_basis = [one for one in found if one.basis == basis]
        if not of_basis:
            continue
        yield f"{basis}: {words}"
        scale = common_scale(one.cost_per_inference for one in of_basis)
        heads = (
            "model",
            by,
            f"per {scale_words(scale)}",
            "M tokens in",
            "M tokens out",
            "J",
            "idle",
            _COUNTED[basis],
        )
        rows = [
            (
                one_line(one.model),
                one_line(one.group) or "-",
                _price(one.cost_per_inference, one.currency, scale),
                _price(one.cost_per_million_tokens_in, one.currency),
                _price(one.cost_per_million_tokens_out, one.currency),
                "-" if one.energy_per_inference_j is None else joules(one.energy_per_inference_j),
                "-" if one.idle_share is None else percent(one.idle_share),
                f"{one.series:,}",
            )
            for one in of_basis
        ]
        table: list[tuple[str, ...]] = [heads, *rows]
        if by == "model":
            table = [(row[0], *row[2:]) for row in table]
        yield from table_lines(table, text_columns=1 if by == "model" else 2)
        if _has_uncounted_currency(of_basis):
            yield (
                "no unit costs of a model that is paid in several currencies: this database counts requests"
                " without the currency; divide them with --by host or --label"
            )


def _has_uncounted_currency(found: Iterable[FleetUnitCost]) -> bool:
    """Return whether a model has no unit costs in several currencies."""
    unpriced = Counter(
        (one.model, one.group)
        for one in found
        if one.cost_per_inference is None and one.cost_per_request is None
    )
    return any(currencies > 1 for currencies in unpriced.values())


_COUNTED: Final = {"serving": "hosts", "probe": "devices"}


def _price(price: float | None, currency: str, units: int = 1) -> str:
    return "-" if price is None else money(price * units, currency)


FORECAST_HEADS: Final = (
    "currency",
    "spent",
    "coverage",
    "forecast",
    "forecast_low",
    "forecast_high",
    "history_h",
    "left_out_h",
)


def forecast_lines(
    found: Sequence[FleetForecast], period: TimeSpan, end_ns: int, amount: float | None
) -> Iterator[str]:
    """Yield the spend of a period with its forecast, one line for each currency.

    Args:
        found: The forecasts.
        period: The period.
        end_ns: UTC in ns up to which rows count.
        amount: Planned amount of the only currency; None without one.
    """
    elapsed = percent(period.elapsed_share(end_ns))
    yield f"{local(period.start_ns)} to {local(period.end_ns)}, {elapsed} elapsed"
    heads = ("currency", "spent", "covered", "forecast", "80 % interval")
    rows = [
        (
            one.currency or "-",
            money(one.spent, one.currency),
            "-" if one.coverage is None else percent(one.coverage),
            "-" if one.expected is None else money(one.expected, one.currency),
            "-"
            if one.low is None or one.high is None
            else f"{money(one.low, one.currency)} to {money(one.high, one.currency)}",
        )
        for one in found
    ]
    yield from table_lines([heads, *rows])
    for one in found:
        if one.remaining is None:
            yield f"{one.currency}: a forecast needs {MIN_HOURS} h of cost data"
        else:
            yield f"{one.currency}: {one.remaining.method}, from {one.remaining.hours:,} h"
        if one.left_out:
            hours = counted(one.left_out, "hour")
            yield f"{one.currency}: {hours} with rows of less than half of the devices left out"
        if amount is not None:
            yield f"{money(amount, one.currency)} planned: {one.verdict(amount) or 'within it'}"
