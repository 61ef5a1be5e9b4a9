"""The one way of text to the terminal, in colours where it is one, and to files.

No text from outside can control the terminal or forge a line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import click

from costprobe.core.outside import one_line
from costprobe.ui.cli.support.fitting import terminal_columns, wrapped
from costprobe.ui.cli.support.place import bad_input

# A colour that click or plotext set.
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]{0,20}m)")


def echo(text: str, role: Role | None = None, *, err: bool = False) -> None:
    """Print one line; on a terminal as lines that fit its width.

    Args:
        text: The line, without colours; a line break in it becomes a space.
        role: Its colour; None for none.
        err: Whether it goes to standard error.
    """
    for line in wrapped(one_line(text), terminal_columns(err=err)):
        click.echo(line if role is None else paint(line, role), err=err)


def echo_json(document: Any) -> None:  # noqa: ANN401 - any JSON document
    """Print a JSON document as one line, on a terminal too."""
    click.echo(one_line(json.dumps(document)))


def echo_file(lines: Iterable[str]) -> None:
    """Print the lines of a file for another program as they are, on a terminal too."""
    for line in lines:
        click.echo(one_line(line))


def echo_lines(lines: Iterable[str], words: Iterable[tuple[str, Role]] = ()) -> None:
    """Print lines, each in the colour of the first of some words that it contains.

    Args:
        lines: The lines, without colours; a line break in one becomes a space. On a terminal they
            are divided at spaces to fit its width.
        words: The words, the most important first.
    """
    words = tuple(words)
    columns = terminal_columns()
    for line in lines:
        shown = one_line(line)
        role = next((role for word, role in words if word in shown), None)
        for part in wrapped(shown, columns):
            click.echo(part if role is None else paint(part, role))


def echo_answer(document: Any, lines: Iterable[str], *, as_json: bool) -> None:  # noqa: ANN401 - any JSON document
    """Print an answer as JSON, or as lines; of the other one nothing is computed that is lazy."""
    if as_json:
        echo_json(document)
    else:
        echo_lines(lines)


def echo_coloured(lines: Iterable[str]) -> None:
    """Print lines with the colours of `paint` and of plots; on a terminal they fit its width.

    Args:
        lines: The lines; texts from outside in them have passed `one_line` or `paint`.
    """
    columns = terminal_columns()
    for line in lines:
        parts = _COLOUR.split(line)
        shown = "".join(part if n % 2 else one_line(part) for n, part in enumerate(parts))
        for text in wrapped(shown, columns):
            click.echo(text)


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


def replace_file(file: Path, text: str) -> None:
    """Replace a file atomically, so that a web server never serves an incomplete one.

    Raises:
        click.ClickException: It cannot be written.
    """
    from costprobe.adapters.host import files  # noqa: PLC0415 - only a command that writes one

    try:
        files.replace_file(file, text.encode())
    except OSError as error:
        raise bad_input(f"{file}: cannot be written: {error.strerror}") from error
