"""`costprobe top`: a live view of devices, costs, sinks, budgets and alerts."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from costprobe.adapters.store.database import decoding
from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import Config
from costprobe.core.columns import number
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S, Point
from costprobe.spend.now import present_power_w, spending
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.control_client import present_states
from costprobe.ui.cli.support.loaded_config import LoadedConfig, reader_of
from costprobe.ui.cli.support.option_types import FiniteRange
from costprobe.ui.cli.support.output import echo_json, is_coloured
from costprobe.ui.cli.views.status_lines import outbox_document
from costprobe.ui.host_overview import (
    assumed_currencies,
    host_faults,
    main_change,
    newest_rows,
)
from costprobe.ui.incidents import is_running

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


# A device, probe or budget without a row for longer than this is not shown.
GONE_NS = 24 * 3600 * NS_PER_S
MAX_ROWS = 40
_DEVICE_FIELDS = (
    "util_pct",
    "power_w",
    "temp_c",
    "sm_clock_mhz",
    "mem_used_bytes",
    "mem_total_bytes",
    "price_rate_per_h",
)
_COST_FIELDS = ("cost_per_inference", "rolling_1h", "rolling_24h", "rolling_7d")
_BUDGET_FIELDS = ("amount", "spent", "forecast", "elapsed_share", "coverage")
_IDENTITY = ("device", "service", "probe", "served_model", "budget", "currency")

States = Mapping[str, tuple[Any, int]]


def snapshot(reader: StoreReader, config: Config, states: States, now_ns: int) -> dict[str, Any]:
    """Return a snapshot; unknown values are None.

    Args:
        reader: The store.
        config: The configuration.
        states: State documents, of the store or of the running daemon.
        now_ns: UTC ns.
    """
    status, written_ns = states.get("status", (None, 0))
    age_s = None if status is None else max(0.0, (now_ns - written_ns) / NS_PER_S)
    running = status is not None and (
        status.get("running", False) or is_running({**status, "age_s": age_s})
    )
    return {
        "time": iso(now_ns),
        "store": str(reader.path),
        "host": None if status is None else status.get("host"),
        "running": running,
        "state": None if status is None else status.get("state"),
        "age_s": age_s,
        "spending": [
            {
                "currency": one.currency,
                "cost_per_h": one.per_hour,
                "assumed": one.currency in assumed_currencies(status),
                "idle_share": one.idle_share,
            }
            for one in spending(reader, config.budget, config.telemetry.aggregate_s, now_ns, ())
        ],
        "power_w": present_power_w(reader, now_ns),
        "change": _change(reader, now_ns),
        "devices": [_device(row, now_ns) for row in _newest(reader, "device", now_ns)],
        "costs": [_cost(row, now_ns) for row in _newest(reader, "cost", now_ns)],
        "sinks": _sinks(reader, status or {}),
        "budgets": [_budget(row, now_ns) for row in _newest(reader, "budget", now_ns)],
        "faults": [fault["text"] for fault in host_faults(status, reader)]
        if status is not None and running
        else [],
        "alerts": _alerts(states),
    }


def _change(reader: StoreReader, now_ns: int) -> dict[str, Any] | None:
    change = main_change(reader, now_ns)
    if change is None:
        return None
    return {
        "kind": change.kind,
        "title": change.title,
        "cause": change.cause or None,
        "change_pct": change.change_pct,
        "cost_per_month": change.cost_per_month,
        "currency": change.currency or None,
        "since": iso(change.since_ns),
    }


def _newest(reader: StoreReader, measurement: str, now_ns: int) -> Sequence[Point]:
    rows = reader.last(measurement, now_ns)
    return newest_rows(rows, _IDENTITY, now_ns - GONE_NS)[:MAX_ROWS]


def _device(row: Point, now_ns: int) -> dict[str, Any]:
    return {
        "device": row.tags.get("device"),
        "model": row.tags.get("model"),
        **{field: number(row, field) for field in _DEVICE_FIELDS},
        "currency": row.tags.get("currency"),
        "age_s": _age_s(row, now_ns),
    }


def _cost(row: Point, now_ns: int) -> dict[str, Any]:
    tags = row.tags
    return {
        "of": "/".join(tags[tag] for tag in ("probe", "service", "served_model") if tags.get(tag))
        or None,
        "device": tags.get("device"),
        "basis": tags.get("basis"),
        "currency": tags.get("currency"),
        **{field: number(row, field) for field in _COST_FIELDS},
        "contended": row.fields.get("contended"),
        "age_s": _age_s(row, now_ns),
    }


def _budget(row: Point, now_ns: int) -> dict[str, Any]:
    return {
        "budget": row.tags.get("budget"),
        "period": row.tags.get("period"),
        "currency": row.tags.get("currency"),
        **{field: number(row, field) for field in _BUDGET_FIELDS},
        "exceeded": bool(row.fields.get("exceeded")),
        "forecast_exceeded": bool(row.fields.get("forecast_exceeded")),
        "age_s": _age_s(row, now_ns),
    }


def _sinks(reader: StoreReader, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each sink's progress from the store, and its last reported state."""
    states = status.get("sinks", {})
    sinks = []
    for sink in reader.sinks():
        outbox = outbox_document(sink)
        now = states.get(sink.sink, {})
        sinks.append(
            {
                "sink": sink.sink,
                "state": now.get("state"),
                **{name: value for name, value in outbox.items() if name != "acked_seq"},
                "last_error": now.get("last_error"),
            }
        )
    return sinks


def _alerts(states: States) -> list[dict[str, Any]]:
    document, _ = states.get("alerts", ({}, 0))
    silenced = set(document.get("silenced", ()))
    return [
        {
            "id": alert["id"],
            "rule": alert["name"],
            "severity": alert["severity"],
            "summary": alert["summary"],
            "labels": alert["labels"],
            "since": iso(alert["since_ns"]),
            "silenced": alert["id"] in silenced,
        }
        for alert in document.get("alerts", ())
        if alert["state"] == "firing"
    ]


def _age_s(row: Point, now_ns: int) -> float:
    return max(0.0, (now_ns - row.time_ns) / NS_PER_S)
