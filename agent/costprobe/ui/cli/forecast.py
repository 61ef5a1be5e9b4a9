"""`costprobe forecast`: the growth of load, what it costs, and when capacity ends."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from costprobe.core.records import NS_PER_S
from costprobe.savings.gather import history_of
from costprobe.savings.growth import growth
from costprobe.savings.placements import day_of
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.command_prices import echo_notes, savings_sections, stored_prices
from costprobe.ui.cli.support.known_names import STORED_LOADS, unknown_name
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of
from costprobe.ui.cli.support.option_types import Timespan
from costprobe.ui.cli.support.output import echo_json, echo_lines
from costprobe.ui.cli.views.growth_lines import growth_document, growth_lines

DAY_S = 86_400
MAX_HORIZON_DAYS = 365
# Older load does not represent the trend.
HISTORY_DAYS = 365


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe forecast  # the next 90 days of every service and device",
        "costprobe forecast chat --horizon 30d  # one service, the next 30 days",
    ),
)
@click.argument("names", nargs=-1, shell_complete=STORED_LOADS)
@click.option(
    "--horizon",
    "horizon_s",
    type=Timespan(),
    default="90d",
    show_default=True,
    help="How far to look ahead, from 1d to 365d.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(config: str | None, *, names: Sequence[str], horizon_s: float, as_json: bool) -> None:
    """Show the growth of the load of each service, and of each device without one, or of NAMES.

    A damped trend with its 80 % interval, the cost at today's prices, the cost of 1,000 more
    requests, and the date when capacity ends. `costprobe budget` forecasts the spend of budgets.
    """
    settings = LoadedConfig(config)
    horizon_days = round(horizon_s / DAY_S)
    if not 1 <= horizon_days <= MAX_HORIZON_DAYS:
        raise bad_input(f"--horizon: write a time from 1d to {MAX_HORIZON_DAYS}d, such as 90d")
    now_ns = time.time_ns()
    since_ns = now_ns - HISTORY_DAYS * DAY_S * NS_PER_S
    with reader_of(settings) as reader:
        prices = stored_prices(settings)
        history = history_of(savings_sections(settings.config), prices, reader, since_ns)
        echo_notes(prices)
    found = growth(history, now_ns, horizon_days)
    known = {name for one in found for name in ([one.service] if one.service else one.devices)}
    for name in names:
        if name not in known:
            raise unknown_name("service or device", name, known)
    if names:
        found = [one for one in found if one.service in names or set(one.devices) & set(names)]
    if not found:
        raise click.ClickException("no load is stored; is the daemon running?")
    if as_json:
        first = day_of(now_ns // NS_PER_S, history.zone)
        echo_json([growth_document(one, first) for one in found])
    else:
        echo_lines(growth_lines(found, horizon_days))
