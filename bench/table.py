"""Result rows of all benchmarks: our figure, the peer's, their ratio, the goal.

    table = Table()
    table.row("trend of 90 days", 31.0, "ms", peer=12.0, peer_name="plain SQLite", goal="≤ 50")
    sys.exit(finish(table, options.json))

A numeric goal such as "≤ 50" is evaluated here; a goal in words requires `met`. A row without a
goal is context.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HEADER = ("what", "ours", "peer", "ratio", "goal", "met")
_GOAL = re.compile(r"^\s*(≤|<=|<|≥|>=|>)\s*([0-9][0-9,.]*)")


def row(  # noqa: PLR0913 - the columns of the table
    name: str,
    ours: float,
    unit: str,
    *,
    peer: float | None = None,
    peer_name: str = "",
    goal: str = "",
    met: bool | None = None,
    note: str = "",
) -> dict[str, Any]:
    """Return one row.

    Args:
        name: What was measured.
        ours: Our figure.
        unit: Unit of both figures.
        peer: The peer's figure from the same run; None if there is none.
        peer_name: Name of the peer, also if it was not measured; `note` then has the reason.
        goal: Goal such as "≤ 50", in the unit; evaluated here unless `met` is given.
        met: Whether the goal was met.
        note: Conditions of the measurement.
    """
    ours, peer = float(ours), None if peer is None else float(peer)
    if met is None:
        met = is_goal_met(ours, goal)
    ratio = ours / peer if peer else None
    return {
        "name": name,
        "ours": ours,
        "unit": unit,
        "peer": peer,
        "peer_name": peer_name,
        "ratio": ratio,
        "goal": goal,
        "met": met,
        "note": note,
    }


def is_goal_met(ours: float, goal: str) -> bool | None:
    """Return whether a figure meets a goal such as "≤ 50"; None if the goal has another form."""
    match = _GOAL.match(goal)
    if match is None:
        return None
    limit = float(match[2].replace(",", ""))
    return {
        "≤": ours <= limit,
        "<=": ours <= limit,
        "<": ours < limit,
        "≥": ours >= limit,
        ">=": ours >= limit,
        ">": ours > limit,
    }[match[1]]


class Table:
    """The rows of one benchmark.

    Args:
        rows: Existing rows.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.rows = [dict(one) for one in rows]

    def row(self, name: str, ours: float, unit: str, **columns: Any) -> None:
        """Add a row; the columns are the keyword arguments of `row`."""
        self.rows.append(row(name, ours, unit, **columns))

    def show(self) -> None:
        """Print the rows as a Markdown table, followed by their notes."""
        print("\n".join(markdown(self.rows)))

    def write(self, path: str | Path) -> None:
        """Write the rows as a JSON list of objects."""
        Path(path).write_text(json.dumps(self.rows, indent=1, ensure_ascii=False) + "\n", "utf-8")

    def is_met(self) -> bool:
        """Return whether no goal was missed."""
        return all(one["met"] is not False for one in self.rows)


def markdown(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the table and of the notes."""
    rows = list(rows)
    cells = [HEADER, *(_cells(one) for one in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    lines = [_line(one, widths) for one in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    notes = list(dict.fromkeys(f"- {one['name']}: {one['note']}" for one in rows if one["note"]))
    return [*lines, *(["", *notes] if notes else [])]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(shown) + " |"


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    peer = "-" if one["peer"] is None else f"{figure(one['peer'])} {one['unit']}"
    if one["peer_name"]:
        peer += f" ({one['peer_name']})"
    return (
        one["name"],
        f"{figure(one['ours'])} {one['unit']}",
        peer,
        "-" if one["ratio"] is None else figure(one["ratio"]),
        one["goal"],
        {None: "", True: "yes", False: "**no**"}[one["met"]],
    )


def figure(value: float) -> str:
    """Format with three significant digits and thousands separators."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json FILE`, an option of every benchmark."""
    parser.add_argument("--json", metavar="FILE", help="write the rows here as JSON")


def finish(table: Table, json_path: str | None) -> int:
    """Print the rows, write them to `json_path` if set, and return the exit code: 1 if a goal was missed."""
    table.show()
    if json_path:
        table.write(json_path)
    return 0 if table.is_met() else 1
