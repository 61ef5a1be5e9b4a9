"""The layout of `costprobe top`: as many columns as fit, the most important first, moved by keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from costprobe.core.money import money, price_scale, scale_words
from costprobe.core.outside import one_line
from costprobe.core.units import counted, percent
from costprobe.ui.cli.support.fitting import wrapped
from costprobe.ui.text import ago

MAX_LINES = 5
MAX_CELL = 32
GAP = 2
_THREE_DIGITS = 100
_STYLES = {"info": "dim", "warning": "yellow", "critical": "bold red"}

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column; columns of greater `rank` are dropped first in a narrow terminal."""

    title: str
    rank: int
    cell: Callable[[Row], str]


class TopView:
    """A snapshot as a rich renderable that adapts to the width of the terminal.

    Args:
        found: Result of `costprobe.ui.cli.top.snapshot`.
    """

    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        self._found = snapshot

    def sections(self, width: int) -> Iterator[list[RenderableType]]:
        """Yield the sections for a width: head, faults and alerts first, then a table each."""
        snapshot = self._found
        yield [_head(snapshot), *_spending(snapshot, width), *_faults_and_alerts(snapshot, width)]
        for title, columns, rows in (
            ("Cost of inferences", COST, snapshot["costs"]),
            ("Devices", DEVICE, snapshot["devices"]),
            ("Budgets", BUDGET, snapshot["budgets"]),
            ("Sinks", SINK, snapshot["sinks"]),
        ):
            if rows:
                yield [_table(title, columns, rows, width)]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield all sections."""
        del console
        for section in self.sections(options.max_width):
            yield from section


def _head(snapshot: Mapping[str, Any]) -> Text:
    if snapshot["state"] is None:
        return Text("costprobe: no daemon has written a status yet", style="bold")
    host = _cut(str(snapshot["host"]))
    age = f"seen {ago(snapshot['age_s'])} ago"
    if snapshot["running"]:
        words = f"costprobe on {host}: {snapshot['state']}, {age}"
        return Text(one_line(words), style="bold")
    words = f"costprobe on {host}: NOT RUNNING, {age} as {snapshot['state']}"
    return Text(one_line(words), style="bold red")


def _spending(snapshot: Mapping[str, Any], width: int) -> Iterator[Text]:
    """Yield what the host costs an hour, and the largest change that no alert reports."""
    parts = []
    for one in snapshot["spending"]:
        if one["cost_per_h"] is not None:
            idle = "" if one["idle_share"] is None else f", {percent(one['idle_share'])} of it idle"
            assumed = " (price assumed)" if one["assumed"] else ""
            parts.append(f"{money(one['cost_per_h'], one['currency'])} an hour{assumed}{idle}")
    if snapshot["power_w"] is not None:
        parts.append(f"{snapshot['power_w'] / 1000:.3g} kW")
    if parts:
        yield from _fitted(", ".join(parts), "bold", width)
    change = snapshot["change"]
    if change is not None and all(
        change["title"] not in alert["summary"] for alert in snapshot["alerts"]
    ):
        cause = f"; cause: {change['cause']}" if change["cause"] else ""
        yield from _fitted(f"change: {change['title']}{cause}", "", width)


def _faults_and_alerts(snapshot: Mapping[str, Any], width: int) -> Iterator[Text]:
    faults, alerts = snapshot["faults"], snapshot["alerts"]
    for text in faults[:MAX_LINES]:
        yield from _fitted(f"FAULT  {text}", "bold red", width)
    if len(faults) > MAX_LINES:
        more = counted(len(faults) - MAX_LINES, "more fault")
        yield Text(f"and {more}: costprobe status", style="red")
    shown = [alert for alert in alerts if not alert["silenced"]]
    silenced = len(alerts) - len(shown)
    words = f"{counted(len(shown), 'alert')} firing" if shown else "no alert is firing"
    yield Text(words + (f", {silenced} silenced" if silenced else ""), "" if shown else "green")
    for alert in shown[:MAX_LINES]:
        line = f"{alert['severity']}: {alert['summary']}"
        yield from _fitted(line, _STYLES.get(alert["severity"], "yellow"), width)
    if len(shown) > MAX_LINES:
        yield Text(f"and {counted(len(shown) - MAX_LINES, 'more alert')}: costprobe alerts")


def _fitted(text: str, style: str, width: int) -> Iterator[Text]:
    for line in wrapped(one_line(text), width):
        yield Text(line, style=style)


def _cut(text: str) -> str:
    """Return a long name with its beginning and end, which distinguish similar names."""
    if len(text) <= MAX_CELL:
        return text
    half = MAX_CELL // 2
    return f"{text[: MAX_CELL - half - 1]}…{text[-half:]}"


def _table(title: str, columns: Sequence[Column], rows: Sequence[Row], width: int) -> Table:
    cells = {column: [_cut(one_line(column.cell(row))) for row in rows] for column in columns}
    wide = {column: max(map(len, [column.title, *cells[column]])) for column in columns}
    shown_columns = list(columns)
    while (
        len(shown_columns) > 1 and sum(wide[column] + GAP for column in shown_columns) - GAP > width
    ):
        shown_columns.remove(max(shown_columns, key=lambda column: column.rank))
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False,
        padding=(0, GAP, 0, 0),
    )  # fmt: skip
    for index, column in enumerate(shown_columns):
        # Text is left-aligned; longer text is cut, never wrapped.
        side = "left" if index == 0 or column.title in _TEXT_COLUMNS else "right"
        table.add_column(column.title, justify=side, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for index in range(len(rows)):
        # As Text, so that no content is interpreted as markup.
        table.add_row(*(Text(cells[column][index]) for column in shown_columns))
    return table


def _text(key: str) -> Callable[[Row], str]:
    return lambda row: str(row[key] or "-")


def _figure(key: str, unit: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row[key]
        if value is None:
            return "-"
        text = f"{value:,.0f}" if abs(value) >= _THREE_DIGITS else f"{value:.3g}"
        return f"{text} {unit}".rstrip()

    return cell


def _money(key: str, times: float = 1.0) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row[key]
        return "-" if value is None else money(value * times, row["currency"] or "?")

    return cell


def _share(key: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[key] is None else f"{percent(row[key])}"


def _memory(row: Row) -> str:
    used, total = row["mem_used_bytes"], row["mem_total_bytes"]
    return "-" if used is None or not total else f"{percent(used / total)}"


def _ago(key: str, end: str = "") -> Callable[[Row], str]:
    return lambda row: f"{ago(row[key])}{end}"


def _budget_state(row: Row) -> str:
    if row["exceeded"]:
        return "EXCEEDED"
    return "will be exceeded" if row["forecast_exceeded"] else "within plan"


def _subject(row: Row) -> str:
    return f"{row['of'] or '-'}{' (contended)' if row['contended'] else ''}"


def _scale(row: Row) -> int:
    """Return the number of inferences that a row's costs are written for, from its longest median."""
    known = (row[key] for key in ("rolling_7d", "rolling_24h", "rolling_1h", "cost_per_inference"))
    return price_scale(next((cost for cost in known if cost), 0.0))


