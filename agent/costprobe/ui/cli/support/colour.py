"""Colours: only on a terminal, and not with NO_COLOR, --no-color or TERM=dumb."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, Literal

import click

from costprobe.core.outside import one_line

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
    """Return click's colour setting: False for never, None for terminals only.

    Args:
        environ: Environment with NO_COLOR (no-color.org: set and not empty) and TERM.
        refused: Whether --no-color was given.
    """
    if refused or environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return None


def is_coloured() -> bool:
    """Return whether standard output may contain colours."""
    context = click.get_current_context(silent=True)
    if context is not None and context.color is not None:
        return context.color
    return sys.stdout.isatty()


def paint(text: str, role: Role) -> str:
    """Return a printable text in a role's colour; click.echo strips it if colours are off."""
    return click.style(one_line(text), **_STYLES[role])
