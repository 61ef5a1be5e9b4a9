"""`costprobe export`: the stored series."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import click

from costprobe.adapters.store.read import StoreReader, tags_with_period
from costprobe.configuration import Config
from costprobe.core.outside import csv_cell, one_line
from costprobe.core.periods import DAY_NS, HOUR_NS, TimeSpan, iso
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import SCHEMA
from costprobe.spend.charges import PeriodCharge, period_charges, tenant_charges
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.option_types import UNTIL_OPTION, since_option
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of

# Provider, publisher and issuer of the charges: costprobe derives them from the host's prices.
ISSUER: Final = "costprobe"
UNALLOCATED: Final = "unallocated"
_KINDS: Final = {"gpu": "GPU", "mig": "MIG", "cpu": "CPU"}


def focus_row(charge: PeriodCharge) -> dict[str, object]:
    """Return the cells of a charge, by column; an empty cell is null."""
    return {name: csv_cell(write(charge)) for name, write in COLUMNS.items()}


def _number(amount: Decimal) -> str:
    return f"{amount.normalize():f}" if amount else "0"


def _cost(charge: PeriodCharge) -> str:
    return _number(charge.cost)


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _month(charge: PeriodCharge, later: int) -> str:
    """Return the start of the calendar month of a charge, or of a later one."""
    start = datetime.fromtimestamp(charge.span.start_ns // NS_PER_S, UTC)
    years, month = divmod(start.month - 1 + later, 12)
    return f"{start.year + years:04}-{month + 1:02}-01T00:00:00Z"


def _unit(charge: PeriodCharge) -> str:
    return f"{_KINDS.get(charge.kind, 'Device')}-Hours"


def _consumed(charge: PeriodCharge) -> tuple[str, str]:
    if charge.tokens is None:
        return _number(charge.device_hours), _unit(charge)
    return _number(charge.tokens), "Tokens"


def _description(charge: PeriodCharge) -> str:
    model = f" ({charge.model})" if charge.model else ""
    service = charge.service or UNALLOCATED
    user = f"{charge.tenant} of {service}" if charge.tenant else service
    return f"{user} on {charge.device} of {charge.host}{model}"


def _tags(charge: PeriodCharge) -> str:
    tags = {**charge.labels, **({"tenant": charge.tenant} if charge.tenant else {})}
    return json.dumps(tags, ensure_ascii=False) if tags else ""


COLUMNS: Final[Mapping[str, Callable[[PeriodCharge], str]]] = {
    "BilledCost": _cost,
    "BillingAccountId": lambda charge: charge.host,
    "BillingAccountName": lambda charge: charge.host,
    "BillingCurrency": lambda charge: charge.currency,
    "BillingPeriodEnd": lambda charge: _month(charge, 1),
    "BillingPeriodStart": lambda charge: _month(charge, 0),
    "ChargeCategory": lambda _: "Usage",
    "ChargeClass": lambda _: "",
    "ChargeDescription": _description,
    "ChargeFrequency": lambda _: "Usage-Based",
    "ChargePeriodEnd": lambda charge: _time(charge.span.end_ns),
    "ChargePeriodStart": lambda charge: _time(charge.span.start_ns),
    # Null: no charge is a commitment's. Rules on consumed quantities refer to the column.
    "CommitmentDiscountStatus": lambda _: "",
    "ConsumedQuantity": lambda charge: _consumed(charge)[0],
    "ConsumedUnit": lambda charge: _consumed(charge)[1],
    "ContractedCost": _cost,
    "EffectiveCost": _cost,
    # Null: there is no invoice.
    "InvoiceId": lambda _: "",
    "InvoiceIssuerName": lambda _: ISSUER,
    "ListCost": _cost,
    "PricingQuantity": lambda charge: _number(charge.device_hours),
    "PricingUnit": _unit,
    "ProviderName": lambda _: ISSUER,
    "PublisherName": lambda _: ISSUER,
    "ResourceId": lambda charge: f"{charge.host}/{charge.device}",
    "ResourceName": lambda charge: charge.device,
    "ResourceType": lambda charge: _KINDS.get(charge.kind, "Device"),
    "ServiceCategory": lambda _: "AI and Machine Learning",
    "ServiceName": lambda charge: charge.service or UNALLOCATED,
    "ServiceSubcategory": lambda charge: (
        "Machine Learning" if charge.tokens is None else "Generative AI"
    ),
    "Tags": _tags,
    "x_IdleCost": lambda charge: _number(charge.idle_cost),
}


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
@since_option(ALWAYS_NS)
@UNTIL_OPTION
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
    loaded = Settings(config)
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
    charges = period_charges(reader, span, step_ns, config.telemetry.aggregate_s)
    for charge in tenant_charges(charges, reader, span, step_ns):
        writer.writerow(focus_row(charge))


FORMS: Mapping[str, Callable[[StoreReader, int, int, Sequence[str]], None]] = {
    "line": _write_lines,
    "csv": _write_csv,
    "json": _write_json,
}
