"""`costprobe fleet savings`: devices that a fleet could do without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import click

from costprobe.core.money import money
from costprobe.core.outside import one_line
from costprobe.core.units import percent
from costprobe.fleet.spend import FleetSaving, fleet_savings
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.fleet_options import (
    FleetKey,
    echo_problems,
    fleet_answers,
    period_options,
    require_rows,
)
from costprobe.ui.cli.support.option_types import FiniteRange
from costprobe.ui.cli.support.output import echo_file, echo_json, echo_lines
from costprobe.ui.cli.views.fleet_tables import csv_lines
from costprobe.ui.fleet_documents import head_of

_HEADS: Final = (
    "group",
    "currency",
    "devices",
    "utilization_share",
    "spare",
    "cost_per_month",
    "saving_per_month",
)


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
@period_options(since="30d")
@click.pass_obj
def savings(  # noqa: PLR0913 - an option each
    config: str | None,
    *,
    by: str,
    target_pct: float,
    since_ns: int,
    until_ns: int | None,
    labels: Sequence[tuple[str, str]],
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show how many devices the same work would not need at a higher utilization, and their cost.

    It assumes that work may move between the devices of a group, and scales with utilization. The mean
    hides peaks: choose the utilization for them. `costprobe savings` compares prices of one host.
    """
    with fleet_answers(config, since_ns, until_ns, labels) as answers:
        found = fleet_savings(answers, by, target_pct / 100)
    documents = [_document(one) for one in found]
    if as_json:
        target = {"by": by, "utilization_target_share": target_pct / 100}
        echo_json({**head_of(answers), **target, "groups": documents})
        return
    if as_csv:
        cells = (
            [" ".join(one.group), *(document[head] for head in _HEADS[1:])]
            for one, document in zip(found, documents, strict=True)
        )
        echo_file(csv_lines(_HEADS, cells))
    else:
        require_rows(found, answers, "device with a cost and a utilization")
        echo_lines(_lines(found, by))
    echo_problems(answers)


def _document(one: FleetSaving) -> dict[str, object]:
    document = {**asdict(one), "group": list(one.group), "currency": one.currency or None}
    document["utilization_share"] = document.pop("utilization")
    return document


def _lines(found: Sequence[FleetSaving], by: str) -> list[str]:
    heads = (by, "devices", "utilization", "spare", "cost a month", "of it spare")
    rows = [
        (
            one_line(" ".join(one.group)) or "-",
            f"{one.devices:,}",
            percent(one.utilization),
            f"{one.spare:,}",
            money(one.cost_per_month, one.currency),
            money(one.saving_per_month, one.currency),
        )
        for one in found
    ]
    return table_lines([heads, *rows])
