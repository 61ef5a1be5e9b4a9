"""`costprobe fleet status`: the hosts that sent rows, silent ones first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

import click

from costprobe.fleet.hosts import HostState, fleet_status
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fleet_options import (
    FleetKey,
    echo_problems,
    fleet_answers,
    fleet_config,
    period_options,
    require_rows,
)
from costprobe.ui.cli.support.option_types import Timespan
from costprobe.ui.cli.support.output import echo_file, echo_json, echo_lines
from costprobe.ui.cli.views import fleet_tables
from costprobe.ui.fleet_documents import head_of


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
@period_options(since="7d")
@click.pass_obj
def status(  # noqa: PLR0913 - an option each
    config: str | None,
    *,
    by: str,
    silent_after_s: float | None,
    since_ns: int,
    until_ns: int | None,
    labels: Sequence[tuple[str, str]],
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
