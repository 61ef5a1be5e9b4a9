"""A table: heads and cells as text, for a terminal of any width, Markdown, CSV and the template of a page."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from costprobe.core.outside import csv_cell
from costprobe.ui.text import escaped

# Columns between two cells on a terminal, and the narrowest column of prose or of a long name.
GAP = 2
LEAST_TEXT = 30
# Spaces within "5.3 ms", "80 %" and "± 5", and what is in their place while a text is divided.
_IN_NUMBER: Final = re.compile(
    r"(?:(?<=[ (±<>$€+-])|^)([\d.,]*\d) (?=\S{1,3}(?:[ ,;):]|$))|([±<>]) (?=\d)"
)
GLUE: Final = "\0"


def glued(text: str) -> str:
    """Return a text in which a number and its unit are one word."""
    return _IN_NUMBER.sub(lambda found: f"{found[1] or found[2]}{GLUE}", text)


@dataclass(frozen=True, slots=True)
class Table:
    """A table; texts from outside are escaped when it is rendered.

    Attributes:
        heads: Head of each column.
        rows: Cells of each row, as many as there are heads.
        text_columns: Columns at the left with text; the others are numbers, aligned to the right.
        caption: What the figures are; empty if the heads say it.
        ranks: Rank of each column: those above 0 are left out first in a narrow terminal, the highest first.
        has_prose: Whether the last column is sentences, which continue on further lines before a column is left out.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    caption: str = ""
    ranks: Sequence[int] = ()
    has_prose: bool = False

    def markdown(self) -> Iterator[str]:
        """Yield the lines of GitHub-flavoured Markdown."""
        if self.caption:
            yield from (escaped(self.caption), "")
        rules = ["---" if n < self.text_columns else "---:" for n in range(len(self.heads))]
        for row in (self.heads, rules, *self.rows):
            cells = row if row is rules else map(escaped, row)
            yield f"| {' | '.join(cells)} |"

    def lines(self, width: int | None) -> Iterator[str]:
        """Yield the lines for a terminal, and which columns it is too narrow for.

        Columns without a value are left out first, then those with a rank. Then texts continue on further
        lines, and then columns at the right are left out. A number is never divided, and a name only if it is long.

        Args:
            width: Columns of the terminal; None for any.
        """
        rows = [self.heads, *self.rows]
        wide = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        shown = list(range(len(wide)))
        left_out: list[int] = []
        if width is not None and _total(wide, shown) > width:
            known = [n for n in shown if n == 0 or not {row[n] for row in self.rows} <= {"", "-"}]
            shown, ranks = known, dict(enumerate(self.ranks))
            least = [
                min(
                    LEAST_TEXT,
                    max((len(word) for row in rows for word in row[n].split()), default=0),
                )
                if n < self.text_columns
                else wide[n]
                for n in range(len(wide))
            ]
            needed = [*wide[:-1], min(wide[-1], LEAST_TEXT) if self.has_prose else wide[-1]]
            for n in sorted((n for n in known if ranks.get(n)), key=lambda n: -ranks[n]):
                if _total(needed, shown) > width:
                    left_out.append(n)
                    shown.remove(n)
            while len(shown) > 1 and _total(least, shown) > width:
                left_out.append(shown.pop())
            texts = [n for n in shown if wide[n] > least[n]]
            while texts and _total(wide, shown) > width:
                widest = max(texts, key=lambda n: wide[n] - least[n])
                if wide[widest] == least[widest]:
                    break
                wide[widest] -= 1
        for row in rows:
            yield from self._row_lines(row, shown, wide)
        if left_out and width is not None:
            names = ", ".join(self.heads[n] for n in sorted(left_out))
            yield from textwrap.wrap(f"without {names}: the terminal is too narrow", width)

    def _row_lines(
        self, row: Sequence[str], shown: Sequence[int], wide: Sequence[int]
    ) -> Iterator[str]:
        """Yield a row: text continues below, numbers are on the first line."""
        cells = [
            textwrap.wrap(glued(row[n]), wide[n], break_on_hyphens=False) or [""]
            if len(row[n]) > wide[n]
            else [row[n]]
            for n in shown
        ]
        for number in range(max(map(len, cells))):
            parts = (
                part[number].replace(GLUE, " ") if number < len(part) else "" for part in cells
            )
            yield (
                (" " * GAP)
                .join(
                    part.ljust(wide[n]) if n < self.text_columns else part.rjust(wide[n])
                    for n, part in zip(shown, parts, strict=True)
                )
                .rstrip()
            )


def _total(wide: Sequence[int], shown: Sequence[int]) -> int:
    return sum(wide[n] + GAP for n in shown) - GAP


def csv_lines(heads: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a CSV file; an unknown value is empty, and names in a list are one text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for row in rows:
        cells = (row.get(head) for head in heads)
        writer.writerow(csv_cell(" ".join(c) if isinstance(c, list) else c) for c in cells)
    yield from text.getvalue().splitlines()
