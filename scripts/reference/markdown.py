"""The Markdown that the reference pages need."""

from __future__ import annotations

from collections.abc import Sequence
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


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "&#124;").split())
