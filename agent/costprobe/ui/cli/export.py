"""`costprobe export`: the stored series."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import click

from costprobe.adapters.store.read import StoreReader, tags_with_period
from costprobe.configuration import Config
from costprobe.core.outside import csv_cell, one_line
from costprobe.core.periods import DAY_NS, HOUR_NS, TimeSpan, iso
from costprobe.core.schema import SCHEMA
from costprobe.spend.charges import period_charges, tenant_charges
from costprobe.spend.query import Usual
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of
from costprobe.ui.cli.support.option_types import Moment
from costprobe.ui.cli.views.focus_csv import COLUMNS, focus_row

ALWAYS_NS = 0
PERIODS_NS = {"hour": HOUR_NS, "day": DAY_NS}


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe export --since 24h  # the last day as line protocol",
        "costprobe export --format csv --measurement probe  # all probe results as CSV",
        "costprobe export --format focus --since 30d  # cost by day, device and service, in FOCUS 1.2",
    ),
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["line", "csv", "json", "focus"]),
    default="line",
    show_default=True,
    help="InfluxDB line protocol, CSV with one row per value, JSON with one line per row, or charges as"
    " CSV in the columns of FOCUS 1.2.",
)
@click.option("--since", "since_ns", type=Moment(), default=ALWAYS_NS, help='"24h" or a date.')
@click.option("--until", "until_ns", type=Moment(), help='"1h" or a date (default: now).')
@click.option(
    "--measurement",
    "measurements",
    type=click.Choice(list(SCHEMA)),
    metavar="NAME",
    multiple=True,
    help=f"Only this measurement; may be repeated. One of {', '.join(SCHEMA)}.",
)
@click.option(
    "--period",
    type=click.Choice(list(PERIODS_NS)),
    help="With --format focus: length of a charge period, in UTC (default: day).",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_obj
def command(
    config: str | None,
    *,
    form: str,
    since_ns: int,
    until_ns: int | None,
    measurements: Sequence[str],
    period: str | None,
    as_json: bool,
) -> None:
    """Write the stored series of a time range to standard output, oldest first."""
    until_ns = time.time_ns() if until_ns is None else until_ns
    form = "json" if as_json else form
    if form == "focus" and measurements:
        raise bad_input("--measurement: --format focus has charges only; leave it out")
    if form != "focus" and period is not None:
        raise bad_input("--period: only for --format focus")
    loaded = LoadedConfig(config)
    with reader_of(loaded) as reader:
        if form == "focus":
            _write_focus(reader, TimeSpan(since_ns, until_ns), period or "day", loaded.config)
        else:
            FORMS[form](reader, since_ns, until_ns, measurements or tuple(SCHEMA))


def _write_lines(
    reader: StoreReader, since_ns: int, until_ns: int, measurements: Sequence[str]
) -> None:
    for measurement in measurements:
        for line in reader.lines(since_ns, until_ns, measurement):
            # In a file exactly as it is stored; a terminal must not be controlled.
            sys.stdout.write((one_line(line) if sys.stdout.isatty() else line) + "\n")


def _write_csv(
    reader: StoreReader, since_ns: int, until_ns: int, measurements: Sequence[str]
) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(["time", "measurement", "tags", "field", "value"])
    for measurement in measurements:
        for point in reader.points(measurement, since_ns, until_ns):
            tags = " ".join(
                f"{name}={value}" for name, value in sorted(tags_with_period(point).items())
            )
            for field, value in sorted(point.fields.items()):
                row = (iso(point.time_ns), measurement, tags, field, value)
                writer.writerow(map(csv_cell, row))


def _write_json(
    reader: StoreReader, since_ns: int, until_ns: int, measurements: Sequence[str]
) -> None:
    for measurement in measurements:
        for point in reader.points(measurement, since_ns, until_ns):
            document = {
                "time": iso(point.time_ns),
                "time_ns": point.time_ns,
                "measurement": measurement,
                "tags": dict(tags_with_period(point)),
                "fields": dict(point.fields),
            }
            sys.stdout.write(json.dumps(document) + "\n")


def _write_focus(reader: StoreReader, span: TimeSpan, period: str, config: Config) -> None:
    writer = csv.DictWriter(sys.stdout, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    step_ns = PERIODS_NS[period]
    charges = period_charges(reader, span, step_ns, Usual(config.telemetry.aggregate_s))
    for charge in tenant_charges(charges, reader, span, step_ns):
        writer.writerow(focus_row(charge))


FORMS: Mapping[str, Callable[[StoreReader, int, int, Sequence[str]], None]] = {
    "line": _write_lines,
    "csv": _write_csv,
    "json": _write_json,
}
