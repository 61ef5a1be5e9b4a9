"""`costprobe fleet` spend, savings, forecast, compare and status: what all devices cost, and the hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Final

import click

from costprobe.core.money import money
from costprobe.core.outside import one_line
from costprobe.core.periods import HOUR_NS, PeriodKind, TimeSpan, period_at
from costprobe.core.units import counted, percent
from costprobe.fleet.answers import FleetAnswers
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
from costprobe.spend.settings import HISTORY_HOURS
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.fleet_options import (
    FleetKey,
    FleetOptions,
    fleet_config,
    fleet_options,
    require_rows,
)
from costprobe.ui.cli.support.option_types import FiniteRange, Timespan
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import bad_input
from costprobe.ui.cli.views import fleet_tables
from costprobe.ui.cli.views.fleet_tables import FORECAST_HEADS, forecast_lines
from costprobe.ui.fleet_documents import compare_document, forecast_document, spend_document
from costprobe.ui.text import local


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet spend --since 30d --by service  # what each service cost on all hosts",
        "costprobe fleet spend --by label:team --csv  # a spreadsheet of the spend by team",
    ),
)
@click.option(
    "--by",
    type=FleetKey("host", "device", "gpu_model", "model", "service", "tenant"),
    help="What the spend is divided by (default: the total only).",
)
@fleet_options(since="30d")
def spend(
    options: FleetOptions,
    *,
    by: str | None,
) -> None:
    """Show what all devices cost in a period: money, energy, emissions and idle share.

    `model` is the served model, `gpu_model` the product name of the GPU. Two currencies are never
    added. The period begins and ends with whole five minutes, of more than 2.5 days with whole hours;
    "covered" is the share of these that have rows, over the devices that had a row in the period.
    """
    with options.answers() as answers:
        found = fleet_spend(answers, by or "")
    options.echo(
        answers,
        spend_document(found, by or ""),
        (fleet_tables.SPEND_HEADS, fleet_tables.spend_cells(found)),
        _spend_lines(found, by or "", answers),
    )


def _spend_lines(found: SpendByKey, by: str, answers: FleetAnswers) -> Iterator[str]:
    require_rows(found.total.costs, answers)
    period, devices = answers.period, counted(found.total.series, "device")
    yield f"{local(period.start_ns)} to {local(period.end_ns)}, {devices}"
    yield from fleet_tables.spend_lines(found, by)
    if by and not found.parts:
        echo(f"no rows with a {by}", "note", err=True)


_SAVINGS_HEADS: Final = tuple(field.name for field in fields(FleetSaving))


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet savings  # spare GPUs of each model, and what they cost a month",
        "costprobe fleet savings --by label:team --utilization 50  # with more room for peaks",
    ),
)
@click.option(
    "--by",
    type=FleetKey("gpu_model", "host"),
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
    cells = [
        [" ".join(one.group), *(document[head] for head in _SAVINGS_HEADS[1:])]
        for one, document in zip(found, documents, strict=True)
    ]
    target = {"by": by, "utilization_target_share": target_pct / 100}
    lines = _savings_lines(found, by, answers)
    options.echo(answers, {**target, "groups": documents}, (_SAVINGS_HEADS, cells), lines)


def _savings_lines(found: Sequence[FleetSaving], by: str, answers: FleetAnswers) -> Iterator[str]:
    require_rows(found, answers, "device with a cost and a utilization")
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
        "costprobe fleet forecast  # spend of this month up to now, and at its end",
        "costprobe fleet forecast --period quarter --amount 250000  # whether a budget will be exceeded",
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

    The forecast is that of `costprobe budget`: the robust rate of each hour of the week, over the
    last eight weeks. Gaps are not extrapolated.
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
        (FORECAST_HEADS, ([one[head] for head in FORECAST_HEADS] for one in documents)),
        _forecast_lines(
            found, period, answers, amount, f"rows in {currency}" if currency else "rows"
        ),
        [("exceeded", "bad")],
    )


def _forecast_lines(
    found: Sequence[FleetForecast],
    period: TimeSpan,
    answers: FleetAnswers,
    amount: float | None,
    wanted: str,
) -> Iterator[str]:
    require_rows(found, answers, wanted)
    yield from forecast_lines(found, period, answers.period.end_ns, amount)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet compare --by gpu_model  # each model's cost per inference by GPU model",
        "costprobe fleet compare --by label:cloud --since 30d  # the same by cloud, a label of the hosts",
    ),
)
@click.option(
    "--by",
    type=FleetKey("model", "gpu_model", "host", "service", *SOFTWARE),
    metavar="KEY",
    default="model",
    show_default=True,
    help="Compare models only (model), or each by gpu_model, host, service,"
    f" {', '.join(SOFTWARE)} or label:NAME.",
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
    """
    with options.answers() as answers:
        found = fleet_unit_costs(answers, by)
    heads = fleet_tables.COMPARE_HEADS
    rows = ([getattr(one, head) for head in heads] for one in found)
    lines = _compare_lines(found, by, answers)
    options.echo(answers, {"by": by, "models": compare_document(found)}, (heads, rows), lines)


def _compare_lines(found: Sequence[FleetUnitCost], by: str, answers: FleetAnswers) -> Iterator[str]:
    require_rows(found, answers)
    yield from fleet_tables.compare_lines(found, by)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet status  # hosts, silent ones first, with versions, faults and incidents",
        "costprobe fleet status --by label:rack --since 30d  # hosts of each rack that were seen in 30 days",
    ),
)
@click.option(
    "--by",
    type=FleetKey("host"),
    default="host",
    show_default=True,
    help="List hosts, or groups by a label.",
)
@click.option(
    "--silent-after",
    "silent_after_s",
    type=Timespan(),
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
    heads = [field.name for field in fields(HostState)]
    options.echo(
        answers,
        {
            "by": by,
            "hosts": len(states),
            "silent": sum(state.is_silent for state in states),
            "versions": {v: sum(s.version == v for s in states) for v in versions},
            "groups": fleet_tables.status_groups(states) if label else [],
            "states": [asdict(state) for state in states],
        },
        (heads, (list(asdict(one).values()) for one in states)),
        _status_lines(states, label, answers),
        [("silent for", "bad")],
    )


def _status_lines(states: Sequence[HostState], label: str, answers: FleetAnswers) -> Iterator[str]:
    require_rows(states, answers)
    yield from fleet_tables.status_lines(states, label, answers.period.end_ns)
