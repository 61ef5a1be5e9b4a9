"""`costprobe reconcile`: a cloud's bill against the measured cost of this host."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from costprobe.adapters.clouds.bills import BillError, BillLine, read_bill
from costprobe.adapters.clouds.instance import instance_id
from costprobe.adapters.host.host_name import host_tag
from costprobe.core.money import cents, money
from costprobe.core.periods import HOUR_NS, TimeSpan, parse_date_ns, period_at, utc_day
from costprobe.core.units import HOUR_S
from costprobe.spend.query import costs_around, spend_by_step
from costprobe.spend.reconcile import MeasuredHour, Reconciliation, reconciled
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.option_types import Parsed
from costprobe.ui.cli.support.output import echo_answer
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of

if TYPE_CHECKING:
    from costprobe.adapters.store.read import SeriesValues, StoreReader

# Most names of other instances in a message.
_NAMES_MAX: Final = 5


def _month(text: str) -> str:
    if not re.fullmatch(r"(19[7-9]\d|20\d\d)-(0[1-9]|1[0-2])", text):
        raise ValueError(f"{text!r}: write a month, such as 2026-11")
    return text


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe reconcile focus.csv  # the charges that name this host",
        "costprobe reconcile cur.csv.gz --resource i-0abc123def4567890  # those of an instance",
    ),
)
@click.argument("bill", type=click.Path(path_type=Path))
@click.option(
    "--month", type=Parsed("month", _month), help="Month of the charges, in UTC: 2026-11."
)
@click.option(
    "--resource",
    "resources",
    metavar="NAME",
    multiple=True,
    help="Resource id, name or tag of this host on the bill; may be repeated (default: its name, and"
    " its id on EC2).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    config: str | None, *, bill: Path, month: str | None, resources: Sequence[str], as_json: bool
) -> None:
    """Compare the file BILL of a cloud with the measured cost of the same hours.

    BILL has charges as FOCUS, or as AWS (CUR), Azure or Google export them: CSV, or lines of JSON,
    also compressed by gzip. Each difference has a name; together they are the whole difference.
    """
    settings = Settings(config)
    found = [host_tag(settings.config.host), instance_id(Path("/"))]
    names = resources or [name for name in found if name]
    lines, month = _charges(bill, names, month)
    span = period_at("month", "UTC", parse_date_ns(f"{month}-01", UTC))
    with reader_of(settings) as reader:
        hours = _measured(reader, span, lines[0].currency, settings.config.telemetry.aggregate_s)
    result = reconciled(lines, hours)
    echo_answer(_document(month, result), _lines(month, result), as_json=as_json)


def _charges(bill: Path, names: Sequence[str], month: str | None) -> tuple[list[BillLine], str]:
    """Return the charges of a month that name this host, and the month.

    Raises:
        click.ClickException: With exit code 2; there are none, or the bill cannot be read.
    """
    wanted = {name.lower() for name in names}
    found: dict[str, list[BillLine]] = defaultdict(list)
    others: dict[str, float] = defaultdict(float)
    try:
        for line in read_bill(bill):
            if line.names & wanted:
                found[f"{utc_day(line.start_ns):%Y-%m}"].append(line)
            elif line.kind == "compute" and line.resource:
                others[line.resource] += float(line.hours or 0)
    except BillError as error:
        raise bad_input(str(error)) from error
    if not found:
        listed = sorted(others, key=lambda name: (-others[name], name))[:_NAMES_MAX]
        raise bad_input(
            f"{bill}: no charge names {' or '.join(names)}; name the host's resource with --resource"
            + (f", such as {', '.join(listed)}" if listed else "")
        )
    if month is None and len(found) > 1:
        raise bad_input(
            f"{bill} has charges of {', '.join(sorted(found))}; choose one with --month"
        )
    month = month or next(iter(found))
    lines = found.get(month)
    if not lines:
        raise bad_input(f"--month: {bill} has charges of {', '.join(sorted(found))} only")
    currencies = sorted({line.currency for line in lines})
    if len(currencies) > 1:
        raise bad_input(f"{bill} has charges in {' and '.join(currencies)}; select those of one")
    return lines, month


def _measured(
    reader: StoreReader, span: TimeSpan, currency: str, usual_s: float
) -> dict[int, MeasuredHour]:
    """Return the cost of the devices in each hour of a span with rows.

    Raises:
        click.ClickException: With exit code 2; the costs are in another currency.
    """
    devices: dict[str, list[SeriesValues]] = defaultdict(list)
    paid_in = set()
    for series in costs_around(reader, "device", span):
        devices[series.tags.get("device", "")].append(series)
        paid_in.add(series.tags.get("currency", ""))
    if paid_in - {currency}:
        raise bad_input(
            f"the bill is in {currency}, but the prices of the devices in"
            f" {' and '.join(sorted(paid_in - {currency})) or 'none'}; see costprobe price show"
        )
    costs: dict[int, float] = defaultdict(float)
    covered_s: dict[int, float] = defaultdict(float)
    for rows in devices.values():
        for hour, cost, seconds in spend_by_step(rows, usual_s, span, HOUR_NS):
            costs[hour] += cost
            covered_s[hour] += seconds
    return {
        hour: MeasuredHour(cost, min(HOUR_S, covered_s[hour] / len(devices)))
        for hour, cost in costs.items()
    }


def _document(month: str, found: Reconciliation) -> dict[str, Any]:
    return {
        "month": month,
        "resources": list(found.resources),
        "currency": found.currency,
        "cost_billed": str(found.billed),
        "cost_measured": str(found.measured),
        "gaps": [
            {"name": gap.name, "amount": str(gap.amount), "duration_h": gap.hours} for gap in found.gaps
        ],
        "instance_h": found.instance_h,
        "covered_h": found.covered_h,
        "measured_h": found.measured_h,
        "billed_per_h": None if found.billed_per_h is None else float(found.billed_per_h),
        "measured_per_h": None if found.measured_per_h is None else float(found.measured_per_h),
    }


def _lines(month: str, found: Reconciliation) -> Iterator[str]:
    currency = found.currency
    yield f"{month} (UTC): {', '.join(found.resources)}"
    rows = [
        ("", "hours", "amount"),
        ("measured", _hours(found.measured_h), cents(found.measured, currency)),
    ]
    rows += [
        (gap.name, "" if gap.hours is None else _hours(gap.hours), cents(gap.amount, currency))
        for gap in found.gaps
    ]
    rows.append(("billed", _hours(found.instance_h), cents(found.billed, currency)))
    yield from table_lines(rows)
    paid, used = found.billed_per_h, found.measured_per_h
    if found.instance_h and not paid:
        yield (
            "the bill has no cost for the hours of this instance: a commitment paid for them; export"
            " amortized costs, as FOCUS has them, to compare prices"
        )
    elif paid and used and found.is_other_price:
        yield (
            f"{money(paid, currency)}/h was paid, {money(used, currency)}/h is configured; to use"
            " what was paid:"
        )
        yield from (
            "[[price]]",
            'plan = "on_demand"',
            f"per_hour = {paid:.6f}",
            f'currency = "{currency}"',
            f"valid_from = {month}-01",
        )


def _hours(hours: float) -> str:
    return f"{hours:,.1f}"
