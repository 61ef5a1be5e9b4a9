"""`costprobe report`: a cost report of a period."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from costprobe.core.schema import RUN_FIELDS
from costprobe.savings.gather import history_of
from costprobe.spend.evaluate import SpendBooks
from costprobe.spend.now import host_months
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.command_prices import (
    echo_notes,
    plans_of,
    savings_sections,
    stored_prices,
)
from costprobe.ui.cli.support.known_names import unknown_name
from costprobe.ui.cli.support.option_types import FLEET_OPTION, UNTIL_OPTION, since_option
from costprobe.ui.cli.support.output import echo, replace_file
from costprobe.ui.cli.support.place import Settings, nothing_since, reader_of, span_of
from costprobe.ui.report.gather import Period, ReportSources, report_of
from costprobe.ui.report.model import Report

FORMS = ("html", "md", "csv", "json")


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe report --out report.html  # the last 30 days as one HTML file",
        "costprobe report --since 7d --format md  # the last week as Markdown",
        "costprobe report --by team  # spend by the label team of services and probes",
    ),
)
@since_option("30d")
@UNTIL_OPTION
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Default: by the suffix of --out, else html.",
)
@click.option(
    "--out",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; default: standard output.",
)
@click.option(
    "--plans",
    "plans_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file of [[price]] tables: prices on offer.",
)
@click.option(
    "--by",
    "label",
    default="",
    metavar="LABEL",
    help="Divide spend by this label of services, probes or hosts, such as team.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@FLEET_OPTION
@click.pass_obj
def command(  # noqa: PLR0913 - click gives each option as an argument
    config: str | None,
    *,
    since_ns: int,
    until_ns: int | None,
    form: str | None,
    file: Path | None,
    plans_file: Path | None,
    label: str,
    as_json: bool,
) -> None:
    """Write a report: spend, cost per inference by model, changes and causes, savings, prices.

    As HTML it is one self-contained file without external requests.
    """
    now_ns = time.time_ns()
    span = span_of(since_ns, until_ns)
    period = Period(span.start_ns, span.end_ns)
    chosen = "json" if as_json else form or _form_of(file)
    settings = Settings(config)
    plans = plans_of(plans_file) if plans_file else []
    with reader_of(settings) as reader, _without_collection():
        labels = {tag for series in reader.series() for tag in series.tags}
        if label and labels and label not in labels:
            raise unknown_name("label", label, labels)
        runs = reader.columns("probe", since_ns, now_ns, fields=RUN_FIELDS)
        prices = stored_prices(settings)
        sections = savings_sections(settings.config)
        history = history_of(sections, prices, reader, since_ns, plans, runs)
        book = prices.book([device.device for device in history.devices.values()])
        echo_notes(prices)
        planned = settings.config.budget
        books = SpendBooks(planned, settings.config.telemetry.aggregate_s)
        budgets, months = host_months(books, planned, reader, now_ns)
        past = ReportSources(reader, settings.config, history, book, runs)
        report = report_of(past, period, now_ns, budgets, months if until_ns is None else (), label)
    if not (report.spend or report.trends or report.changes or report.models):
        raise nothing_since("row", since_ns)
    text = _rendered(chosen, report)
    if file is None:
        sys.stdout.write(text)
    else:
        replace_file(file, text)
        echo(f"{file}: {len(text.encode()):,} bytes", err=True)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the garbage collector: a report reads 300,000 rows without a cycle, and it would scan them repeatedly.

    Nor does it scan them afterwards, or when the process ends.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _form_of(file: Path | None) -> str:
    ending = "" if file is None else file.suffix.lower().lstrip(".")
    return ending if ending in FORMS else "html"


def _rendered(form: str, report: Report) -> str:
    """Return a report in a format; only a page pays for its templates."""
    if form in ("csv", "json"):
        from costprobe.ui.report.document import document, spreadsheet  # noqa: PLC0415 - explained above

        return spreadsheet(report) if form == "csv" else f"{json.dumps(document(report))}\n"
    from costprobe.ui.report.formats import markdown, page  # noqa: PLC0415 - as above
    from costprobe.ui.report.sections import host_report  # noqa: PLC0415 - as above

    return (page if form == "html" else markdown)(host_report(report))
