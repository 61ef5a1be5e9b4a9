"""`costprobe dashboard`: the page of a host, or with --fleet of all hosts, served on this host."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.core.clock import SystemClock
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fleet_options import fleet_config
from costprobe.ui.cli.support.option_types import FLEET_OPTION
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import Settings, bad_input

if TYPE_CHECKING:
    from starlette.types import ASGIApp

NEEDED = ("starlette", "uvicorn")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def listen_options(port: int) -> Callable[[_Function], _Function]:
    """Return the options of a page's address.

    Args:
        port: Default port.
    """

    def decorated(function: _Function) -> _Function:
        for option in (
            click.option(
                "--allow-host",
                "allowed_hosts",
                multiple=True,
                metavar="NAME",
                help="Host name in requests to accept, besides localhost and addresses; repeatable.",
            ),
            click.option(
                "--allow-remote",
                is_flag=True,
                help="Allow --listen on an address that other hosts can reach.",
            ),
            click.option(
                "--listen",
                default=f"127.0.0.1:{port}",
                show_default=True,
                help="Address and port; port 0 selects a free one.",
            ),
        ):
            function = option(function)
        return function

    return decorated


def require_packages() -> None:
    """Refuse to start without the optional packages of a page."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        install = f"{sys.executable} -m pip install {' '.join(missing)}"
        raise click.ClickException(f"the dashboard needs {' and '.join(missing)}: {install}")


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe dashboard  # serve http://127.0.0.1:9470",
        (
            "costprobe dashboard --listen 0.0.0.0:9470 --allow-remote --allow-host gpu-01"
            "  # for other hosts, without a password"
        ),
    ),
)
@listen_options(port=9470)
@FLEET_OPTION
@click.pass_obj
def command(
    config: str | None, *, listen: str, allow_remote: bool, allowed_hosts: tuple[str, ...]
) -> None:
    """Serve a page with costs, devices, alerts and faults, live from the store.

    It is read-only, has no password, and by default accepts connections of this host only.
    """
    require_packages()
    # These packages are optional.
    from costprobe.ui.dashboard.app import dashboard  # noqa: PLC0415 - explained above
    from costprobe.ui.dashboard.budgets import DashboardBudgets  # noqa: PLC0415 - as above

    settings = Settings(config)
    clock = SystemClock()
    budgets = DashboardBudgets(clock, settings.path, settings.config)
    page = dashboard(settings.store_path, clock, allowed_hosts, budgets=budgets)
    _serve(page, f"store: {settings.store_path}", listen, allow_remote=allow_remote)


def _serve(page: ASGIApp, source: str, listen: str, *, allow_remote: bool) -> None:
    """Serve a page until Ctrl-C, and print its source and address."""
    from costprobe.ui.dashboard.serving import ListenError, bound, parse_listen, serve  # noqa: PLC0415 - these packages are optional

    try:
        listening, address = bound(parse_listen(listen, allow_remote=allow_remote))
    except ListenError as error:
        raise bad_input(f"--listen: {error}") from error
    echo(source)
    echo(f"{'page:':{source.index(' ')}} {address.url}  (Ctrl-C ends it)")
    serve(page, listening)


@click.command(
    cls=ExampleCommand,
    examples=("costprobe dashboard --fleet  # serve http://127.0.0.1:9480",),
)
@listen_options(port=9480)
@click.pass_obj
def fleet_dashboard(
    config: str | None, *, listen: str, allow_remote: bool, allowed_hosts: tuple[str, ...]
) -> None:
    """Serve a page with the spend of all hosts, their models, and a heat map of their GPUs.

    The month is compared with the [[fleet.watch.budget]] of a month. Its figures are those of the other
    commands, asked again while a page is open. It is read-only, has no password, and by default accepts
    connections of this host only.
    """
    require_packages()
    # These packages are optional.
    from costprobe.ui.dashboard.fleet.page import FleetSetup, PlannedMonth, fleet_page  # noqa: PLC0415 - as above

    settings = fleet_config(config)
    clock = SystemClock()
    planned = tuple(
        PlannedMonth(float(one.amount), one.currency, one.timezone, one.labels)
        for one in settings.watched.budget
        if one.period == "month"
    )
    setup = FleetSetup(settings.silent_after_s, planned, settings.host_url)
    page = fleet_page(lambda: fleet_reader(settings, clock), clock, setup, allowed_hosts)
    try:
        _serve(page.app, f"database: {settings.url}", listen, allow_remote=allow_remote)
    finally:
        page.live.close()
