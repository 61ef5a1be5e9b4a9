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
import operator
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HEADER = ("what", "ours", "peer", "ratio", "goal", "met")
_GOAL = re.compile(r"\s*(≤|<|≥|>)\s*([0-9][0-9,.]*)")
_MEETS = {"≤": operator.le, "<": operator.lt, "≥": operator.ge, ">": operator.gt}


class Table:
    """The rows of one benchmark."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def row(  # noqa: PLR0913 - the columns of the table
        self,
        name: str,
        ours: float,
        unit: str,
        *,
        peer: float | None = None,
        peer_name: str = "",
        goal: str = "",
        met: bool | None = None,
        note: str = "",
    ) -> None:
        """Add a row.

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
        if met is None and (match := _GOAL.match(goal)):
            met = _MEETS[match[1]](ours, float(match[2].replace(",", "")))
        self.rows.append(
            {
                "name": name,
                "ours": float(ours),
                "unit": unit,
                "peer": peer,
                "peer_name": peer_name,
                "ratio": ours / peer if peer else None,
                "goal": goal,
                "met": met,
                "note": note,
            }
        )


def markdown(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the table and of the notes."""
    rows = list(rows)
    cells = [HEADER, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"| {' | '.join(map(str.ljust, line, widths))} |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    notes = list(dict.fromkeys(f"- {one['name']}: {one['note']}" for one in rows if one["note"]))
    return [*lines, *(["", *notes] if notes else [])]


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
    print("\n".join(markdown(table.rows)))
    if json_path:
        text = json.dumps(table.rows, indent=1, ensure_ascii=False)
        Path(json_path).write_text(text + "\n", "utf-8")
    return int(any(one["met"] is False for one in table.rows))
