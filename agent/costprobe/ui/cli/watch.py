"""`costprobe status --watch`: a live view of devices, costs, sinks, budgets and alerts."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import click

from costprobe.adapters.store.database import decoding
from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import Config
from costprobe.core.columns import number
from costprobe.core.money import cents, common_scale, money, scale_words
from costprobe.core.outside import one_line
from costprobe.core.periods import iso, parse_date_ns
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import counted, percent, significant
from costprobe.spend.now import present_power_w, spending
from costprobe.ui.amounts import si
from costprobe.ui.cli.support.control_client import present_states
from costprobe.ui.cli.support.fitting import terminal_columns, wrapped
from costprobe.ui.cli.support.output import (
    SEVERITIES,
    Role,
    echo_coloured,
    echo_json,
    is_coloured,
    paint,
)
from costprobe.ui.cli.support.place import NOT_RUNNING, Settings, reader_of
from costprobe.ui.cli.views.status_lines import outbox_document
from costprobe.ui.host_overview import (
    assumed_currencies,
    host_faults,
    main_change,
    newest_rows,
)
from costprobe.ui.incidents import is_running
from costprobe.ui.tables import Table
from costprobe.ui.text import ago, in_local_zone

# Time between two updates.
EVERY_S: Final = 2.0
# More than a key that is held down sends between two updates.
KEY_BYTES: Final = 256
# Ctrl-D: the terminal was closed.
CLOSED: Final = "\x04"
# Another screen, without a cursor, and without a second line for a long one; and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"


def watch(config: str | None, *, as_json: bool) -> None:
    """Show a host live until q or Ctrl-C; without a terminal, and as JSON, one snapshot."""
    settings = Settings(config)
    with reader_of(settings) as reader:

        def present() -> dict[str, Any]:
            now_ns = time.time_ns()
            with decoding(reader.path):
                states = present_states(settings, reader.states(), now_ns)
                return snapshot(reader, settings.config, states, now_ns)

        found = present()
        is_dumb = os.environ.get("TERM", "dumb") == "dumb"
        if as_json:
            echo_json(found)
        elif is_dumb or not (sys.stdout.isatty() and sys.stdin.isatty()):
            for part in sections(found, terminal_columns()):
                echo_coloured(part)
        else:
            _show(found, present)
            return
        sys.exit(0 if found["running"] else NOT_RUNNING)


def _show(found: dict[str, Any], present: Callable[[], dict[str, Any]]) -> None:
    """Show a host until q or Ctrl-C.

    Args:
        found: What is shown first.
        present: Returns what is shown next.
    """
    shown, keys = ScrolledView(found), ""
    with _live_terminal(), suppress(KeyboardInterrupt):
        while shown.press(keys):
            if not keys:
                shown.found = present()
            _draw(shown.lines(*shutil.get_terminal_size()))
            keys = _pressed(EVERY_S)


def _draw(lines: Sequence[str]) -> None:
    text = "\x1b[K\n".join(lines)
    sys.stdout.write(f"\x1b[H{text if is_coloured() else click.unstyle(text)}\x1b[J")
    sys.stdout.flush()


def _pressed(wait_s: float) -> str:
    """Wait for a key and return what the terminal sent; empty after the time."""
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    if not ready:
        return ""
    # Not through sys.stdin: its buffer would hide further keys from select().
    return os.read(sys.stdin.fileno(), KEY_BYTES).decode(errors="replace") or CLOSED


@contextmanager
def _live_terminal() -> Iterator[None]:
    """Read keys unbuffered and without echo, on a screen of its own; restore the terminal afterwards."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        sys.stdout.write(_ENTER)
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


