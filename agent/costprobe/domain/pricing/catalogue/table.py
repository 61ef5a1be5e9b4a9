"""Rows of a CSV table from outside the process, with limits, and its fields as checked values."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

MAX_ROWS = 20_000
MAX_CELL_CHARS = 400
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_MONTH = re.compile(r"20\d\d(-(0[1-9]|1[0-2]))?(-(0[1-9]|[12]\d|3[01]))?")


class Row(NamedTuple):
    """One row: the number of its line, and its cells by column."""

    line: int
    cells: dict[str, str]

    def text(self, column: str, *, required: bool = False) -> str:
        """Return a cell.

        Raises:
            ValueError: It is too long, contains control characters, or is empty and required.
        """
        value = self.cells[column].strip()
        if len(value) > MAX_CELL_CHARS or not value.isprintable():
            raise self.error(column, f"more than {MAX_CELL_CHARS} or unprintable characters")
        if required and not value:
            raise self.error(column, "is empty")
        return value

    def number(self, column: str, least: Decimal, largest: Decimal) -> Decimal | None:
        """Return a number; None for an empty cell.

        Raises:
            ValueError: It is no number from `least` to `largest`.
        """
        text = self.text(column)
        if not text:
            return None
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise self.error(column, "is not a number") from None
        if not value.is_finite() or not least <= value <= largest:
            raise self.error(column, f"{text} is not from {least} to {largest}")
        return value

    def month(self, column: str) -> str:
        """Return a day, month or year as in ISO 8601; empty for an empty cell.

        Raises:
            ValueError: It is none.
        """
        text = self.text(column)
        if text and not _MONTH.fullmatch(text):
            raise self.error(column, "is not a date such as 2026-07")
        return text

    def error(self, column: str, problem: str) -> ValueError:
        """Return an error with the place in the file."""
        return ValueError(f"line {self.line}: {column}: {problem}")


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a table with their ends; a list of all would cost the daemon memory."""
    return (found[0] for found in _LINE.finditer(text))


def rows_of(lines: Iterable[str], columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a CSV table; lines that begin with # are comments.

    Args:
        lines: The lines of the table, with a header.
        columns: The header that it must have.

    Raises:
        ValueError: Another header, too many rows, or a row with too few or too many cells.
    """
    # Comments become empty lines, which the parser skips, so that the numbers of lines stay right.
    reader = csv.reader(("\n" if line.startswith("#") else line for line in lines), strict=True)
    try:
        table = ((reader.line_num, cells) for cells in reader if cells)
        _, header = next(table, (0, []))
        if header != list(columns):
            raise ValueError(f"its header is not {','.join(columns)}")
        for number, (line, cells) in enumerate(table):
            if number >= MAX_ROWS:
                raise ValueError(f"has more than {MAX_ROWS} rows")
            if len(cells) != len(columns):
                raise ValueError(f"line {line}: has {len(cells)} cells, not {len(columns)}")
            yield Row(line, dict(zip(columns, cells, strict=True)))
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: not valid CSV ({error})") from error
