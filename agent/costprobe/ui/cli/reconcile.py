"""`costprobe reconcile`: a cloud's bill against the measured cost of this host."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from costprobe.adapters.clouds.bills import BillError, BillLine, read_bill
from costprobe.adapters.clouds.instance import instance_id
from costprobe.adapters.host.host_name import host_tag
from costprobe.core.money import cents, money
from costprobe.core.periods import TimeSpan, parse_date_ns, period_at, utc_day
from costprobe.core.records import natural
from costprobe.fleet.answers import ARRIVED_NS
from costprobe.fleet.bills import fleet_hours
from costprobe.spend.bills import measured_hours
from costprobe.spend.reconcile import REMAINDER, MeasuredHour, Reconciliation, reconciled
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.fleet_options import FleetOptions, fleet_options
from costprobe.ui.cli.support.option_types import FLEET_OPTION, Parsed
from costprobe.ui.cli.support.output import echo_answer
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of

if TYPE_CHECKING:
    from costprobe.pricing.plans import Plan

# Most names of other instances in a message.
_NAMES_MAX: Final = 5
_ZERO: Final = Decimal(0)
# Amounts below it are of the rounding of sums and rates; JSON has them.
_ROUNDING: Final = Decimal("1e-6")


def _month(text: str) -> str:
    if not re.fullmatch(r"(19[7-9]\d|20\d\d)-(0[1-9]|1[0-2])", text):
        raise ValueError(f"{text!r}: write a month, such as 2026-11")
    return text


_MONTH: Final = Parsed("month", _month)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe reconcile focus.csv  # the charges that name this host",
        "costprobe reconcile cur.csv.gz --resource i-0abc123def4567890  # those of an instance",
    ),
)
@click.argument("bill", type=click.Path(path_type=Path))
@click.option("--month", type=_MONTH, help="Month of the charges, in UTC: 2026-11.")
@click.option(
    "--resource",
    "resources",
    metavar="NAME",
    multiple=True,
    help="Resource id, name or tag of this host on the bill; may be repeated (default: its name, and"
    " its id on EC2).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@FLEET_OPTION
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
    charges = _charges(bill, dict.fromkeys(map(str.lower, names), names[0]))
    if not charges.by_host:
        raise bad_input(
            f"{bill}: no charge names {' or '.join(names)}; name the host's resource with --resource"
            + (f", such as {charges.largest}" if charges.others else "")
        )
    charges, month = _of_month(bill, charges, month)
    (lines,) = charges.by_host.values()
    currencies = {line.currency for line in lines}
    with reader_of(settings) as reader:
        usual_s = settings.config.telemetry.aggregate_s
        hours = _in_currency(measured_hours(reader, _span(month), usual_s), currencies)
    result = reconciled(lines, hours)
    echo_answer(
        {"month": month, **_document(result)},
        chain(
            [f"{month} (UTC): {', '.join(result.resources)}"],
            _lines(month, result, settings.config.price),
        ),
        as_json=as_json,
    )


# Columns of a host in a fleet; JSON has each gap.
_HEADS: Final = ("host", "billed", "measured", "without data", "price", "other", "remainder")
_COLUMNS: Final = {"hours without data": 2, "price": 3, REMAINDER: 5}
_OTHER: Final = 4
_FLEET_CSV: Final = ("host", "currency", "cost_billed", "cost_measured", "instance_h", "covered_h")


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe reconcile --fleet focus.csv --month 2026-11  # each host against its charges",
    ),
)
@click.argument("bill", type=click.Path(path_type=Path))
@click.option(
    "--month", type=_MONTH, required=True, help="Month of the charges, in UTC, such as 2026-11."
)
@fleet_options()
def fleet(options: FleetOptions, *, bill: Path, month: str) -> None:
    """Compare the file BILL of a cloud with the measured cost of all hosts.

    A charge is a host's if its resource id, the last part of it, the resource's name or a tag is the
    name of the host. `costprobe reconcile` on a host names each difference.
    """
    span = _span(month)
    until_ns = min(span.end_ns, time.time_ns() - ARRIVED_NS)
    if until_ns <= span.start_ns:
        raise bad_input(f"--month: {month} has not begun")
    asked = options._replace(since_ns=span.start_ns, until_ns=until_ns)
    with asked.answers() as answers:
        hours = fleet_hours(answers)
    charges = _charges(bill, {host.lower(): host for host, _ in hours}, span)
    found = {
        (host, currency): reconciled(own, hours[host, currency])
        for host, currency in sorted(hours, key=lambda key: natural(*key))
        if (own := [one for one in charges.by_host.get(host, ()) if one.currency == currency])
    }
    documents = [{"host": host, **_document(one)} for (host, _), one in found.items()]
    without = sorted({host for host, _ in hours} - {host for host, _ in found}, key=natural)
    options.echo(
        answers,
        {"month": month, "hosts": documents, "hosts_without_charges": without},
        (_FLEET_CSV, documents),
        _fleet_lines(found, without, charges),
        shown=found,
        wanted=f"host that a charge of {month} names",
    )


def _fleet_lines(
    found: Mapping[tuple[str, str], Reconciliation], without: Sequence[str], charges: _Charges
) -> Iterator[str]:
    rows = []
    for (host, currency), one in found.items():
        amounts = [one.cost_billed, one.cost_measured, *[_ZERO] * 4]
        for gap in one.gaps:
            amounts[_COLUMNS.get(gap.name, _OTHER)] += gap.amount
        shown = (_ZERO if abs(amount) < _ROUNDING else amount for amount in amounts)
        rows.append((host, *(cents(amount, currency) for amount in shown)))
    yield from table_lines([_HEADS, *rows])
    if without:
        yield f"without a charge: {_listed(without)}"
    if charges.others:
        yield f"instances whose charges name no host: {charges.largest}"


class _Charges(NamedTuple):
    """The charges of a bill.

    Attributes:
        by_host: Those that name a host, by its name.
        others: Instance-hours of resources of which no charge names a host.
    """

    by_host: Mapping[str, list[BillLine]]
    others: Mapping[str, float]

    @property
    def largest(self) -> str:
        """The other resources with most hours, for a message."""
        by_hours = sorted(self.others, key=lambda name: (-self.others[name], name))
        return _listed(by_hours)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _charges(bill: Path, hosts: Mapping[str, str], span: TimeSpan | None = None) -> _Charges:
    """Read a bill; a charge that names several hosts is no host's.

    Args:
        bill: The file.
        hosts: Host by each of its names, in lower case.
        span: The time in which charges begin; None for any.

    Raises:
        click.ClickException: With exit code 2; it cannot be read.
    """
    by_host: dict[str, list[BillLine]] = defaultdict(list)
    others: dict[str, float] = defaultdict(float)
    try:
        for line in read_bill(bill):
            if span is not None and not span.start_ns <= line.start_ns < span.end_ns:
                continue
            named = {hosts[name] for name in line.names & hosts.keys()}
            if len(named) == 1:
                # The names would take most of the memory.
                by_host[named.pop()].append(replace(line, names=frozenset()))
            elif line.kind == "compute" and line.resource:
                others[line.resource] += float(line.hours or 0)
    except BillError as error:
        raise bad_input(str(error)) from error
    return _Charges(by_host, others)


def _of_month(bill: Path, charges: _Charges, month: str | None) -> tuple[_Charges, str]:
    """Return the charges of a month, by default the only one, and the month.

    Raises:
        click.ClickException: With exit code 2; there are none, or those of several months.
    """
    months = {_month_of(line) for lines in charges.by_host.values() for line in lines}
    listed = ", ".join(sorted(months))
    if month is None and len(months) > 1:
        raise bad_input(f"{bill} has charges of {listed}; choose one with --month")
    month = month or months.pop()
    by_host = {
        host: own
        for host, lines in charges.by_host.items()
        if (own := [line for line in lines if _month_of(line) == month])
    }
    if not by_host:
        raise bad_input(f"--month: {bill} has charges of {listed} only")
    return charges._replace(by_host=by_host), month


def _month_of(line: BillLine) -> str:
    return f"{utc_day(line.start_ns):%Y-%m}"


def _span(month: str) -> TimeSpan:
    return period_at("month", "UTC", parse_date_ns(f"{month}-01", UTC))


def _in_currency(
    paid: Mapping[str, dict[int, MeasuredHour]], currencies: Collection[str]
) -> dict[int, MeasuredHour]:
    """Return the hours in the currency of the bill.

    Raises:
        click.ClickException: With exit code 2; there are none, or the costs are in another one.
    """
    if not paid:
        raise bad_input("no device has a cost in this month; see costprobe price history")
    if set(paid) != set(currencies):
        raise bad_input(
            f"the bill is in {' and '.join(sorted(currencies)) or 'no currency'}, but the prices of the"
            f" devices are in {' and '.join(sorted(paid))}; see costprobe price show"
        )
    return paid[next(iter(currencies))]


def _document(found: Reconciliation) -> dict[str, Any]:
    return {
        "resources": list(found.resources),
        "currency": found.currency,
        "cost_billed": str(found.cost_billed),
        "cost_measured": str(found.cost_measured),
        "gaps": [
            {"name": gap.name, "amount": str(gap.amount), "duration_h": gap.hours}
            for gap in found.gaps
        ],
        "instance_h": found.instance_h,
        "covered_h": found.covered_h,
        "measured_h": found.measured_h,
        "billed_per_h": None if found.billed_per_h is None else float(found.billed_per_h),
        "measured_per_h": None if found.measured_per_h is None else float(found.measured_per_h),
    }


def _lines(month: str, found: Reconciliation, plans: Iterable[Plan]) -> Iterator[str]:
    currency = found.currency
    rows = [
        ("", "hours", "amount"),
        ("measured", _hours(found.measured_h), cents(found.cost_measured, currency)),
    ]
    for gap in found.gaps:
        amount = _ZERO if abs(gap.amount) < _ROUNDING else gap.amount
        if amount or gap.name == REMAINDER:
            hours = "" if gap.hours is None else _hours(gap.hours)
            rows.append((gap.name, hours, cents(amount, currency)))
    rows.append(("billed", _hours(found.instance_h), cents(found.cost_billed, currency)))
    yield from table_lines(rows)
    paid, used = found.billed_per_h, found.measured_per_h
    if found.instance_h and not paid:
        yield (
            "the bill has no cost for the hours of this instance: a commitment paid for them; export"
            " amortized costs, as FOCUS has them, to compare prices"
        )
    elif found.is_of_several:
        yield (
            f"the charges count {_hours(found.counted_h)} h in a time of {_hours(found.instance_h)} h: they"
            " are of several instances, or the file has them twice; choose one with --resource"
        )
    elif paid and used and found.is_other_price:
        yield (
            f"{money(paid, currency)}/h was paid, {money(used, currency)}/h was in force; to use"
            " what was paid:"
        )
        yield from (
            "[[price]]",
            'plan = "on_demand"',
            f"per_hour = {paid:.6f}",
            f'currency = "{currency}"',
            f"valid_from = {month}-01",
        )
        if any(plan.device or f"{plan.valid_from:%Y-%m-%d}" > f"{month}-01" for plan in plans):
            yield "remove each [[price]] of a device or from a later day: they precede it"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}"