# A device, probe or budget without a row for longer than this is not shown.
GONE_NS: Final = 24 * 3600 * NS_PER_S
MAX_ROWS: Final = 40
# Tags and numeric fields of the rows, in the order of the JSON.
_DEVICE: Final = (
    *("device", "model", "util_pct", "power_w", "temp_c", "sm_clock_mhz", "mem_used_bytes"),
    *("mem_total_bytes", "price_rate_per_h", "currency"),
)
_PRICES: Final = ("cost_per_inference", "rolling_1h", "rolling_24h", "rolling_7d")
_COST: Final = ("device", "basis", "currency", *_PRICES)
_BUDGET: Final = (
    *("budget", "period", "currency", "amount", "spent", "forecast", "elapsed_share"),
    "coverage",
)
_TAGS: Final = frozenset({"device", "model", "basis", "budget", "period", "currency"})
_IDENTITY: Final = ("device", "service", "probe", "served_model", "budget", "currency")

States = Mapping[str, tuple[Any, int]]
Row = Mapping[str, Any]


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


def _figures(row: Point, names: Sequence[str]) -> dict[str, Any]:
    return {name: row.tags.get(name) if name in _TAGS else number(row, name) for name in names}


def _device(row: Point, now_ns: int) -> dict[str, Any]:
    return {**_figures(row, _DEVICE), "age_s": _age_s(row, now_ns)}


def _cost(row: Point, now_ns: int) -> dict[str, Any]:
    names = (row.tags.get(tag) for tag in ("probe", "service", "served_model"))
    return {
        "of": "/".join(filter(None, names)) or None,
        **_figures(row, _COST),
        "contended": row.fields.get("contended"),
        "age_s": _age_s(row, now_ns),
    }


def _budget(row: Point, now_ns: int) -> dict[str, Any]:
    conditions = ("exceeded", "forecast_exceeded")
    return {
        **_figures(row, _BUDGET),
        **{name: bool(row.fields.get(name)) for name in conditions},
        "age_s": _age_s(row, now_ns),
    }


