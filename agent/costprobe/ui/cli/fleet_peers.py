"""`costprobe fleet outliers` and `fleet change`: GPUs against their peers, and hosts before and after an update."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import click

from costprobe.core.records import SOFTWARE_TAGS
from costprobe.core.units import counted
from costprobe.fleet.answers import FleetAnswers
from costprobe.fleet.outliers import fleet_outliers
from costprobe.fleet.peers import FleetOutliers
from costprobe.fleet.rollouts import aligned, fleet_changes, hosts_with
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fleet_options import (
    FleetKey,
    FleetOptions,
    fleet_options,
    require_rows,
)
from costprobe.ui.cli.support.option_types import Timespan
from costprobe.ui.cli.support.place import bad_input
from costprobe.ui.cli.views import peer_tables
from costprobe.ui.fleet_documents import outliers_document
from costprobe.ui.text import local


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet outliers --within label:rack  # GPUs slower or hungrier than peers in their rack",
        "costprobe fleet outliers --since 24h --json  # the same of a day, for a program",
    ),
)
@click.option(
    "--within",
    type=FleetKey(),
    multiple=True,
    help="Compare within the values of this label, such as a cooling row or a lot; may be repeated.",
)
@fleet_options(since="7d")
def outliers(
    options: FleetOptions,
    *,
    within: Sequence[str],
) -> None:
    """Find GPUs that are slower or hungrier than their peers, with cause and cost.

    Peers have the same GPU model, probe, batch, execution mode and software. The levels of hosts, of
    slots and of `--within` are removed; a host all of whose GPUs deviate is listed as one. Listed is
    what is at least 2 % above its peers, at a nominal false discovery rate of 5 %.
    """
    with options.answers() as answers:
        found = fleet_outliers(answers, within)
    options.echo(
        answers,
        outliers_document(found, within),
        (peer_tables.OUTLIER_HEADS, peer_tables.outlier_cells(found)),
        _outlier_lines(found, within, answers),
    )


def _outlier_lines(
    found: FleetOutliers, within: Sequence[str], answers: FleetAnswers
) -> Iterator[str]:
    require_rows(range(found.tested + found.untested + found.updated), answers, "probe runs")
    yield from peer_tables.outlier_lines(found, within)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet change driver --since 30d  # what driver updates did to cost",
        "costprobe fleet change label:release --within label:rack  # the same of a label, within racks",
    ),
)
@click.argument("key", type=FleetKey(*SOFTWARE_TAGS))
@click.option(
    "--window",
    "window_s",
    type=Timespan(),
    default="24h",
    show_default=True,
    help="Time before and after a change that is compared.",
)
@click.option("--within", type=FleetKey(), help="Compare only hosts with the same value.")
@fleet_options(since="14d")
def change(
    options: FleetOptions,
    *,
    key: str,
    window_s: float,
    within: str | None,
) -> None:
    """Estimate what a change of software did to cost, time and energy on all hosts.

    Each host that changed is compared, around its own change, with hosts that had not changed yet
    (difference in differences), with an interval of 95 %.
    """
    with options.answers() as answers:
        try:
            answers.period = aligned(answers.period, window_s)
        except ValueError as error:
            raise bad_input(f"--since: {error}, {window_s / 3600:g} h each") from error
        found = fleet_changes(answers, key, within or "")
        hosts = () if found else hosts_with(answers, key)
    documents = [peer_tables.change_document(one) for one in found]
    options.echo(
        answers,
        {"key": key, "window_s": window_s, "changes": documents},
        (peer_tables.CHANGE_HEADS, peer_tables.change_cells(found)),
        peer_tables.change_lines(found) if found else _unchanged_lines(key, hosts, answers),
    )


def _unchanged_lines(key: str, hosts: Collection[str], answers: FleetAnswers) -> Iterator[str]:
    require_rows(hosts, answers, f"rows with a {key}")
    since = local(answers.period.start_ns)
    yield f"no host changed its {key} since {since}, of {counted(len(hosts), 'host')}"
