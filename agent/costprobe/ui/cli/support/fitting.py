"""Text and tables that fit the width of a terminal; a number is never divided."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from typing import Final

from costprobe.ui.tables import GAP, GLUE, Table, glued

# A label such as "service  " at the start of a line: further lines are indented by it.
MAX_LABEL = 24
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_LABEL: Final = re.compile(r" *(?:\S+ {2,})?")
# A command to copy: "run: costprobe probe ranker --sweep".
_COMMAND: Final = re.compile(r"(?<=: )(?:sudo )?costprobe [^;,()]*")


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
    return [text.replace(GLUE, " ") for text in (*lines, current)]


def _width(text: str) -> int:
    return len(_COLOUR.sub("", text))


def _glued(line: str, columns: int) -> str:
    def keep(found: re.Match[str]) -> str:
        command = found[0].rstrip()
        end = found[0][len(command) :]
        return (command.replace(" ", GLUE) if len(command) <= columns else command) + end

    return glued(_COMMAND.sub(keep, line))


def table_lines(
    rows: Sequence[Sequence[str]],
    text_columns: int = 1,
    ranks: Sequence[int] = (),
    *,
    has_prose: bool = False,
) -> list[str]:
    """Return the lines of a table that fits the terminal: without one as wide as its content.

    Args:
        rows: The heads, then the rows; all of the same length.
        text_columns: The number of columns at the left with text.
        ranks: Rank of each column; see `Table`.
        has_prose: Whether the last column is sentences.
    """
    heads, *cells = rows
    table = Table(heads, cells, text_columns, ranks=ranks, has_prose=has_prose)
    return [*table.lines(terminal_columns())]
