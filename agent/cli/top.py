"""`infercost top`: a live view of devices, probes, services and alerts, from the store alone."""

from __future__ import annotations

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from agent.cli.lines import PER_THOUSAND, money
from agent.cli.settings import Settings, reader_of
from agent.cli.timespan import ago
from agent.costing.compare_rows import number
from agent.model import NS_PER_S, Point
from agent.storage.reader import StoreReader

if TYPE_CHECKING:
    from rich.console import Group

# A device or a probe that has been silent for longer is not shown as if it were there.
GONE_NS = 24 * 3600 * NS_PER_S
MAX_ROWS = 40
MAX_ALERTS = 5


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
@click.pass_obj
def command(config: str | None, *, every_s: float, once: bool) -> None:
    """Shows what the host does and costs now, until q or Ctrl-C.

    It only reads the store, so that it may run for as long as one likes beside the daemon.
    """
    from rich.console import Console  # noqa: PLC0415 - only this command pays for it
    from rich.live import Live  # noqa: PLC0415 - as above

    # rich itself leaves colours out where there is no terminal, or NO_COLOR is set.
    console = Console(highlight=False, markup=False, emoji=False)
    with reader_of(Settings(config)) as reader:
        if once or not (console.is_terminal and sys.stdin.isatty()):
            console.print(frame(reader, time.time_ns()))
            return
        with (
            _keys(),
            Live(frame(reader, time.time_ns()), console=console, screen=True) as live,
        ):
            try:
                while not _quits(every_s):
                    live.update(frame(reader, time.time_ns()), refresh=True)
            except KeyboardInterrupt:
                return


def frame(reader: StoreReader, now_ns: int) -> Group:
    """One look at the store.

    Args:
        reader: The store.
        now_ns: UTC ns.
    """
    from rich.console import Group  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    states = reader.states()
    parts: list[Any] = [Text(_head(states, now_ns), style="bold")]
    parts += [
        _table(title, heads, rows)
        for title, heads, rows in (
            (
                "Devices",
                (
                    "device",
                    "model",
                    "util",
                    "power",
                    "temp",
                    "SM clock",
                    "memory",
                    "an hour",
                    "seen",
                ),
                [_device(row, now_ns) for row in _newest(reader, "device", now_ns)],
            ),
            (
                "Cost per 1,000 inferences",
                ("of", "on", "basis", "now", "1 h", "24 h", "7 d", "seen"),
                [_cost(row, now_ns) for row in _newest(reader, "cost", now_ns)],
            ),
        )
        if rows
    ]
    firing = [
        one
        for one in states.get("alerts", ({}, 0))[0].get("alerts", [])
        if one.get("state") == "firing"
    ]
    lines = [f"{one.get('severity')}: {one.get('summary')}" for one in firing[:MAX_ALERTS]]
    told = f"{len(firing)} alerts fire" if firing else "no alert fires"
    parts.append(Text("\n".join(map(_printable, [told, *lines])), style="red" if firing else ""))
    parts.append(Text("q ends", style="dim"))
    return Group(*parts)


def _head(states: dict[str, tuple[Any, int]], now_ns: int) -> str:
    status, written_ns = states.get("status", ({}, 0))
    if not status:
        return "infercost: no daemon has written its status here"
    seen = ago(max(0.0, (now_ns - written_ns) / NS_PER_S))
    return _printable(f"infercost on {status.get('host')}: {status.get('state')}, seen {seen} ago")


def _newest(reader: StoreReader, measurement: str, now_ns: int) -> list[Point]:
    rows = [row for row in reader.last(measurement) if row.time_ns >= now_ns - GONE_NS]
    names = ("device", "service", "probe", "served_model", "currency")
    newest: dict[tuple[str, ...], Point] = {}
    for row in sorted(rows, key=lambda row: row.time_ns):
        newest[tuple(row.tags.get(name, "") for name in names)] = row
    return [newest[key] for key in sorted(newest)][:MAX_ROWS]


def _device(row: Point, now_ns: int) -> tuple[str, ...]:
    used, total = number(row, "mem_used_bytes"), number(row, "mem_total_bytes")
    return (
        row.tags.get("device", ""),
        row.tags.get("model", ""),
        _figure(row, "util_pct", "%"),
        _figure(row, "power_w", "W"),
        _figure(row, "temp_c", "°C"),
        _figure(row, "sm_clock_mhz", "MHz"),
        "-" if used is None or not total else f"{used / total:.0%}",
        _figure(row, "price_rate_per_h", "", digits=4),
        _seen(row, now_ns),
    )


def _cost(row: Point, now_ns: int) -> tuple[str, ...]:
    tags = row.tags
    return (
        tags.get("served_model") or tags.get("service") or tags.get("probe", ""),
        tags.get("device", ""),
        tags.get("basis", ""),
        *(
            _price(row, field)
            for field in ("cost_per_inference", "rolling_1h", "rolling_24h", "rolling_7d")
        ),
        _seen(row, now_ns),
    )


def _price(row: Point, field: str) -> str:
    value = number(row, field)
    return "-" if value is None else money(value * PER_THOUSAND, row.tags.get("currency", "?"))


def _figure(row: Point, field: str, unit: str, digits: int = 3) -> str:
    value = number(row, field)
    if value is None:
        return "-"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"  # noqa: PLR2004 - three digits
    return f"{text} {unit}".rstrip()


def _seen(row: Point, now_ns: int) -> str:
    return f"{ago(max(0.0, (now_ns - row.time_ns) / NS_PER_S))} ago"


def _table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Any:  # noqa: ANN401 - what rich renders
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(title=title, title_justify="left", expand=True, box=None)
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index <= 1 else "right", overflow="fold")
    for row in rows:
        # As Text, so that nothing in it is taken for markup.
        table.add_row(*(Text(_printable(cell)) for cell in row))
    return table


def _printable(text: str) -> str:
    """A terminal obeys what is not printable."""
    return "".join(mark if mark.isprintable() else " " for mark in text)


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
