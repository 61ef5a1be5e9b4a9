"""Cost against latency in a terminal: a letter for each model, those on the front in green."""

from __future__ import annotations

import shutil

from agent.cli.colour import paint
from agent.cli.lines import PER_THOUSAND
from agent.cli.plots import LETTERS, drawn
from agent.costing.compare import Group

PLOT_ROWS = 16
MAX_PLOT_COLUMNS = 100


def plotted(group: Group) -> list[str]:
    """Lines of the plot and its legend; latency is the p99 where it is known of all, else the p50.

    Args:
        group: What is compared, in one currency and on one basis.
    """
    import plotext  # noqa: PLC0415 - only a plot pays for it

    p99 = [placed.candidate.latency_p99_ms for placed in group.placed]
    p50 = [placed.candidate.latency_p50_ms for placed in group.placed]
    axis, latencies = ("p99 ms", p99) if None not in p99 else ("p50 ms", p50)
    known = [
        (placed, latency.value, placed.candidate.cost.value * PER_THOUSAND)
        for placed, latency in zip(group.placed, latencies, strict=True)
        if latency is not None and placed.candidate.cost is not None
    ]
    if not known:
        return ["no plot: no latency is known"]
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(shutil.get_terminal_size().columns, MAX_PLOT_COLUMNS), PLOT_ROWS)
    names = []
    for letter, (placed, latency_ms, cost) in zip(LETTERS, known, strict=False):
        is_front = placed.dominated_by is None
        colour = {"color": "green"} if is_front else {}
        plotext.scatter([latency_ms], [cost], marker=letter, **colour)
        words = f"{letter} {placed.candidate.name}{', on the front' if is_front else ''}"
        names.append(paint(words, "good") if is_front else words)
    plotext.xlabel(axis)
    plotext.title(f"{group.currency} per 1,000")
    return [*drawn(plotext.build()).splitlines(), *names]
