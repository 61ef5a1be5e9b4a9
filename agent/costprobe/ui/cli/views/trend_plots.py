"""Plots of `costprobe trend`: a small one for each model, so that each has an axis of its own size."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from costprobe.adapters.store.read import SeriesValues
from costprobe.core.outside import one_line
from costprobe.core.records import natural
from costprobe.ui.cli.views.plots import curves, legend
from costprobe.ui.cli.views.series_names import SUBJECT_TAGS, series_names, subject_of
from costprobe.ui.cli.views.time_plot import PlotCurve, PlotSpan, time_plot
from costprobe.ui.text import local

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
