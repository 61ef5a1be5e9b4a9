"""Spend, savings, forecast, unit costs and status of all hosts: the commands of these names with --fleet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

import click

from costprobe.core.money import cents, common_scale, money, per_words
from costprobe.core.outside import one_line
from costprobe.core.periods import HOUR_NS, PeriodKind, TimeSpan, period_at
from costprobe.core.records import NS_PER_S, natural
from costprobe.core.slo import SloShare, slo_words
from costprobe.core.units import counted, percent
from costprobe.fleet.answers import FleetPeriod
from costprobe.fleet.group_rows import GROUP
from costprobe.fleet.groups import FleetGroup, fleet_groups
from costprobe.fleet.hosts import HostState, fleet_status
from costprobe.fleet.spend import (
    FleetForecast,
    FleetSaving,
    SpendByKey,
    fleet_forecast,
    fleet_savings,
    fleet_spend,
)
from costprobe.fleet.unit_costs import SOFTWARE, FleetUnitCost, fleet_unit_costs
from costprobe.spend.forecast import MIN_HOURS
from costprobe.spend.settings import HISTORY_HOURS
from costprobe.ui.amounts import si, si_column
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.fleet_options import (
    FleetOptions,
    fleet_config,
    fleet_key,
    fleet_options,
)
from costprobe.ui.cli.support.option_types import TIMESPAN, FiniteRange
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import bad_input
from costprobe.ui.fleet_documents import (
    compare_document,
    forecast_document,
    group_document,
    part_document,
    price_cell,
    spend_cells,
    spend_document,
)
from costprobe.ui.text import ago, forecast_cells, local, unmeasured_words


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe spend --fleet --since 30d --by service  # what each service cost on all hosts",
        "costprobe spend --fleet --by label:team --csv  # a spreadsheet of the spend by team",
    ),
)
@click.option(
    "--by",
    type=fleet_key("host", "device", "gpu_model", "model", "service", "group", "tenant"),
    help="What the spend is divided by (default: the total only).",
)
@fleet_options(since="30d")
def spend(
    options: FleetOptions,
    *,
    by: str | None,
) -> None:
    """Show what all devices cost in a period: money, energy, emissions, and what of it was unused.

    `model` is the served model, `gpu_model` the product name of the GPU, `group` the service of several
    hosts that a service belongs to. Two currencies are never
    added. The period begins and ends with whole five minutes, of more than 2.5 days with whole hours;
    "covered" is the share of these that have rows, over the devices that had a row in the period.
    """
    with options.answers() as answers:
        found = fleet_spend(answers, by or "")
    options.echo(
        answers,
        spend_document(found, "group" if by == GROUP else by or ""),
        (SPEND_HEADS, spend_rows(found)),
        spend_lines(found, by or "", answers.period),
        shown=found.total.costs,
    )


_SAVINGS_HEADS: Final = tuple(field.name for field in fields(FleetSaving))


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe savings --fleet  # spare GPUs of each model, and what they cost a month",
        "costprobe savings --fleet --by label:team --utilization 50  # with more room for peaks",
    ),
)
@click.option(
    "--by",
    type=fleet_key("gpu_model", "host"),
    default="gpu_model",
    show_default=True,
    help="Groups of devices between which work may move.",
)
@click.option(
    "--utilization",
    "target_pct",
    type=FiniteRange(1, 100),
    default=70.0,
    show_default=True,
    help="Mean utilization that devices may reach, in percent; the rest is for peaks.",
)
@fleet_options(since="30d")
def savings(
    options: FleetOptions,
    *,
    by: str,
    target_pct: float,
) -> None:
    """Show how many devices the same work would not need at a higher utilization, and their cost.

    It assumes that work may move between the devices of a group, and scales with utilization. The mean
    hides peaks: choose the utilization for them. `costprobe savings` compares prices of one host.
    """
    with options.answers() as answers:
        found = fleet_savings(answers, by, target_pct / 100)
    documents = [
        {**asdict(one), "group": list(one.group), "currency": one.currency or None} for one in found
    ]
    options.echo(
        answers,
        {"by": by, "utilization_target_share": target_pct / 100, "groups": documents},
        (_SAVINGS_HEADS, documents),
        _savings_lines(found, by),
        shown=found,
        wanted="device with a cost and a utilization",
    )


def _savings_lines(found: Sequence[FleetSaving], by: str) -> Iterator[str]:
    heads = (by, "devices", "utilization", "spare", "cost a month", "of it spare")
    rows = [
        (
            one_line(" ".join(one.group)) or "-",
            f"{one.devices:,}",
            percent(one.utilization_share),
            f"{one.spare:,}",
            money(one.cost_per_month, one.currency),
            money(one.saving_per_month, one.currency),
        )
        for one in found
    ]
    yield from table_lines([heads, *rows])


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe forecast --fleet  # spend of this month up to now, and at its end",
        "costprobe forecast --fleet --period quarter --amount 250000  # whether a budget will be exceeded",
    ),
)
@click.option(
    "--period",
    "kind",
    type=click.Choice(["day", "month", "quarter", "year"]),
    default="month",
    show_default=True,
    help="The calendar period that is forecast.",
)
@click.option("--timezone", default="UTC", show_default=True, help="Its time zone, by IANA name.")
@click.option("--amount", type=FiniteRange(min=0), help="Planned amount, in the currency.")
@click.option("--currency", help="Only the spend in this currency, such as EUR.")
@fleet_options()
def forecast(
    options: FleetOptions,
    *,
    kind: PeriodKind,
    timezone: str,
    amount: float | None,
    currency: str | None,
) -> None:
    """Show the spend of this month, and forecast it to its end with an 80 % interval.

    Each hour to come is expected to cost the median of the same hour of the week, over the last
    eight weeks, as in `costprobe budget`. Gaps are not extrapolated.
    """
    now_ns = time.time_ns()
    try:
        period = period_at(kind, timezone, now_ns // HOUR_NS * HOUR_NS - 1)
    except (KeyError, ValueError, OSError) as error:
        raise bad_input(
            f"--timezone: {timezone!r} is no time zone, such as Europe/Berlin"
        ) from error
    since_ns = min(period.start_ns, now_ns - HISTORY_HOURS * HOUR_NS)
    spanned = options._replace(since_ns=since_ns, until_ns=now_ns)
    with spanned.answers() as answers:
        found = [
            one
            for one in fleet_forecast(answers, period, timezone)
            if currency in (None, one.currency)
        ]
    if amount is not None and len(found) > 1:
        raise bad_input("--amount: the fleet is paid in several currencies; add --currency")
    documents = [forecast_document(one, amount) for one in found]
    span = {"period_start_ns": period.start_ns, "period_end_ns": period.end_ns}
    options.echo(
        answers,
        {"period": kind, **span, "currencies": documents},
        (FORECAST_HEADS, documents),
        forecast_lines(found, period, answers.period.end_ns, amount),
        [("exceeded", "bad")],
        shown=found,
        wanted=f"rows in {currency}" if currency else "rows",
    )


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe compare --fleet --by gpu_model  # each model's cost per inference by GPU model",
        "costprobe compare --fleet --by label:cloud --since 30d  # the same by cloud, a label of the hosts",
        "costprobe compare --fleet --by group --since 24h  # services of several hosts, such as prefill and decode",
    ),
)
@click.option(
    "--by",
    type=fleet_key("model", "gpu_model", "host", "service", "group", *SOFTWARE),
    metavar="KEY",
    default="model",
    show_default=True,
    help="Compare models only (model), or each by gpu_model, host, service,"
    f" {', '.join(SOFTWARE)} or label:NAME; or services of several hosts (group).",
)
@fleet_options(since="7d")
def compare(
    options: FleetOptions,
    *,
    by: str,
) -> None:
    """Compare the cost per inference and per million tokens over all hosts.

    By model, and by GPU model, host, the software of probes, or any label, such as cloud. Probe and
    production costs, and different currencies, are never compared with each other.

    By group, each service of several hosts: the cost of its members, and what they count once, over the
    whole hours in which all of its parts have a cost; and the change against the same hours before.
    """
    if by == GROUP:
        _compare_groups(options)
        return
    with options.answers() as answers:
        found = fleet_unit_costs(answers, by)
    models = compare_document(found)
    options.echo(
        answers,
        {"by": by, "models": models, "groups": []},
        ([field.name for field in fields(FleetUnitCost)], models),
        compare_lines(found, by),
        shown=found,
    )


def _compare_groups(options: FleetOptions) -> None:
    with options.answers() as answers:
        period = answers.period
        if period.end_ns - period.start_ns < HOUR_NS:
            raise bad_input("--since: groups are priced by whole hours; ask for at least 1h")
        found = fleet_groups(answers)
    groups = [group_document(one) for one in found]
    lists = ("roles", "slo", "problems")
    options.echo(
        answers,
        {"by": "group", "models": [], "groups": groups},
        ([field.name for field in fields(FleetGroup) if field.name not in lists], groups),
        group_lines(found, period),
        [("no unit cost", "bad"), ("silent since", "bad")],
        shown=found,
        wanted="rows of a [[service]] with a group",
    )


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe status --fleet  # hosts, silent ones first, with versions, faults and incidents",
        "costprobe status --fleet --by label:rack --since 30d  # hosts of each rack that were seen in 30 days",
    ),
)
@click.option(
    "--by",
    type=fleet_key("host"),
    default="host",
    show_default=True,
    help="List hosts, or groups by a label.",
)
@click.option(
    "--silent-after",
    "silent_after_s",
    type=TIMESPAN,
    help="A host without a row for so long is silent (default: `silent_after` of [fleet]).",
)
@fleet_options(since="7d")
def status(
    options: FleetOptions,
    *,
    by: str,
    silent_after_s: float | None,
) -> None:
    """Show the hosts that sent rows in a period: silent ones, versions, faults and incidents.

    A host that sent no row since `--since` is unknown here.
    """
    label = "" if by == "host" else by
    with options.answers(to_the_second=True) as answers:
        if silent_after_s is None:
            silent_after_s = fleet_config(options.config).silent_after_s
        states = fleet_status(answers, silent_after_s, label)
    versions = sorted({state.version for state in states})
    documents = [asdict(state) for state in states]
    options.echo(
        answers,
        {
            "by": by,
            "hosts": len(states),
            "silent": sum(state.is_silent for state in states),
            "versions": {v: sum(s.version == v for s in states) for v in versions},
            "groups": status_groups(states) if label else [],
            "states": documents,
        },
        ([field.name for field in fields(HostState)], documents),
        status_lines(states, label, answers.period.end_ns),
        [("silent for", "bad")],
        shown=states,
    )


_REST: Final = "(unallocated)"
_TOTAL: Final = "total"
_HOSTS_MAX: Final = 200


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
            else ago((end_ns - state.newest_ns) / NS_PER_S),
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


def spend_lines(spend: SpendByKey, by: str, period: FleetPeriod) -> Iterator[str]:
    """Yield the spend of a period as a table with a line for each group and currency."""
    devices = counted(spend.total.series, "device")
    yield f"{local(period.start_ns)} to {local(period.end_ns)}, {devices}"
    unused = "while waiting" if by in ("service", GROUP, "model", "tenant") else "unused"
    by = "group" if by == GROUP else by
    heads = (by or "spend", "cost", "share", unused, "kWh", "kg CO2e", "covered")
    totals = {one.currency: one.cost for one in spend.total.costs}
    rows = [
        row
        for part in spend.parts
        for row in spend_cells(one_line(" ".join(part.group)) or "-", part, totals)
    ]
    if spend.rest is not None:
        rows += spend_cells(_REST, spend.rest, totals)
    rows += spend_cells(_TOTAL, spend.total, totals)
    yield from table_lines([heads, *rows])
    known = spend.total.carbon_share
    if known is not None and 0 < known < 1:
        yield f"emissions are known of {percent(known)} of the energy"
    if by and not spend.parts:
        echo(f"no rows with a {by}", "note", err=True)


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


def spend_rows(spend: SpendByKey) -> Iterator[Mapping[str, Any]]:
    """Yield the spend as rows of CSV, one for each group and currency; `kind` distinguishes the total.

    Energy and emissions are those of the group: they stand in the first of its lines.
    """
    kinds = [("group", part) for part in spend.parts]
    kinds += [("rest", spend.rest)] if spend.rest is not None else []
    for kind, part in [*kinds, ("total", spend.total)]:
        document = part_document(part)
        for number, cost in enumerate(document["costs"]):
            own = {"group": document["group"]} if number else document
            yield {"kind": kind, **own, **cost}


# fleet compare


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
        unit, energies = si_column([one.energy_per_inference_j for one in of_basis], "J")
        heads = (
            "model",
            by,
            per_words(scale),
            "M tokens in",
            "M tokens out",
            unit,
            "while waiting",
            _COUNTED[basis],
        )
        rows = [
            (
                one_line(one.model),
                one_line(one.group) or "-",
                price_cell(one.cost_per_inference, one.currency, scale),
                price_cell(one.cost_per_million_tokens_in, one.currency),
                price_cell(one.cost_per_million_tokens_out, one.currency),
                energy,
                "-" if one.idle_share is None else percent(one.idle_share),
                f"{one.series:,}",
            )
            for one, energy in zip(of_basis, energies, strict=True)
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


def group_lines(found: Sequence[FleetGroup], period: FleetPeriod) -> Iterator[str]:
    """Yield the unit costs of groups, their cost by role, transfers, and what is not known."""
    yield f"{local(period.start_ns)} to {local(period.end_ns)}"
    unit_in, joules_in = si_column([one.energy_per_million_tokens_in_j for one in found], "J")
    unit_out, joules_out = si_column([one.energy_per_million_tokens_out_j for one in found], "J")
    heads = (
        *(
            "group",
            "M tokens in",
            "M tokens out",
            "request",
            f"{unit_in}/M in",
            f"{unit_out}/M out",
        ),
        *("while waiting", "SLO", "hours", "24 h", "7 d"),
    )
    rows = [
        (
            one_line(one.group),
            price_cell(one.cost_per_million_tokens_in, one.currency),
            price_cell(one.cost_per_million_tokens_out, one.currency),
            price_cell(one.cost_per_request, one.currency),
            joules_in[number],
            joules_out[number],
            _share_cell(one.idle_share),
            _slo_cell(one.slo),
            f"{one.priced_h:,}",
            _change_cell(one.change_24h_pct),
            _change_cell(one.change_7d_pct),
        )
        for number, one in enumerate(found)
    ]
    yield from table_lines([heads, *rows])
    roles: list[tuple[str, ...]] = [
        (
            one_line(one.group),
            role.role,
            cents(role.cost, one.currency),
            percent(role.cost / one.cost, 1) if one.cost > 0 else "-",
            _share_cell(role.idle_share),
            f"{role.hosts:,}",
            f"{role.devices:,}",
        )
        for one in found
        for role in one.roles
    ]
    if roles:
        of_roles = ("group", "role", "cost", "share", "while waiting", "hosts", "devices")
        yield from table_lines([of_roles, *roles], text_columns=2)
    for one in found:
        name = one_line(one.group)
        if one.kv_transfer_bytes is not None:
            took = (
                "" if one.kv_transfer_s is None else f" in {one.kv_transfer_s:,.0f} s of transfers"
            )
            failed = one.kv_transfer_failures
            took += "" if failed is None else f", {failed:,.0f} failed"
            yield f"{name}: {si(one.kv_transfer_bytes, 'B')} of KV cache transferred{took}"
        for level in one.slo:
            cost = level.cost_per_request_met
            price = "" if cost is None else f"; {price_cell(cost, one.currency)} each within it"
            yield f"{name}: {slo_words(asdict(level))}{price}"
        yield from (f"{name}: {one_line(problem)}" for problem in one.problems)


def _share_cell(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _slo_cell(found: Sequence[SloShare]) -> str:
    if not any(one.requests for one in found):
        return "-"
    return "missed" if any(one.is_missed for one in found) else "met"


def _change_cell(pct: float | None) -> str:
    return "-" if pct is None else f"{pct:+.1f} %"


_COUNTED: Final = {"serving": "hosts", "probe": "devices"}


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
            cents(one.spent, one.currency),
            "-" if one.coverage is None else percent(one.coverage),
            *forecast_cells(one, one.currency),
        )
        for one in found
    ]
    yield from table_lines([heads, *rows])
    for one in found:
        if one.remaining is None:
            yield f"{one.currency}: a forecast needs {MIN_HOURS} h of cost data"
        else:
            yield f"{one.currency}: {one.remaining.method}, from {one.remaining.hours:,} h"
        if words := unmeasured_words(one.coverage, one.currency):
            yield words
        if one.left_out:
            hours = counted(one.left_out, "hour")
            yield f"{one.currency}: {hours} with rows of less than half of the devices left out"
        if amount is not None:
            yield f"{cents(amount, one.currency)} planned: {one.verdict(amount) or 'within it'}"
