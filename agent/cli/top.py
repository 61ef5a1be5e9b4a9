"""`infercost top`: a live view of devices, costs, sinks, budgets and alerts, from the store alone."""

from __future__ import annotations

import json
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

import click

from agent.cli.colour import is_coloured
from agent.cli.settings import Settings, reader_of
from agent.cli.top_snapshot import now_snapshot


@click.command()
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.5, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="One look, then end; so it is without a terminal.")
@click.option("--json", "as_json", is_flag=True, help="One look as JSON, then end.")
@click.pass_obj
def command(config: str | None, *, every_s: float, once: bool, as_json: bool) -> None:
    """Shows what the host does and costs now, until q or Ctrl-C.

    It only reads the store, so that it may run for as long as one likes beside the daemon, or
    without one. A narrow terminal shows the columns that matter most.
    """
    from rich.console import Console  # noqa: PLC0415 - only this command pays for it
    from rich.live import Live  # noqa: PLC0415 - as above

    from agent.cli.top_view import Frame  # noqa: PLC0415 - as above

    coloured = is_coloured()
    console = Console(
        highlight=False, markup=False, emoji=False,
        no_color=not coloured, color_system="auto" if coloured else None,
    )  # fmt: skip
    with reader_of(Settings(config)) as reader:
        if as_json:
            click.echo(json.dumps(now_snapshot(reader)))
            return
        is_live = console.is_terminal and not console.is_dumb_terminal and sys.stdin.isatty()
        if once or not is_live:
            console.print(Frame(now_snapshot(reader), is_live=False))
            return
        first = Frame(now_snapshot(reader), is_live=True)
        with _keys(), Live(first, console=console, screen=True) as live:
            try:
                while not _quits(every_s):
                    live.update(Frame(now_snapshot(reader), is_live=True), refresh=True)
            except KeyboardInterrupt:
                return


def _quits(wait_s: float) -> bool:
    """Waits for a key, and says whether it is the one that ends, or nobody is there any more."""
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q", "")


@contextmanager
def _keys() -> Iterator[None]:
    """Gives keys at once and unseen, and the terminal back as it was."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