def _price(key: str) -> Callable[[Row], str]:
    return lambda row: _money(key, _scale(row))(row)


# Left-aligned columns.
_TEXT_COLUMNS = frozenset({"model", "device", "basis", "state", "last error", "period"})
DEVICE = (
    Column("device", 0, _text("device")),
    Column("model", 8, _text("model")),
    Column("util", 1, _figure("util_pct", "%")),
    Column("power", 2, _figure("power_w", "W")),
    Column("temp", 3, _figure("temp_c", "°C")),
    Column("SM clock", 6, _figure("sm_clock_mhz", "MHz")),
    Column("memory", 5, _memory),
    Column("per hour", 4, _money("price_rate_per_h")),
    Column("updated", 7, _ago("age_s", " ago")),
)
COST = (
    Column("name", 0, _subject),
    Column("device", 4, _text("device")),
    Column("basis", 6, _text("basis")),
    Column("per", 1, lambda row: scale_words(_scale(row))),
    Column("now", 1, _price("cost_per_inference")),
    Column("1 h", 3, _price("rolling_1h")),
    Column("24 h", 2, _price("rolling_24h")),
    Column("7 d", 5, _price("rolling_7d")),
    Column("updated", 7, _ago("age_s", " ago")),
)
SINK = (
    Column("sink", 0, _text("sink")),
    Column("state", 1, _text("state")),
    Column("lag", 2, _ago("outbox_lag_s")),
    Column("queued", 3, lambda row: f"{row['outbox_points']:,}"),
    Column("sent", 5, lambda row: f"{row['sent_points_total']:,}"),
    Column("rejected", 6, lambda row: f"{row['rejected_points_total']:,}"),
    Column("dropped", 7, lambda row: f"{row['dropped_points_total']:,}"),
    Column("last error", 4, _text("last_error")),
)
BUDGET = (
    Column("budget", 0, _text("budget")),
    Column("period", 6, _text("period")),
    Column("spent", 1, _money("spent")),
    Column("planned", 2, _money("amount")),
    Column("forecast", 4, _money("forecast")),
    Column("elapsed", 5, _share("elapsed_share")),
    Column("coverage", 7, _share("coverage")),
    Column("state", 3, _budget_state),
)


