"""`costprobe budget`: spend and forecast of each budget."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import click

from costprobe.core.money import cents, money
from costprobe.core.outside import one_line
from costprobe.core.periods import TimeSpan, local_time
from costprobe.core.records import NS_PER_S
from costprobe.core.units import percent
from costprobe.spend.budget import BudgetStatus, payers_of
from costprobe.spend.evaluate import SpendBooks, budget_overviews
from costprobe.spend.query import SpendBook
from costprobe.spend.settings import BudgetConfig
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import BUDGETS, unknown_name
from costprobe.ui.cli.support.option_types import FLEET_OPTION
from costprobe.ui.cli.support.output import Role, echo_coloured, echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of
from costprobe.ui.cli.views.plots import blank_plot
from costprobe.ui.text import forecast_cells, short

PLOT_ROWS = 14
MAX_PLOT_COLUMNS = 120
MAX_PLOTS = 8
_PAINTED: tuple[tuple[str, Role], ...] = ((": EXCEEDED", "bad"), (": WILL BE EXCEEDED", "note"))


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe budget  # all budgets",
        "costprobe budget gpus --no-plot  # one budget, without its plot",
    ),
)
@click.argument("names", nargs=-1, shell_complete=BUDGETS)
@click.option("--plot/--no-plot", default=True, help="Plot each budget over its period.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@FLEET_OPTION
@click.pass_obj
def command(config: str | None, *, names: Sequence[str], plot: bool, as_json: bool) -> None:
    """Show spend and forecast of each budget for its period, or of the budgets NAMES."""
    settings = Settings(config)
    budgets = _wanted(settings.config.budget, names)
    books = SpendBooks(settings.config.budget, settings.config.telemetry.aggregate_s)
    with reader_of(settings) as reader:
        overviews = budget_overviews(books, reader, budgets, time.time_ns())
    echo_budgets([overview.status for overview in overviews], as_json=as_json)
    for overview in overviews[: 0 if as_json or not plot else MAX_PLOTS]:
        echo_coloured(_plot(overview.status, overview.book).split("\n"))


def echo_budgets(statuses: Sequence[BudgetStatus], *, as_json: bool) -> None:
    """Print budgets of a host or of a fleet as JSON, or as a table with remarks."""
    documents = [one.document() | {"verdict": one.verdict(one.amount)} for one in statuses]
    if as_json:
        echo_json(documents)
        return
    echo_lines(_table(statuses))
    for document in documents:
        echo_lines(_remarks(document), _PAINTED)


def _wanted(budgets: Sequence[BudgetConfig], names: Sequence[str]) -> list[BudgetConfig]:
    if not budgets:
        raise bad_input("no budget is configured; add a [[budget]], see docs/budgets.md")
    by_name = {budget.name: budget for budget in budgets}
    for name in names:
        if name not in by_name:
            raise unknown_name("budget", name, by_name)
    return [budget for budget in budgets if not names or budget.name in names]


def _table(statuses: Sequence[BudgetStatus]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (
            "budget",
            "scope",
            "period",
            "planned",
            "spent",
            "forecast",
            "80 % interval",
            "elapsed",
            "coverage",
        )
    ]
    for status in statuses:
        budget = status.budget
        rows.append(
            (
                budget.name,
                budget.scope,
                budget.period,
                cents(status.amount, budget.currency),
                cents(status.spent, budget.currency) if status.coverage else "-",
                *forecast_cells(status, budget.currency),
                percent(status.elapsed_share),
                percent(status.coverage),
            )
        )
    return table_lines(rows, text_columns=3)


def _remarks(document: Mapping[str, Any]) -> list[str]:
    """Return lines about data coverage and gaps."""
    name = document["budget"]
    lines = []
    if document["method"]:
        lines.append(f"{name}: {document['method']}, from {document['history_h']:,} h")
    if document["note"]:
        lines.append(f"{name}: {document['note']}")
    if document["verdict"]:
        lines.append(f"{name}: {document['verdict'].upper()}")
    return lines + [f"{name}: not included: {short(words)}" for words in document["missing"]]


def _plot(status: BudgetStatus, book: SpendBook) -> str:
    period, budget = status.period, status.budget
    times_s, spent = _cumulative_spend(status, book)
    plotext = blank_plot(PLOT_ROWS, MAX_PLOT_COLUMNS)
    ends_s = period.end_ns / NS_PER_S
    plotext.plot(times_s, spent, label="spent", marker="braille")
    for value, label in ((status.high, "80 %"), (status.expected, "forecast"), (status.low, None)):
        if value is not None:
            line = ([times_s[-1], ends_s], [status.spent, value])
            plotext.plot(*line, label=label, marker="braille")
    plotext.plot(
        [period.start_ns / NS_PER_S, ends_s], [status.amount] * 2, label="planned", marker="dot"
    )
    length_ns = period.end_ns - period.start_ns
    ticks = [period.start_ns + length_ns * quarter // 4 for quarter in range(5)]
    zone = ZoneInfo(budget.timezone)
    words = [f"{local_time(tick, zone):%m-%d %H:%M}" for tick in ticks]
    plotext.xticks([tick / NS_PER_S for tick in ticks], words)
    most = max(status.amount, status.spent, status.high or 0.0)
    amounts = [most * quarter / 4 for quarter in range(5)]
    plotext.yticks(amounts, [money(amount, budget.currency) for amount in amounts])
    plotext.title(one_line(f"{budget.name} ({budget.currency}, {budget.timezone})"))
    return str(plotext.uncolorize(plotext.build()))


def _cumulative_spend(status: BudgetStatus, book: SpendBook) -> tuple[list[float], list[float]]:
    """Return the cumulative spend at each hour of the period up to now; UTC in s."""
    start_ns = status.period.start_ns
    payers = [
        payer
        for payer in payers_of(status.budget, book.payers)
        if payer.currency == status.budget.currency
    ]
    times_s, spent, total = [start_ns / NS_PER_S], [0.0], 0.0
    while start_ns < status.time_ns:
        until_ns = min(book.start_ns(book.hour_of(start_ns) + 1), status.time_ns)
        span = TimeSpan(start_ns, until_ns)
        total += sum(book.between(payer, span).cost for payer in payers)
        times_s.append(until_ns / NS_PER_S)
        spent.append(total)
        start_ns = until_ns
    return times_s, spent
