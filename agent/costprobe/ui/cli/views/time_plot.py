"""Curves over time, drawn with braille characters of two by four dots.

A curve has one vertical run of dots in each column; a column is a number whose bits are its dots.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import click

from costprobe.ui.cli.views.plots import BRAILLE

_DOTS_ACROSS: Final = 2
_DOTS_DOWN: Final = 4
# Bits of a braille character by its dots from the top down, in the left and the right column.
_BITS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK: Final = 0x2800
_LABEL_EVERY: Final = 3  # rows
_COLUMNS_MIN: Final = 16
_LABEL_CHARACTERS: Final = 11  # "-1.234e+308"


class PlotCurve(NamedTuple):
    """A series to draw.

    Attributes:
        times_ns: UTC ns, ascending.
        values: One for each time.
        marker: "braille" for dots, or a character.
        colour: click's name of the colour; None for none.
    """

    times_ns: Sequence[int]
    values: Sequence[float]
    marker: str = BRAILLE
    colour: str | None = None


class PlotSpan(NamedTuple):
    """Time range of a plot.

    Attributes:
        since_ns: UTC ns at its left edge.
        until_ns: UTC ns at its right edge.
    """

    since_ns: int
    until_ns: int


class _PlotArea(NamedTuple):
    """Time range and size in dots of the plot.

    Attributes:
        since_ns: UTC ns at its left edge.
        until_ns: UTC ns at its right edge.
        width: Columns of dots.
        height: Rows of dots.
    """

    since_ns: int
    until_ns: int
    width: int
    height: int


def time_plot(
    title: str,
    curves: Sequence[PlotCurve],
    columns: int,
    rows: int,
    format_time: Callable[[int], str],
    span: PlotSpan | None = None,
) -> str:
    """Return a framed plot of curves with scales; where curves meet, the last is on top.

    Args:
        title: Title of the plot.
        curves: At least one; each has at least one value.
        columns: Characters of a line.
        rows: Lines inside the frame.
        format_time: Formats a UTC time in ns for the scale.
        span: Time range with every time of the curves; by default theirs.
    """
    since_ns, until_ns = span or PlotSpan(
        min(curve.times_ns[0] for curve in curves), max(curve.times_ns[-1] for curve in curves)
    )
    inner = max(_COLUMNS_MIN, columns - _LABEL_CHARACTERS - 2)
    frame = _PlotArea(since_ns, until_ns, inner * _DOTS_ACROSS, rows * _DOTS_DOWN)
    lines = [_medians(curve, frame) for curve in curves]
    low = min(value for line in lines for _, value in line)
    high = max(value for line in lines for _, value in line)
    layers = [_dots(line, low, high, frame) for line in lines]
    indent = " " * _LABEL_CHARACTERS
    return "\n".join(
        [
            indent + title.center(inner + 2).rstrip(),
            f"{indent}┌{'─' * inner}┐",
            *(
                f"{label.rjust(_LABEL_CHARACTERS)}{'┤' if label else '│'}{text}│"
                for label, text in zip(
                    _scale(low, high, rows), _cells(layers, curves, rows), strict=True
                )
            ),
            f"{indent}└{'─' * inner}┘",
            indent + _time_scale(frame, inner + 2, format_time),
        ]
    )


def _medians(curve: PlotCurve, frame: _PlotArea) -> list[tuple[int, float]]:
    """Return one value for each column of dots: the median, robust against outliers."""
    since_ns, scale = frame.since_ns, (frame.width - 1) / max(1, frame.until_ns - frame.since_ns)
    columns: dict[int, list[float]] = {}
    for time_ns, value in zip(curve.times_ns, curve.values, strict=True):
        columns.setdefault(int((time_ns - since_ns) * scale), []).append(value)
    return [(column, statistics.median(values)) for column, values in columns.items()]


def _dots(
    line: Sequence[tuple[int, float]], low: float, high: float, frame: _PlotArea
) -> list[int]:
    """Return a curve's dots by column; bit 0 of a column is its lowest dot."""
    masks = [0] * frame.width
    # Halves, so that the range cannot overflow; divided last, so that a tiny range cannot either.
    half_range = (high / 2 - low / 2) or 1.0
    dots = [
        (column, round((value / 2 - low / 2) / half_range * (frame.height - 1)))
        for column, value in line
    ]
    column, dot = dots[0]
    masks[column] |= 1 << dot
    for (column, dot), (next_column, next_dot) in pairwise(dots):
        rise = (next_dot - dot) / (next_column - column)
        before = dot
        for across in range(1, next_column - column + 1):
            now = round(dot + rise * across)
            least, most = (before, now) if before < now else (now, before)
            # Extend to the next dot, so that a steep curve stays connected.
            masks[column + across] |= (1 << (most - least + 1)) - 1 << least
            before = now
    return masks


def _cells(layers: Sequence[Sequence[int]], curves: Sequence[PlotCurve], rows: int) -> list[str]:
    """Return the lines of characters of the dots, from the top."""
    lines = []
    for row in range(rows - 1, -1, -1):
        shift = row * _DOTS_DOWN
        # Dots of each character, and the curve that determines its look.
        dots = [0] * (len(layers[0]) // _DOTS_ACROSS)
        looks: list[PlotCurve | None] = [None] * len(dots)
        for masks, curve in zip(layers, curves, strict=True):
            pairs = zip(masks[::_DOTS_ACROSS], masks[1::_DOTS_ACROSS], strict=True)
            for column, (left, right) in enumerate(pairs):
                both = (left >> shift & 0xF) << _DOTS_DOWN | right >> shift & 0xF
                if both:
                    dots[column] |= both
                    looks[column] = curve
        lines.append("".join(map(_cell, dots, looks)))
    return lines


def _cell(dots: int, curve: PlotCurve | None) -> str:
    """Return one character of the plot."""
    if curve is None:
        return " "
    character = _CHARACTERS[dots] if curve.marker == BRAILLE else curve.marker
    return character if curve.colour is None else click.style(character, fg=curve.colour)


def _character(left: int, right: int) -> str:
    bits = sum(
        bit
        for half, four in zip(_BITS, (left, right), strict=True)
        for down, bit in enumerate(half)
        if four >> (_DOTS_DOWN - 1 - down) & 1
    )
    return chr(_BLANK + bits) if bits else " "


_CHARACTERS: Final = [
    _character(both >> _DOTS_DOWN, both & 0xF) for both in range(1 << 2 * _DOTS_DOWN)
]


def _scale(low: float, high: float, rows: int) -> list[str]:
    """Return the label of each line, from the top; most are empty."""
    labels = [""] * rows
    for row in range(0, rows, _LABEL_EVERY):
        share = row / (rows - 1)
        labels[rows - 1 - row] = f"{low * (1 - share) + high * share:.4g}"
    return labels


def _time_scale(frame: _PlotArea, width: int, format_time: Callable[[int], str]) -> str:
    """Return the time axis: labels at the edges and as many between as fit."""
    room = len(format_time(frame.since_ns)) + 2
    parts = max(1, min(4, width // room - 1))
    text = [" "] * width
    for part in range(parts + 1):
        label = format_time(frame.since_ns + (frame.until_ns - frame.since_ns) * part // parts)
        column = min(max(0, (width - 1) * part // parts - len(label) // 2), width - len(label))
        text[column : column + len(label)] = label
    return "".join(text).rstrip()
