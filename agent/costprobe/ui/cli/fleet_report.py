"""`costprobe report --fleet`: the cost of all hosts in a period, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from costprobe.fleet.report import FleetReport, fleet_report
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fleet_options import (
    echo_problems,
    fleet_answers,
    fleet_config,
    fleet_key,
    require_rows,
)
from costprobe.ui.cli.support.option_types import LABEL, MOMENT, since_option
from costprobe.ui.cli.support.output import echo, echo_file, echo_json, replace_file
from costprobe.ui.fleet_documents import compare_document, head_of, part_document


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe report --fleet --out fleet.html  # the last 30 days of all hosts as one HTML file",
        "costprobe report --fleet --since 7d --by label:team --format md  # the last week as Markdown",
    ),
)
@since_option("30d")
@click.option("--until", "until_ns", type=MOMENT, help='"1h" or a date (default: a minute ago).')
@click.option("--by", "label", type=fleet_key(), help="Divide spend by a label, too.")
@LABEL
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md", "json"]),
    help="Default: by the suffix of --out, else md.",
)
@click.option(
    "--out",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; default: standard output.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_obj
def report(  # noqa: PLR0913 - an option each
    config: str | None,
    *,
    since_ns: int,
    until_ns: int | None,
    label: str | None,
    labels: Sequence[tuple[str, str]],
    form: str | None,
    file: Path | None,
    as_json: bool,
) -> None:
    """Write a report of all hosts: spend and its change, idle time, unit costs, silent hosts.

    It compares with the period of equal length before, if rows cover nine tenths of both. As HTML it is
    one self-contained file without external requests.
    """
    with fleet_answers(config, since_ns, until_ns, labels) as answers:
        found = fleet_report(answers, fleet_config(config).silent_after_s, label or "")
    require_rows(found.total.costs, answers)
    chosen = "json" if as_json else form or _form_of(file)
    if chosen == "json":
        echo_json({**head_of(answers), **_document(found)})
        return
    from costprobe.ui.report import formats  # noqa: PLC0415 - only a page pays for it
    from costprobe.ui.report.fleet import fleet_document  # noqa: PLC0415 - as above

    form_of = formats.page if chosen == "html" else formats.markdown
    text = form_of(fleet_document(found))
    if file is None:
        echo_file(text.splitlines())
    else:
        replace_file(file, text)
        echo(f"{file}: {len(text.encode()):,} bytes", err=True)
    echo_problems(answers)


def _form_of(file: Path | None) -> str:
    return "html" if file is not None and file.suffix.lower() in (".html", ".htm") else "md"


def _document(found: FleetReport) -> dict[str, Any]:
    return {
        "total": part_document(found.total),
        "before": None if found.before is None else part_document(found.before),
        "divided": [
            {
                "by": key,
                "parts": [part_document(part) for part in spend.parts],
                "rest": None if spend.rest is None else part_document(spend.rest)["costs"],
            }
            for key, spend in found.divided
        ],
        "gpu_models": [part_document(part) for part in found.gpu_models],
        "hosts": [part_document(part) for part in found.hosts],
        "models": compare_document(found.unit_costs),
        "states": [asdict(state) for state in found.states],
    }
