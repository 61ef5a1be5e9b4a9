"""`costprobe fleet spend`: what all devices cost in a period."""

from __future__ import annotations

from collections.abc import Sequence

import click

from costprobe.core.units import counted
from costprobe.fleet.spend import fleet_spend
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fleet_options import (
    FleetKey,
    echo_problems,
    fleet_answers,
    period_options,
    require_rows,
)
from costprobe.ui.cli.support.output import (
    echo,
    echo_file,
    echo_json,
    echo_lines,
)
from costprobe.ui.cli.views import fleet_tables
from costprobe.ui.fleet_documents import head_of, spend_document
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
@period_options(since="30d")
@click.pass_obj
def spend(
    config: str | None,
    *,
    by: str | None,
    since_ns: int,
    until_ns: int | None,
    labels: Sequence[tuple[str, str]],
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
        if by and not found.parts:
            echo(f"no rows with a {by}", "note", err=True)
    echo_problems(answers)
