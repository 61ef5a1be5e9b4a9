"""Plots on the terminal: curves over time that are distinguishable with and without colours."""

from __future__ import annotations

import shutil
import statistics
import string
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice, pairwise
from typing import Any, Final, NamedTuple

import click

from costprobe.adapters.store.read import SeriesValues
from costprobe.core.outside import one_line
from costprobe.core.records import natural
from costprobe.ui.cli.support.output import is_coloured
from costprobe.ui.text import local

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


def blank_plot(rows: int, columns_max: int = 100) -> Any:  # noqa: ANN401 - a module without types
    """Return plotext with an empty plot that fits the terminal.

    Args:
        rows: Its height in lines.
        columns_max: Its largest width.
    """
    import plotext  # noqa: PLC0415 - only a plot pays for it

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(shutil.get_terminal_size().columns, columns_max), rows)
    return plotext


def drawn(built: str) -> str:
    """Return a plot for output: without colours if they are off.

    Args:
        built: Output of plotext.
    """
    return built if is_coloured() else click.unstyle(built)


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


PLOT_ROWS: Final = 12
PANEL_ROWS: Final = 4
PLOT_COLUMNS_MAX: Final = 120
PANELS_MAX: Final = 12
# As many as there are colours.
CURVES_MAX: Final = 6
# Beyond this ratio of medians the smaller curve would be a flat line at the bottom.
RATIO_MAX: Final = 8


class _Panel(NamedTuple):
    """A plot.

    Attributes:
        subject: What its curves are of, such as a model; empty for all.
        curves: Label and series of each curve, at least one.
    """

    subject: str
    curves: list[tuple[str, SeriesValues]]


def trend_plots(title: str, all_series: Sequence[SeriesValues]) -> list[str]:
    """Return the lines of the plots of series that have a unit in common.

    The curves of a plot are the devices of one model; several plots share the scale of time. What is not
    drawn is stated.

    Args:
        title: The field and its unit.
        all_series: At least one; each has at least one value, as people read it.
    """
    panels = _panels(all_series)
    shown = [_Panel(panel.subject, panel.curves[:CURVES_MAX]) for panel in panels[:PANELS_MAX]]
    labels = list(dict.fromkeys(label for panel in shown for label, _ in panel.curves))
    if len(shown) > 1:
        labels = labels[:CURVES_MAX]
        shown = [_Panel(p.subject, [c for c in p.curves if c[0] in labels]) for p in shown]
    looks = dict(zip(labels, curves(len(labels)), strict=True))
    left_out = len(all_series) - sum(len(panel.curves) for panel in shown)
    span = PlotSpan(
        min(series.times_ns[0] for series in all_series),
        max(series.times_ns[-1] for series in all_series),
    )
    if len(shown) == 1:
        lines = _drawn(shown[0], title, looks, span, PLOT_ROWS, has_times=True)
        lines += legend(labels).split("\n")
    else:
        lines = [one_line(title)]
        drawn = [panel for panel in shown if panel.curves]
        for panel in drawn:
            own = f"{panel.subject} {_devices(panel)}".strip()
            is_last = panel is drawn[-1]
            lines += _drawn(panel, own, looks, span, PANEL_ROWS, has_times=is_last)
        if any(len(panel.curves) > 1 for panel in drawn):
            lines.append("  ".join(legend(labels).split("\n")))
    if left_out:
        lines.append(
            f"{left_out} of {len(all_series)} series are not drawn:"
            " choose with --device, --probe or --service"
        )
    return lines


def _devices(panel: _Panel) -> str:
    return panel.curves[0][0] if len(panel.curves) == 1 else ""


def _drawn(
    panel: _Panel,
    title: str,
    looks: Mapping[str, tuple[str, Any]],
    span: PlotSpan,
    rows: int,
    *,
    has_times: bool,
) -> list[str]:
    drawn = [
        PlotCurve(series.times_ns, series.values, *looks[label]) for label, series in panel.curves
    ]
    columns = min(shutil.get_terminal_size().columns, PLOT_COLUMNS_MAX)
    picture = time_plot(
        one_line(title), drawn, columns, rows, lambda time_ns: local(time_ns)[5:16], span
    )
    lines = picture.split("\n")
    return lines if has_times else lines[:-1]


def _panels(all_series: Sequence[SeriesValues]) -> list[_Panel]:
    """Return a panel for each model, divided where its curves differ too much in size."""
    names = series_names([series.tags for series in all_series])
    labels = series_names(_telling_tags(all_series))
    by_subject: dict[str, list[int]] = {}
    for index, series in enumerate(all_series):
        by_subject.setdefault(subject_of(series.tags), []).append(index)
    is_single = len(by_subject) == 1
    panels = []
    for subject, members in sorted(by_subject.items(), key=lambda item: natural(item[0])):
        parts: list[list[int]] = []
        for index in sorted(members, key=lambda member: abs(_median(all_series[member]))):
            least = _median(all_series[parts[-1][0]]) if parts else 0.0
            if parts and abs(_median(all_series[index])) <= RATIO_MAX * abs(least):
                parts[-1].append(index)
            else:
                parts.append([index])
        is_single = is_single and len(parts) == 1
        panels += [(subject, sorted(part)) for part in parts]
    return [
        _Panel(subject, [((names if is_single else labels)[i], all_series[i]) for i in part])
        for subject, part in panels
    ]


def _telling_tags(all_series: Sequence[SeriesValues]) -> list[dict[str, str]]:
    """Return the tags of each series without its model, and without those that all have."""
    common = set(all_series[0].tags.items()).intersection(*(s.tags.items() for s in all_series))
    return [
        {
            name: value
            for name, value in series.tags.items()
            if name == "device" or (name not in SUBJECT_TAGS and (name, value) not in common)
        }
        for series in all_series
    ]


def _median(series: SeriesValues) -> float:
    return statistics.median(series.values)


# Tags that identify what is measured, apart from where.
SUBJECT_TAGS: Final = ("budget", "probe", "service", "served_model", "part")
# Tags in the names of series; others are the same for all series of most hosts.
_IDENTITY: Final = ("budget", "device", *SUBJECT_TAGS[1:])
_TELLING: Final = (*_IDENTITY, "batch", "basis", "plan")


def subject_of(tags: Mapping[str, str]) -> str:
    """Return what a series is of, such as "encoder" or "chat base"; empty for a device."""
    return " ".join(tags[tag] for tag in SUBJECT_TAGS if tag in tags)


def series_names(all_tags: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a name for each series, without the batch, basis and plan that all have in common.

    Labels and the currency are in it where names would be equal without them.
    """
    told = [
        tag for tag in _TELLING if tag in _IDENTITY or len({tags.get(tag) for tags in all_tags}) > 1
    ]
    names = [" ".join(tags[tag] for tag in told if tag in tags) for tags in all_tags]
    if len(set(names)) == len(names):
        return names
    others = sorted({tag for tags in all_tags for tag in tags} - set(_TELLING))
    differing = [tag for tag in others if len({tags.get(tag) for tags in all_tags}) > 1]
    return [
        " ".join([name, *(f"{tag}={tags[tag]}" for tag in differing if tag in tags)])
        for name, tags in zip(names, all_tags, strict=True)
    ]
