"""Plot of cost against latency: one letter for each model, the Pareto front in green."""

from __future__ import annotations

from costprobe.core.money import common_scale, scale_words
from costprobe.core.outside import one_line
from costprobe.ui.cli.support.output import paint
from costprobe.ui.cli.views.plots import LETTERS, blank_plot, drawn
from costprobe.unit_costs.compare import Group

PLOT_ROWS = 16


def plotted(group: Group) -> list[str]:
    """Return plot and legend; the latency is the p99 if all models have one, else the p50.

    Args:
        group: The models, in one currency and on one basis.
    """
    p99 = [placed.candidate.latency_p99_ms for placed in group.placed]
    p50 = [placed.candidate.latency_p50_ms for placed in group.placed]
    axis, latencies = ("p99 ms", p99) if None not in p99 else ("p50 ms", p50)
    scale = scale_of(group)
    points = [
        (placed, latency.value, placed.candidate.cost_per_inference.value * scale)
        for placed, latency in zip(group.placed, latencies, strict=True)
        if latency is not None and placed.candidate.cost_per_inference is not None
    ]
    if not points:
        return ["no plot: there are no latencies"]
    plotext = blank_plot(PLOT_ROWS)
    names = []
    for letter, (placed, latency_ms, cost) in zip(LETTERS, points, strict=False):
        is_front = placed.dominated_by is None
        colour = {"color": "green"} if is_front else {}
        plotext.scatter([latency_ms], [cost], marker=letter, **colour)
        words = one_line(f"{letter} {placed.candidate.name}{', on the front' if is_front else ''}")
        names.append(paint(words, "good") if is_front else words)
    plotext.xlabel(axis)
    plotext.title(f"{group.currency} per {scale_words(scale)}")
    return [*drawn(plotext.build()).splitlines(), *names]


def scale_of(group: Group) -> int:
    """Return the number of inferences that costs of a group are written for."""
    costs = (placed.candidate.cost_per_inference for placed in group.placed)
    return common_scale(None if cost is None else cost.value for cost in costs)
