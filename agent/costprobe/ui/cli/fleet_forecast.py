"""`costprobe fleet forecast`: the spend of all hosts in a calendar period, and its forecast."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from costprobe.core.periods import HOUR_NS, PeriodKind, period_at
from costprobe.fleet.spend import fleet_forecast
from costprobe.spend.settings import HISTORY_HOURS
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fleet_options import echo_problems, fleet_answers, require_rows
from costprobe.ui.cli.support.option_types import LABEL, FiniteRange
from costprobe.ui.cli.support.output import echo_file, echo_json, echo_lines
from costprobe.ui.cli.support.place import bad_input
from costprobe.ui.cli.views.fleet_tables import FORECAST_HEADS, csv_lines, forecast_lines
from costprobe.ui.fleet_documents import forecast_document, head_of

_Labels = Sequence[tuple[str, str]]


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet forecast  # spend of this month up to now, and at its end",
        "costprobe fleet forecast --period quarter --amount 250000  # whether a budget will be exceeded",
    ),
)
@click.option(
    "--period",
    "kind",
    type=click.Choice(["day", "month", "quarter", "year"]),
    default="month",
    show_default=True,
    help="The calendar period that is forecast.",
)
@click.option("--timezone", default="UTC", show_default=True, help="Its time zone, by IANA name.")
@click.option("--amount", type=FiniteRange(min=0), help="Planned amount, in the currency.")
@click.option("--currency", help="Only the spend in this currency, such as EUR.")
@LABEL
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.pass_obj
def forecast(  # noqa: PLR0913 - an option each
    config: str | None,
    *,
    kind: PeriodKind,
    timezone: str,
    amount: float | None,
    currency: str | None,
    labels: _Labels,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show the spend of this month, and forecast it to its end with an 80 % interval.

    The forecast is that of `costprobe budget`: the robust rate of each hour of the week, over the
    last eight weeks. Gaps are not extrapolated.
    """
    now_ns = time.time_ns()
    try:
        period = period_at(kind, timezone, now_ns // HOUR_NS * HOUR_NS - 1)
    except (KeyError, ValueError, OSError) as error:
        raise bad_input(
            f"--timezone: {timezone!r} is no time zone, such as Europe/Berlin"
        ) from error
    since_ns = min(period.start_ns, now_ns - HISTORY_HOURS * HOUR_NS)
    with fleet_answers(config, since_ns, now_ns, labels) as answers:
        found = [
            one
            for one in fleet_forecast(answers, period, timezone)
            if currency in (None, one.currency)
        ]
    if amount is not None and len(found) > 1:
        raise bad_input("--amount: the fleet is paid in several currencies; add --currency")
    documents = [forecast_document(one, amount) for one in found]
    if as_json:
        span = {"period_start_ns": period.start_ns, "period_end_ns": period.end_ns}
        echo_json({**head_of(answers), "period": kind, **span, "currencies": documents})
        return
    if as_csv:
        cells = ([one[head] for head in FORECAST_HEADS] for one in documents)
        echo_file(csv_lines(FORECAST_HEADS, cells))
    else:
        require_rows(found, answers, f"rows in {currency}" if currency else "rows")
        lines = forecast_lines(found, period, answers.period.end_ns, amount)
        echo_lines(lines, [("exceeded", "bad")])
    echo_problems(answers)
