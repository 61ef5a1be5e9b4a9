"""`costprobe top`: a live view of devices, costs, sinks, budgets and alerts."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from costprobe.adapters.store.database import decoding
from costprobe.adapters.store.read import StoreReader
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.control_client import present_states
from costprobe.ui.cli.support.loaded_config import LoadedConfig, reader_of
from costprobe.ui.cli.support.option_types import FiniteRange
from costprobe.ui.cli.support.output import echo_json, is_coloured
from costprobe.ui.cli.views.top_snapshot import snapshot

# More than a key that is held down sends between two updates.
KEY_BYTES = 256
# Ctrl-D: the terminal was closed.
CLOSED = "\x04"


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe top  # live, until q",
        "costprobe top --once  # one snapshot",
    ),
)
@click.option(
    "--every",
    "every_s",
    type=FiniteRange(0.5, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two updates.",
)
@click.option(
    "--once", is_flag=True, help="Print one snapshot and exit; the default without a terminal."
)
@click.option("--json", "as_json", is_flag=True, help="Print one snapshot as JSON and exit.")
@click.pass_obj
def command(config: str | None, *, every_s: float, once: bool, as_json: bool) -> None:
    """Show the host's devices, costs and alerts live, until q or Ctrl-C.

    Status and alerts are those of the running daemon, or else the last stored ones. A narrow
    terminal shows the most important columns; the arrow keys, space and tab reach all lines.
    """
    from rich.console import Console  # noqa: PLC0415 - only this command pays for it
    from rich.live import Live  # noqa: PLC0415 - as above

    from costprobe.ui.cli.views.top_view import ScrolledView, TopView  # noqa: PLC0415 - as above

    coloured = is_coloured()
    console = Console(
        highlight=False, markup=False, emoji=False,
        no_color=not coloured, color_system="auto" if coloured else None,
    )  # fmt: skip
    settings = LoadedConfig(config)
    with reader_of(settings) as reader:

        def view() -> TopView:
            return TopView(_snapshot(settings, reader))

        if as_json:
            echo_json(_snapshot(settings, reader))
            return
        is_live = console.is_terminal and not console.is_dumb_terminal and sys.stdin.isatty()
        if once or not is_live:
            console.print(view())
            return
        shown = ScrolledView(view())
        with (
            _keys(),
            suppress(KeyboardInterrupt),
            Live(shown, console=console, screen=True, auto_refresh=False) as live,
        ):
            while shown.press(keys := _pressed(every_s)):
                if not keys:
                    shown.view = view()
                live.refresh()


def _snapshot(settings: LoadedConfig, reader: StoreReader) -> dict[str, Any]:
    now_ns = time.time_ns()
    with decoding(reader.path):
        return snapshot(
            reader, settings.config, present_states(settings, reader.states(), now_ns), now_ns
        )


def _pressed(wait_s: float) -> str:
    """Wait for a key and return what the terminal sent; empty after the time."""
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    if not ready:
        return ""
    # Not through sys.stdin: its buffer would hide further keys from select().
    return os.read(sys.stdin.fileno(), KEY_BYTES).decode(errors="replace") or CLOSED


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys unbuffered and without echo, and restore the terminal afterwards."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
