"""The one filter of text for terminals, files and messages."""

from __future__ import annotations

import re
from typing import Final

_HOLE: Final = re.compile(r"(?<=[^ \0]) *\0[ \0]*|\0+")
# Characters that begin a formula in a spreadsheet.
_FORMULA_MARKS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 - their wide forms


def one_line(text: str) -> str:
    """Return a text as one printable line.

    Control characters, line breaks, and invisible characters that change the direction of text
    become one space together with the white space beside them.

    Args:
        text: Text from outside: of a module, a server, a silence, the store.
    """
    if text.isprintable():
        return text
    shown = "".join(mark if mark.isprintable() else "\0" for mark in text)
    return _HOLE.sub(" ", shown).rstrip()


def csv_cell(text: str) -> str:
    """Return a text as a cell of CSV: one line that no spreadsheet evaluates as a formula.

    Such a text gets an apostrophe in front; numbers stay as they are.
    """
    line = one_line(text)
    is_formula = text.startswith(_FORMULA_MARKS) or line.lstrip().startswith(_FORMULA_MARKS)
    return f"'{line}" if is_formula and not _is_number(line) else line


def from_csv_cell(text: str) -> str:
    """Return the text that `csv_cell` neutralized."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(_FORMULA_MARKS) else text


def _is_number(text: str) -> bool:
    # float() takes "+inf", "1_000" and digits of other scripts, too.
    if not set(text) <= set("+-.0123456789eE"):
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True
