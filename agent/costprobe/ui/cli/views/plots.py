"""Plots on the terminal: curves over time that are distinguishable with and without colours."""

from __future__ import annotations

import shutil
import statistics
import string
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
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


PLOT_ROWS: Final = 12
PANEL_ROWS: Final = 4
PLOT_COLUMNS_MAX: Final = 120
# Lines of a title, a frame and the times.
FRAME_ROWS: Final = 4
TICKS: Final = 4
# Columns of a plot for each time below it; plotext drops times that would touch.
TIME_COLUMNS: Final = 20
LABEL_WIDTH: Final = 11  # "-1.234e+308"
# Columns of dots: at most two in a character.
DOTS: Final = 2 * (PLOT_COLUMNS_MAX - LABEL_WIDTH - 2)
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
    span = (
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
    span: tuple[int, int],
    rows: int,
    *,
    has_times: bool,
) -> list[str]:
    """Return the lines of a plot, without the axis of time if `has_times` is False."""
    plotext = blank_plot(rows + FRAME_ROWS, PLOT_COLUMNS_MAX)
    start_ns, end_ns = span
    length_ns = max(1, end_ns - start_ns)
    dots = [_medians(series, start_ns, length_ns) for _, series in panel.curves]
    values = [value for line in dots for value in line.values()]
    low, high = min(values), max(values)
    # From 0 to 1, by halves: neither a huge nor a tiny range overflows.
    half_range = high / 2 - low / 2
    for (label, _), line in zip(panel.curves, dots, strict=True):
        marker, colour = looks[label]
        heights = [
            (value / 2 - low / 2) / half_range if half_range else 0.5 for value in line.values()
        ]
        look = {} if colour is None else {"color": colour}
        plotext.plot([column / DOTS for column in line], heights, marker=marker, **look)
    plotext.xlim(0, 1)
    plotext.ylim(0, 1)
    shares = [tick / (TICKS - 1) for tick in range(TICKS)] if half_range else [0.5]
    marks = [f"{low * (1 - share) + high * share:.4g}".rjust(LABEL_WIDTH) for share in shares]
    plotext.yticks(shares, marks)
    columns = min(shutil.get_terminal_size().columns, PLOT_COLUMNS_MAX)
    steps = max(1, min(TICKS, columns // TIME_COLUMNS) - 1)
    places = [step / steps for step in range(steps + 1)]
    times = [local(start_ns + int(length_ns * place))[5:16] for place in places]
    plotext.xticks(places, times)
    plotext.title(one_line(title))
    lines = [line.rstrip() for line in drawn(plotext.build()).splitlines()]
    return lines if has_times else lines[:-1]


def _medians(series: SeriesValues, start_ns: int, length_ns: int) -> dict[int, float]:
    """Return one value for each column of dots: the median, robust against outliers."""
    columns: dict[int, list[float]] = {}
    for time_ns, value in zip(series.times_ns, series.values, strict=True):
        columns.setdefault((time_ns - start_ns) * DOTS // length_ns, []).append(value)
    return {column: statistics.median(values) for column, values in columns.items()}


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
