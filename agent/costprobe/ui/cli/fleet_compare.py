"""`costprobe fleet compare`: unit costs over all hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from costprobe.fleet.unit_costs import SOFTWARE, fleet_unit_costs
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fleet_options import (
    FleetKey,
    echo_problems,
    fleet_answers,
    period_options,
    require_rows,
)
from costprobe.ui.cli.support.output import echo_file, echo_json, echo_lines
from costprobe.ui.cli.views import fleet_tables
from costprobe.ui.fleet_documents import compare_document, head_of


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
@period_options(since="7d")
@click.pass_obj
def compare(
    config: str | None,
    *,
    by: str,
    since_ns: int,
    until_ns: int | None,
    labels: Sequence[tuple[str, str]],
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
