"""Shared by terminal plots: curves that are distinguishable with and without colours."""

from __future__ import annotations

import string
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import click

from costprobe.core.outside import one_line
from costprobe.ui.cli.support.colour import is_coloured

# Names that plotext and click share.
_COLOURS = ("blue", "red", "green", "magenta", "yellow", "cyan")
BRAILLE = "braille"
_MARKERS = (BRAILLE, "x", "o", "+", "*", "#", "@", "%")
# One for each named point; further points are not plotted.
LETTERS = string.ascii_uppercase + string.ascii_lowercase


def curves(count: int) -> list[tuple[str, Any]]:
    """Return marker and colour of each curve; with colours all are braille lines.

    Args:
        count: Curves in the plot.
    """
    if is_coloured():
        return [(BRAILLE, colour) for colour in islice(cycle(_COLOURS), count)]
    return [(marker, None) for marker in islice(cycle(_MARKERS), count)]


def legend(names: Sequence[str]) -> str:
    """Return the legend below the plot.

    Args:
        names: Names of the curves, in the order of `curves`.
    """
    lines = []
    for name, (marker, colour) in zip(names, curves(len(names)), strict=True):
        line = "──" if marker == BRAILLE else marker * 2
        lines.append(f"{line if colour is None else click.style(line, fg=colour)} {one_line(name)}")
    return "\n".join(lines)


def drawn(built: str) -> str:
    """Return a plot for output: without colours if they are off.

    Args:
        built: Output of plotext.
    """
    return built if is_coloured() else click.unstyle(built)
