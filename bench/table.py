"""Result rows of all benchmarks: our figure, the peer's, their ratio, the goal.

    table = Table()
    table.row("trend of 90 days", 31.0, "ms", peer=12.0, peer_name="plain SQLite", goal="≤ 50")
    sys.exit(finish(table))

A numeric goal such as "≤ 50" is evaluated here; a goal in words requires `met`. A row without a
goal is context.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HEADER = ("what", "ours", "peer", "ratio", "goal", "met")
_GOAL = re.compile(r"^\s*(≤|<=|<|≥|>=|>)\s*([0-9][0-9,.]*)")


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
        ours, peer = float(ours), None if peer is None else float(peer)
        if met is None:
            met = is_goal_met(ours, goal)
        ratio = ours / peer if peer else None
        self.rows.append(
            {
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
        )


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


def finish(table: Table) -> int:
    """Print the rows as Markdown with their notes, and return the exit code: 1 if a goal was missed."""
    print("\n".join(markdown(table.rows)))
    return int(any(one["met"] is False for one in table.rows))