# Keys of the live view, as a terminal sends them.
KEYS: Mapping[str, str] = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up",
    "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page up", "b": "page up",
    "\x1b[6~": "page down", " ": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "g": "home",
    "\x1b[F": "end", "\x1bOF": "end", "G": "end",
    "\t": "section",
}  # fmt: skip
# The last one is Ctrl-D.
QUITTING = ("q", "Q", "\x04")
_KEY = re.compile(r"\x1b[\[O][0-9;]{0,8}[A-Za-z~]|.", re.DOTALL)


class ScrolledView:
    """The lines of a view that fit the terminal, and a last line with position and keys.

    The first line, which shows whether the daemon runs, is always visible.

    Attributes:
        view: The newest snapshot.
    """

    def __init__(self, view: TopView) -> None:
        self.view = view
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
            self._scroll(KEYS.get(key, ""))
        return True

    def _scroll(self, key: str) -> None:
        first, page = self._first, self._page
        self._first = {
            "up": first - 1,
            "down": first + 1,
            "page up": first - page,
            "page down": first + page,
            "home": 0,
            "end": self._last,
            "section": next((start for start in self._starts if start > first), 0),
        }.get(key, first)
        # So that keys pressed at once end where single ones do.
        self._first = min(max(0, self._first), self._last)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the visible lines."""
        lines: list[list[Segment]] = []
        starts = []
        unlimited = options.update(height=None)
        for section in self.view.sections(options.max_width):
            starts.append(len(lines))
            for part in section:
                lines += console.render_lines(part, unlimited, pad=False)
        head, body = lines[0], lines[1:]
        self._page = page = max(1, options.size.height - 2)
        self._last = last = max(0, len(body) - page)
        self._first = first = min(self._first, last)
        # The head is no part of the body; a section at the end cannot be moved to the top.
        self._starts = [min(last, max(0, start - 1)) for start in starts]
        for line in [head, *body[first : first + page]]:
            yield from line
            yield Segment.line()
        yield Text(_position(first, page, len(body), options.max_width), style="dim", end="")


def _position(first: int, page: int, total: int, width: int) -> str:
    if total <= page:
        return "q quit"
    shown = f"lines {first + 1} to {min(first + page, total)} of {total}"
    keys = "↑ ↓ scroll  space/b page  tab next section  q quit"
    return next((text for text in (f"{shown}  {keys}", keys) if len(text) <= width), "q quit")
