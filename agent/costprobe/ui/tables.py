"""A table of a report: heads and cells as text, for Markdown and for the template of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costprobe.ui.text import escaped


@dataclass(frozen=True, slots=True)
class Table:
    """A table; texts from outside are escaped when it is rendered.

    Attributes:
        heads: Head of each column.
        rows: Cells of each row, as many as there are heads.
        text_columns: Columns at the left with text; the others are numbers, aligned to the right.
        caption: What the figures are; empty if the heads say it.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    caption: str = ""

    def markdown(self) -> Iterator[str]:
        """Yield the lines of GitHub-flavoured Markdown."""
        if self.caption:
            yield from (escaped(self.caption), "")
        rules = ["---" if n < self.text_columns else "---:" for n in range(len(self.heads))]
        for row in (self.heads, rules, *self.rows):
            cells = row if row is rules else map(escaped, row)
            yield f"| {' | '.join(cells)} |"
