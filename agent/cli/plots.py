"""What plots in a terminal share: curves that can be told apart with colours and without."""

from __future__ import annotations

import string
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import click

from agent.cli.colour import is_coloured

# Names that plotext and click share.
_COLOURS = ("blue", "red", "green", "magenta", "yellow", "cyan")
BRAILLE = "braille"
_MARKERS = (BRAILLE, "x", "o", "+", "*", "#", "@", "%")
# One for each point that has a name of its own; who is left over has no place on the plot.
LETTERS = string.ascii_uppercase + string.ascii_lowercase


def curves(count: int) -> list[tuple[str, Any]]:
    """Marker and colour of each of so many curves: in colours all are fine lines.

    Args:
        count: Curves in the plot.
    """
    if is_coloured():
        return [(BRAILLE, colour) for colour in islice(cycle(_COLOURS), count)]
    return [(marker, None) for marker in islice(cycle(_MARKERS), count)]


def legend(names: Sequence[str]) -> str:
    """Which curve is which, below the plot, where it hides none of them.

    Args:
        names: Of the curves, in the order of `curves`.
    """
    lines = []
    for name, (marker, colour) in zip(names, curves(len(names)), strict=True):
        line = "──" if marker == BRAILLE else marker * 2
        lines.append(f"{line if colour is None else click.style(line, fg=colour)} {name}")
    return "\n".join(lines)


def drawn(built: str) -> str:
    """A plot as it may be written: without colours where none may be.

    Args:
        built: As plotext gives it.
    """
    return built if is_coloured() else click.unstyle(built)
