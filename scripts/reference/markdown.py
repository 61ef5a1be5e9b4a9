"""The Markdown that the reference pages need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

MADE = "<!-- Made by python -m scripts.reference: change the code that it describes instead. -->\n"


def code(text: str) -> str:
    """Return text as code, safe in a table even with a pipe."""
    if "|" in text:
        # Backticks with an escaped pipe are shown differently by GitHub and by the site.
        return f"<code>{escape(text)}</code>".replace("|", "&#124;<wbr>")
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; a pipe in a cell is written as an entity."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


class Tables:
    """The tables of a page, in which a row of several tables is shown once, in a table of its own.

    Attributes:
        shared: That table.
    """

    def __init__(
        self,
        head: Sequence[str],
        tables: Iterable[Sequence[Sequence[str]]],
        *,
        least: int,
        where: str,
    ) -> None:
        """Find the rows that occur in at least so many tables; of two with the same first cell the more frequent.

        Args:
            head: The head of each table.
            tables: Rows of all tables.
            least: Number of tables.
            where: The shared table, as a link.
        """
        counts = Counter(tuple(row) for rows in tables for row in rows)
        self._head, self._where, self._rows = head, where, dict[str, tuple[str, ...]]()
        for row, number in counts.most_common():
            if number >= least:
                self._rows.setdefault(row[0], row)
        self.shared = table(head, [row for _, row in sorted(self._rows.items())])

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Return the lines of a table: the names of its shared rows, then its own rows."""
        own = [row for row in rows if self._rows.get(row[0]) != tuple(row)]
        also = ", ".join(row[0] for row in rows if row not in own)
        lines = [f"{self._where}: {also}.", ""] if also else []
        return [*lines, table(self._head, own), ""] if own else lines


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "&#124;").split())
