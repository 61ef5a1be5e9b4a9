"""Colours: only on a terminal, and nowhere where NO_COLOR, --no-color or TERM=dumb says so."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import click

Role = Literal["good", "note", "bad", "faint", "strong"]

_STYLES: Final[Mapping[Role, Mapping[str, Any]]] = {
    "good": {"fg": "green"},
    "note": {"fg": "yellow"},
    "bad": {"fg": "red", "bold": True},
    "faint": {"dim": True},
    "strong": {"bold": True},
}
SEVERITIES: Final[Mapping[str, Role]] = {"info": "faint", "warning": "note", "critical": "bad"}


def colour_of(environ: Mapping[str, str], *, refused: bool) -> bool | None:
    """What click is to do with colours: False for never, None for on terminals alone.

    Args:
        environ: Where NO_COLOR (no-color.org: set, and not empty) and TERM are looked up.
        refused: Whether --no-color was given.
    """
    if refused or environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return None


def is_coloured() -> bool:
    """Whether what is written to standard output now may hold colours."""
    context = click.get_current_context(silent=True)
    if context is not None and context.color is not None:
        return context.color
    return sys.stdout.isatty()


def paint(text: str, role: Role) -> str:
    """A text in a role's colour; click.echo takes the colour away where none may be."""
    return click.style(text, **_STYLES[role])


def painted(line: str, words: Iterable[tuple[str, Role]]) -> str:
    """A line in the colour of the first word that it holds.

    Args:
        line: As it is without colours.
        words: What to look for, the most important first.
    """
    for word, role in words:
        if word in line:
            return paint(line, role)
    return line
