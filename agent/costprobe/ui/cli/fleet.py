"""`costprobe fleet`: the same questions over all hosts, answered by the database they push to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import click

from costprobe.app.fleet.spend import fleet_spend
from costprobe.app.fleet.status import HostState, fleet_status
from costprobe.app.fleet.unit_costs import SOFTWARE, fleet_unit_costs
from costprobe.core.units import counted
from costprobe.ui.cli.fleet_dashboard import dashboard
from costprobe.ui.cli.fleet_forecast import forecast
from costprobe.ui.cli.fleet_peers import change, outliers
from costprobe.ui.cli.fleet_report import report
from costprobe.ui.cli.fleet_savings import savings
from costprobe.ui.cli.fleet_watch import watch
from costprobe.ui.cli.support.examples import ExampleGroup
from costprobe.ui.cli.support.fleet_options import (
    FleetKey,
    echo_problems,
    fleet_answers,
    fleet_config,
    period_options,
    require_rows,
)
from costprobe.ui.cli.support.output import echo_file, echo_json, echo_lines
from costprobe.ui.cli.support.timespan import Timespan
from costprobe.ui.cli.views import fleet_tables
from costprobe.ui.fleet_documents import (
    compare_document,
    head_of,
    spend_document,
)
from costprobe.ui.text import local

_Labels = Sequence[tuple[str, str]]


@click.group(cls=ExampleGroup)
def command() -> None:
    """Ask about all hosts: state, spend, unit costs and forecast.

    The database of [fleet] answers: InfluxDB, VictoriaMetrics or a Prometheus. It aggregates the rows
    itself; nothing is read from the store of this host, and no daemon is needed.
    """


@command.command(
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
@period_options(since="7d")
@click.pass_obj
def status(  # noqa: PLR0913 - an option each
    config: str | None,
    *,
    by: str,
    silent_after_s: float | None,
    since_ns: int,
    until_ns: int | None,
    labels: _Labels,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show the hosts that sent rows in a period: silent ones, versions, faults and incidents.

    A host that sent no row since `--since` is unknown here.
    """
    label = "" if by == "host" else by
    with fleet_answers(config, since_ns, until_ns, labels, to_the_second=True) as answers:
        if silent_after_s is None:
            silent_after_s = fleet_config(config).silent_after_s
        states = fleet_status(answers, silent_after_s, label)
    if as_json:
        versions = sorted({state.version for state in states})
        groups = fleet_tables.status_groups(states) if label else []
        hosts = [asdict(state) for state in states]
        echo_json(
            {
                **head_of(answers),
                "by": by,
                "hosts": len(states),
                "silent": sum(state.is_silent for state in states),
                "versions": {v: sum(s.version == v for s in states) for v in versions},
                "groups": groups,
                "states": hosts,
            }
        )
    elif as_csv:
        heads = [field.name for field in fields(HostState)]
        echo_file(fleet_tables.csv_lines(heads, (list(asdict(one).values()) for one in states)))
        echo_problems(answers)
    else:
        require_rows(states, answers)
        end_ns = answers.period.end_ns
        echo_lines(fleet_tables.status_lines(states, label, end_ns), [("silent for", "bad")])
        echo_problems(answers)


@command.command(
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
@period_options(since="30d")
@click.pass_obj
def spend(
    config: str | None,
    *,
    by: str | None,
    since_ns: int,
    until_ns: int | None,
    labels: _Labels,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show what all devices cost in a period: money, energy, emissions and idle share.

    `model` is the served model, `gpu_model` the product name of the GPU. Two currencies are never
    added. The period begins and ends with whole five minutes, of more than 2.5 days with whole hours;
    "covered" is the share of these that have rows, over the devices that had a row in the period.
    """
    with fleet_answers(config, since_ns, until_ns, labels) as answers:
        found = fleet_spend(answers, by or "")
    if as_json:
        echo_json({**head_of(answers), **spend_document(found, by or "")})
        return
    if as_csv:
        cells = fleet_tables.spend_cells(found)
        echo_file(fleet_tables.csv_lines(fleet_tables.SPEND_HEADS, cells))
    else:
        require_rows(found.total.costs, answers)
        period = answers.period
        devices = counted(found.total.series, "device")
        head = f"{local(period.start_ns)} to {local(period.end_ns)}, {devices}"
        echo_lines([head, *fleet_tables.spend_lines(found, by or "")])
    echo_problems(answers)


@command.command(
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
@period_options(since="7d")
@click.pass_obj
def compare(
    config: str | None,
    *,
    by: str,
    since_ns: int,
    until_ns: int | None,
    labels: _Labels,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Compare the cost per inference and per million tokens over all hosts.

    By model, and by GPU model, host, the software of probes, or any label, such as cloud. Probe and
    production costs, and different currencies, are never compared with each other.
    """
    with fleet_answers(config, since_ns, until_ns, labels) as answers:
        found = fleet_unit_costs(answers, by)
    if as_json:
        costs = compare_document(found)
        echo_json({**head_of(answers), "by": by, "models": costs})
        return
    if as_csv:
        heads = fleet_tables.COMPARE_HEADS
        cells: Iterable[Mapping[str, Any]] = map(asdict, found)
        lines = fleet_tables.csv_lines(heads, ([one[head] for head in heads] for one in cells))
        echo_file(lines)
    else:
        require_rows(found, answers)
        echo_lines(fleet_tables.compare_lines(found, by))
    echo_problems(answers)


command.add_command(forecast)
command.add_command(savings)
command.add_command(report)
command.add_command(outliers)
command.add_command(dashboard)
command.add_command(change)
command.add_command(watch)
