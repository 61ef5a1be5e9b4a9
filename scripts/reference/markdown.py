"""As much Markdown as the reference pages need."""

from __future__ import annotations

from collections.abc import Sequence

MADE = "<!-- Made by python -m scripts.reference: change the code that it describes instead. -->\n"


def code(text: str) -> str:
    """Text as code, also where it holds a pipe and stands in a table."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, a line each row."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    # A pipe that is not yet escaped would end the cell.
    return " ".join(text.replace("\\|", "|").replace("|", "\\|").split())