def _sinks(reader: StoreReader, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each sink's progress from the store, and its last reported state."""
    states = status.get("sinks", {})
    return [
        {
            "sink": sink.sink,
            "state": states.get(sink.sink, {}).get("state"),
            **{k: v for k, v in outbox_document(sink).items() if not k.startswith("acked_")},
            "last_error": states.get(sink.sink, {}).get("last_error"),
        }
        for sink in reader.sinks()
    ]


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


MAX_LINES: Final = 5
MAX_CELL: Final = 32


class Column(NamedTuple):
    """A column; those of the greatest rank are left out first in a narrow terminal."""

    head: str
    rank: int
    cell: Callable[[Row], str]


def sections(found: Row, width: int | None) -> Iterator[list[str]]:
    """Yield the coloured lines of the sections of a snapshot: head, faults and alerts first, then a table each.

    Args:
        found: The snapshot.
        width: Columns of the terminal; None for any.
    """
    yield [*_head(found, width), *_spending(found, width), *_faults_and_alerts(found, width)]
    scale = common_scale(row[key] for row in found["costs"] for key in _PRICES)
    costs = [{**row, "scale": scale} for row in found["costs"]]
    for title, texts, columns, rows in (
        (f"Cost per {scale_words(scale, 'inference')}", 3, COST, costs),
        ("Devices", 2, DEVICE, found["devices"]),
        ("Budgets", 3, BUDGET, found["budgets"]),
        ("Sinks", 2, SINK, found["sinks"]),
    ):
        if rows:
            heads, ranks = ([column[n] for column in columns] for n in (0, 1))
            cells = [[_cut(one_line(column.cell(row))) for column in columns] for row in rows]
            table = Table(heads, cells, texts, ranks=ranks)  # type: ignore[arg-type] # of a tuple
            errors = [
                f"{row['sink']}: {row['last_error']}" for row in rows if row.get("last_error")
            ]
            below = [line for text in errors for line in _fitted(text, "bad", width)]
            yield [*_fitted(title, "strong", width), *table.lines(width), *below]


def _head(found: Row, width: int | None) -> Iterator[str]:
    if found["state"] is None:
        yield from _fitted("costprobe: no daemon has written a status yet", "strong", width)
        return
    host, age = _cut(str(found["host"])), f"seen {ago(found['age_s'])} ago"
    if found["running"]:
        yield from _fitted(f"costprobe on {host}: {found['state']}, {age}", "strong", width)
    else:
        words = f"costprobe on {host}: NOT RUNNING, {age} as {found['state']}"
        yield from _fitted(words, "bad", width)


def _spending(found: Row, width: int | None) -> Iterator[str]:
    """Yield what the host costs an hour, and the largest change that no alert reports."""
    parts = []
    for one in found["spending"]:
        if one["cost_per_h"] is not None:
            idle = "" if one["idle_share"] is None else f", {percent(one['idle_share'])} unused now"
            assumed = " (price assumed)" if one["assumed"] else ""
            parts.append(f"{money(one['cost_per_h'], one['currency'])} an hour{assumed}{idle}")
    if found["power_w"] is not None:
        parts.append(si(found["power_w"], "W"))
    yield from _fitted(", ".join(parts), "strong", width) if parts else ()
    change = found["change"]
    if change is not None and all(
        change["title"] not in alert["summary"] for alert in found["alerts"]
    ):
        cause = f"; cause: {change['cause']}" if change["cause"] else ""
        yield from _fitted(f"change: {_here(change['title'], change)}{cause}", None, width)


def _faults_and_alerts(found: Row, width: int | None) -> Iterator[str]:
    faults, alerts = found["faults"], found["alerts"]
    for text in faults[:MAX_LINES]:
        yield from _fitted(f"FAULT  {text}", "bad", width)
    if len(faults) > MAX_LINES:
        more = counted(len(faults) - MAX_LINES, "more fault")
        yield paint(f"and {more}: costprobe status", "bad")
    shown = [alert for alert in alerts if not alert["silenced"]]
    silenced = len(alerts) - len(shown)
    words = f"{counted(len(shown), 'alert')} firing" if shown else "no alert is firing"
    words += f", {silenced} silenced" if silenced else ""
    yield words if shown else paint(words, "good")
    for alert in shown[:MAX_LINES]:
        role = SEVERITIES.get(alert["severity"], "note")
        yield from _fitted(f"{alert['severity']}: {_here(alert['summary'], alert)}", role, width)
    if len(shown) > MAX_LINES:
        yield f"and {counted(len(shown) - MAX_LINES, 'more alert')}: costprobe alerts"


def _here(text: str, of: Row) -> str:
    return in_local_zone(text, parse_date_ns(of["since"]))


def _fitted(text: str, role: Role | None, width: int | None) -> Iterator[str]:
    for line in wrapped(one_line(text), width):
        yield line if role is None else paint(line, role)


def _cut(text: str) -> str:
    """Return a long name with its beginning and end, which distinguish similar names."""
    if len(text) <= MAX_CELL:
        return text
    half = MAX_CELL // 2
    return f"{text[: MAX_CELL - half - 1]}…{text[-half:]}"


def _text(key: str) -> Callable[[Row], str]:
    return lambda row: str(row[key] or "-")


def _figure(key: str, unit: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[key] is None else f"{significant(row[key], 3)} {unit}"


def _count(key: str) -> Callable[[Row], str]:
    return lambda row: f"{row[key]:,}"


def _money(key: str, text: Callable[[float, str], str] = money) -> Callable[[Row], str]:
    return lambda row: (
        "-" if row[key] is None else text(row[key] * row.get("scale", 1), row["currency"] or "?")
    )


def _share(key: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[key] is None else percent(row[key])


def _memory(row: Row) -> str:
    used, total = row["mem_used_bytes"], row["mem_total_bytes"]
    return "-" if used is None or not total else percent(used / total)


def _ago(key: str, end: str = "") -> Callable[[Row], str]:
    return lambda row: f"{ago(row[key])}{end}"


def _budget_state(row: Row) -> str:
    if row["exceeded"]:
        return "EXCEEDED"
    return "will be exceeded" if row["forecast_exceeded"] else "within plan"


def _subject(row: Row) -> str:
    return f"{row['of'] or '-'}{' (contended)' if row['contended'] else ''}"


# Columns with text are the first of each table.
DEVICE: Final = (
    Column("device", 0, _text("device")),
    Column("model", 8, _text("model")),
    Column("util", 1, _figure("util_pct", "%")),
    Column("power", 2, _figure("power_w", "W")),
    Column("temp", 3, _figure("temp_c", "°C")),
    Column("SM clock", 6, _figure("sm_clock_mhz", "MHz")),
    Column("memory", 5, _memory),
    Column("per hour", 4, _money("price_rate_per_h", cents)),
    Column("updated", 7, _ago("age_s", " ago")),
)
COST: Final = (
    Column("name", 0, _subject),
    Column("device", 4, _text("device")),
    Column("basis", 6, _text("basis")),
    Column("now", 0, _money("cost_per_inference")),
    Column("1 h", 3, _money("rolling_1h")),
    Column("24 h", 2, _money("rolling_24h")),
    Column("7 d", 5, _money("rolling_7d")),
    Column("updated", 7, _ago("age_s", " ago")),
)
SINK: Final = (
    Column("sink", 0, _text("sink")),
    Column("state", 1, _text("state")),
    Column("behind", 2, _ago("outbox_lag_s")),
    Column("waiting", 3, _count("outbox_points")),
    Column("sent", 5, _count("sent_points_total")),
    Column("rejected", 6, _count("rejected_points_total")),
    Column("dropped", 7, _count("dropped_points_total")),
)
BUDGET: Final = (
    Column("budget", 0, _text("budget")),
    Column("period", 6, _text("period")),
    Column("state", 3, _budget_state),
    Column("spent", 1, _money("spent", cents)),
    Column("planned", 2, _money("amount", cents)),
    Column("forecast", 4, _money("forecast")),
    Column("elapsed", 5, _share("elapsed_share")),
    Column("coverage", 7, _share("coverage")),
)

# Keys of the live view, as a terminal sends them.
KEYS: Final[Mapping[str, str]] = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up",
    "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page up", "b": "page up",
    "\x1b[6~": "page down", " ": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "g": "home",
    "\x1b[F": "end", "\x1bOF": "end", "G": "end",
    "\t": "section",
}  # fmt: skip
QUITTING: Final = ("q", "Q", CLOSED)
_KEY: Final = re.compile(r"\x1b[\[O][0-9;]{0,8}[A-Za-z~]|.", re.DOTALL)


class ScrolledView:
    """The lines of a snapshot that fit the terminal, and a last line with position and keys.

    The first line, which shows whether the daemon runs, is always visible.

    Attributes:
        found: The newest snapshot.
    """

    def __init__(self, found: Row) -> None:
        self.found = found
        self._first = 0
        self._page = 1
        self._last = 0
        self._starts: list[int] = [0]

    def press(self, keys: str) -> bool:
        """Move by the keys, and return False for one that quits; others do nothing.

        Args:
            keys: What the terminal sent.
        """
        for key in _KEY.findall(keys):
            if key in QUITTING:
                return False
            first, page = self._first, self._page
            moved = {
                "up": first - 1,
                "down": first + 1,
                "page up": first - page,
                "page down": first + page,
                "home": 0,
                "end": self._last,
                "section": next((start for start in self._starts if start > first), 0),
            }.get(KEYS.get(key, ""), first)
            # So that keys pressed at once end where single ones do.
            self._first = min(max(0, moved), self._last)
        return True

    def lines(self, columns: int, height: int) -> list[str]:
        """Return the visible lines for the size of a terminal."""
        parts = list(sections(self.found, columns))
        head, *body = (line for part in parts for line in part)
        self._page = page = max(1, height - 2)
        self._last = max(0, len(body) - page)
        self._first = first = min(self._first, self._last)
        # The head is no part of the body; a section at the end cannot be moved to the top.
        starts = [sum(map(len, parts[:n])) - 1 for n in range(len(parts))]
        self._starts = [min(self._last, max(0, start)) for start in starts]
        position = paint(_position(first, page, len(body), columns), "faint")
        return [head, *body[first : first + page], position]


def _position(first: int, page: int, total: int, width: int) -> str:
    if total <= page:
        return "q quit"
    shown = f"lines {first + 1} to {min(first + page, total)} of {total}"
    keys = "↑ ↓ scroll  space/b page  tab next section  q quit"
    return next((text for text in (f"{shown}  {keys}", keys) if len(text) <= width), "q quit")
