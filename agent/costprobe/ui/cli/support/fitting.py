"""Text and tables that fit the width of a terminal; a number is never divided."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

GAP = 2
# A label such as "service  " at the start of a line: further lines are indented by it.
MAX_LABEL = 24
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_LABEL: Final = re.compile(r" *(?:\S+ {2,})?")
# Spaces within "5.3 ms", "80 %" and "± 5".
_IN_NUMBER: Final = re.compile(
    r"(?:(?<=[ (±<>$€+-])|^)([\d.,]*\d) (?=\S{1,3}(?:[ ,;):]|$))|([±<>]) (?=\d)"
)
# A command to copy: "run: costprobe probe ranker --sweep".
_COMMAND: Final = re.compile(r"(?<=: )(?:sudo )?costprobe [^;,()]*")
_GLUE: Final = "\0"


def terminal_columns(*, err: bool = False) -> int | None:
    """Return the width of the terminal; None for a file or pipe, which gets whole lines."""
    stream = sys.stderr if err else sys.stdout
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(line: str, columns: int | None) -> list[str]:
    """Divide a line at spaces into lines of at most so many columns; a longer word is kept whole.

    Args:
        line: One line, with or without colours.
        columns: Width of the terminal; None for any.
    """
    if columns is None or _width(line) <= columns:
        return [line]
    label = _LABEL.match(_COLOUR.sub("", line))
    indent = label.end() if label is not None and 0 < label.end() <= MAX_LABEL else GAP
    lines: list[str] = []
    current = ""
    for gap, word in re.findall(r"( *)([^ ]+)", _glued(line, columns - indent)):
        if current.strip() and _width(current + gap + word) > columns:
            lines.append(current)
            current = " " * indent + word
        else:
            current += gap + word
    return [text.replace(_GLUE, " ") for text in (*lines, current)]


def _width(text: str) -> int:
    return len(_COLOUR.sub("", text))


def _glued(line: str, columns: int) -> str:
    def keep(found: re.Match[str]) -> str:
        command = found[0].rstrip()
        end = found[0][len(command) :]
        return (command.replace(" ", _GLUE) if len(command) <= columns else command) + end

    return _IN_NUMBER.sub(lambda found: f"{found[1] or found[2]}{_GLUE}", _COMMAND.sub(keep, line))


def table_lines(rows: Sequence[Sequence[str]], text_columns: int = 1) -> list[str]:
    """Return the lines of a table that fits the terminal: without one as wide as its content.

    In a narrow terminal columns without a value are left out, and words of text columns continue on
    further lines. If that is not enough, each row takes as many lines as its cells need.

    Args:
        rows: The heads, then the rows; all of the same length.
        text_columns: The number of columns at the left with text; the others are numbers, aligned to
            the right, and never divided.
    """
    columns = terminal_columns()
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    if columns is not None and _total(widths) > columns:
        rows = _known(rows)
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    if columns is not None and _total(widths) > columns:
        narrowed = _narrowed(rows, widths, text_columns, columns)
        if narrowed is None:
            return _folded(rows, widths, text_columns, columns)
        widths = narrowed
    return [line for row in rows for line in _lines(row, widths, text_columns)]


def _known(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the rows without the columns in which no row has a value."""
    kept = [cells for cells in zip(*rows, strict=True) if not {*cells[1:]} <= {"", "-"}]
    return list(zip(*kept, strict=True))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _narrowed(
    rows: Sequence[Sequence[str]], widths: Sequence[int], text_columns: int, columns: int
) -> list[int] | None:
    """Return widths that fit, with every word of a text column whole; None if none fit."""
    least = [
        max((len(word) for row in rows for word in row[column].split()), default=0)
        for column in range(text_columns)
    ]
    found = list(widths)
    while _total(found) > columns:
        widest = max(range(text_columns), key=lambda column: found[column] - least[column])
        if found[widest] <= least[widest]:
            return None
        found[widest] -= 1
    return found


def _lines(row: Sequence[str], widths: Sequence[int], text_columns: int) -> list[str]:
    """Return a row as lines: text continues below, numbers are on the first one."""
    texts = [
        textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]
        if column < text_columns and len(cell) > width
        else [cell]
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return [
        (" " * GAP)
        .join(
            _aligned(cell[number] if number < len(cell) else "", width, column < text_columns)
            for column, (cell, width) in enumerate(zip(texts, widths, strict=True))
        )
        .rstrip()
        for number in range(max(map(len, texts)))
    ]


def _aligned(cell: str, width: int, is_text: bool) -> str:  # noqa: FBT001 - of each cell
    return cell.ljust(width) if is_text else cell.rjust(width)


def _folded(
    rows: Sequence[Sequence[str]], widths: Sequence[int], text_columns: int, columns: int
) -> list[str]:
    """Return each row as several lines of whole cells; all but the first are indented."""
    groups: list[list[int]] = []
    for column, width in enumerate(widths):
        before = [widths[one] for one in groups[-1]] if groups else []
        if not groups or GAP + _total([*before, width]) > columns:
            groups.append([])
        groups[-1].append(column)
    lines = []
    for row in rows:
        for number, group in enumerate(groups):
            cells = [_aligned(row[one], widths[one], one < text_columns) for one in group]
            line = (" " * GAP).join([*([""] if number else []), *cells]).rstrip()
            lines += wrapped(line, columns)
    return lines
