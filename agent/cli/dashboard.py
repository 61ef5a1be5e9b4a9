"""`infercost dashboard`: the page, served on this host."""

from __future__ import annotations

import importlib.util

import click

from agent.cli.settings import Settings, bad_input
from agent.clock import SystemClock

NEEDED = ("starlette", "uvicorn")
INSTALL = "pip install 'infercost[dashboard]'"


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:9470",
    show_default=True,
    help="Address and port; port 0 takes a free one.",
)
@click.option(
    "--allow-remote", is_flag=True, help="Let --listen be an address that others can reach."
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name under which it is reached, beside localhost and addresses; repeatable.",
)
@click.pass_obj
def command(
    config: str | None, *, listen: str, allow_remote: bool, allowed_hosts: tuple[str, ...]
) -> None:
    """Serves a page with costs, devices, alerts and faults, live from the store.

    It only reads, asks for no password, and by default answers this host alone.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.ClickException(f"the page needs {' and '.join(missing)}: {INSTALL}")
    # What is imported here is not everywhere installed.
    from agent.dashboard.app import dashboard  # noqa: PLC0415 - as the comment says
    from agent.dashboard.budgets import Budgets  # noqa: PLC0415 - as above
    from agent.dashboard.serving import (  # noqa: PLC0415 - as above
        ListenError,
        bound,
        parse_listen,
        serve,
    )

    settings = Settings(config)
    try:
        listening, address = bound(parse_listen(listen, allow_remote=allow_remote))
    except ListenError as error:
        raise bad_input(f"--listen: {error}") from error
    click.echo(f"store: {settings.store_path}")
    click.echo(f"page:  {address.url}  (Ctrl-C ends it)")
    clock = SystemClock()
    budgets = Budgets(clock, settings.path, settings.config)
    serve(dashboard(settings.store_path, clock, allowed_hosts, budgets=budgets), listening)
