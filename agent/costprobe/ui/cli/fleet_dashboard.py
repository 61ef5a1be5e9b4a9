"""`costprobe fleet dashboard`: the page of all hosts, served on this host."""

from __future__ import annotations

import click

from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.core.clock import SystemClock
from costprobe.ui.cli.dashboard import listen_options, require_packages
from costprobe.ui.cli.support.examples import ExampleCommand
from costprobe.ui.cli.support.finite_range import FiniteRange
from costprobe.ui.cli.support.fleet_options import fleet_config
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import bad_input


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet dashboard  # serve http://127.0.0.1:9480",
        "costprobe fleet dashboard --amount 250000  # compare the month with a planned amount",
    ),
)
@listen_options(port=9480)
@click.option(
    "--amount",
    type=FiniteRange(min=0),
    help="Planned amount of the month (default: that of [[fleet.watch.budget]]).",
)
@click.option("--currency", help="Its currency, such as EUR, if the fleet is paid in several.")
@click.pass_obj
def dashboard(
    config: str | None,
    *,
    listen: str,
    allow_remote: bool,
    allowed_hosts: tuple[str, ...],
    amount: float | None,
    currency: str | None,
) -> None:
    """Serve a page with the spend of all hosts, their models, and a heat map of their GPUs.

    Its figures are those of the other commands, asked again while a page is open. It is read-only,
    has no password, and by default accepts connections of this host only.
    """
    require_packages()
    # These packages are optional.
    from costprobe.ui.dashboard.fleet.page import FleetSetup, PlannedMonth, fleet_page  # noqa: PLC0415 - as above
    from costprobe.ui.dashboard.serving import (  # noqa: PLC0415 - as above
        ListenError,
        bound,
        parse_listen,
        serve,
    )

    settings = fleet_config(config)
    try:
        listening, address = bound(parse_listen(listen, allow_remote=allow_remote))
    except ListenError as error:
        raise bad_input(f"--listen: {error}") from error
    echo(f"database: {settings.url}")
    echo(f"page:     {address.url}  (Ctrl-C ends it)")
    clock = SystemClock()
    planned = tuple(
        PlannedMonth(float(one.amount), one.currency, one.timezone, one.labels)
        for one in (settings.watch.budget if settings.watch else ())
        if one.period == "month"
    )
    if amount is not None:
        planned = (PlannedMonth(amount, currency), *planned)
    setup = FleetSetup(settings.silent_after_s, planned, settings.host_url)
    serve(fleet_page(lambda: fleet_reader(settings, clock), clock, setup, allowed_hosts), listening)
