"""The one way of text to the terminal: no text from outside can control it or forge a line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import click

from costprobe.core.printable import one_line
from costprobe.ui.cli.support.colour import Role, paint, painted

# A colour that click or plotext set.
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]{0,20}m)")


def echo(text: str, role: Role | None = None, *, err: bool = False) -> None:
    """Print one line.

    Args:
        text: The line, without colours; a line break in it becomes a space.
        role: Its colour; None for none.
        err: Whether it goes to standard error.
    """
    shown = one_line(text)
    click.echo(shown if role is None else paint(shown, role), err=err)


def echo_lines(lines: Iterable[str], words: Iterable[tuple[str, Role]] = ()) -> None:
    """Print lines, each in the colour of the first of some words that it contains.

    Args:
        lines: The lines, without colours; a line break in one becomes a space.
        words: The words, the most important first.
    """
    words = tuple(words)
    for line in lines:
        click.echo(painted(one_line(line), words))


def echo_coloured(lines: Iterable[str]) -> None:
    """Print lines with the colours of `paint` and of plots.

    Args:
        lines: The lines; texts from outside in them have passed `one_line` or `paint`.
    """
    for line in lines:
        parts = _COLOUR.split(line)
        click.echo("".join(part if n % 2 else one_line(part) for n, part in enumerate(parts)))
