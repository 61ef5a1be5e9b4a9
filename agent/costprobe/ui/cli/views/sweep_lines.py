"""A sweep as a table and a plot."""

from __future__ import annotations

from costprobe.core.money import common_scale, money, scale_words
from costprobe.core.units import counted, percent
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.sweep import CurvePoint, SweepCurve
from costprobe.ui.cli.views.plots import blank_plot
from costprobe.ui.text import joules, local

MIB = 1 << 20
PLOT_ROWS = 14
_MARKS = {"*": "cheapest", "~": "noisy: measured beside other work"}


def shown(curve: SweepCurve) -> list[str]:
    """Return the curve as a table and a plot, with the cheapest batch size."""
    has_threads = any(point.threads is not None for point in curve.points)
    heads = (
        "batch",
        *(["threads"] if has_threads else []),
        *("p50 ms", "p90 ms", "inf/s", "J/inf", f"per {scale_words(_scale(curve))}", "peak MiB"),
    )
    rows = [_cells(curve, point, has_threads=has_threads) for point in curve.points]
    used = [mark for mark in _MARKS if any(mark in row[0] for row in rows)]
    methods = sorted({point.energy_method for point in curve.points if point.energy_method})
    lines = [
        f"{curve.probe} on {curve.device}, {local(curve.time_ns)}, fingerprint {curve.fingerprint}",
        *table_lines([heads, *rows], text_columns=0),
        *(f"{mark} {_MARKS[mark]}" for mark in used),
        *([f"energy: {', '.join(methods).replace('_', ' ')}"] if methods else []),
        _verdict(curve),
    ]
    if len(curve.points) > 1:
        lines += _plot(curve).split("\n")
    return lines


def _cells(curve: SweepCurve, point: CurvePoint, *, has_threads: bool) -> tuple[str, ...]:
    energy = "-"
    if point.energy_per_inference_j is not None:
        figure = joules(point.energy_per_inference_j).removesuffix(" J")
        energy = f"{figure} ±{percent(point.energy_rel_err or 0)}"
    cost = point.cost_per_inference
    marks = ("*" if point == curve.cheapest else "") + ("~" if point.is_noisy else "")
    threads = "-" if point.threads is None else str(point.threads)
    return (
        f"{marks} {point.batch}".lstrip(),
        *([threads] if has_threads else []),
        f"{point.latency_p50_ms:.3f}",
        "-" if point.latency_p90_ms is None else f"{point.latency_p90_ms:.3f}",
        f"{point.throughput_per_s:,.1f}",
        energy,
        "-" if cost is None else money(cost * _scale(curve), curve.currency),
        "-" if point.peak_memory_bytes is None else f"{point.peak_memory_bytes / MIB:,.0f}",
    )


def _scale(curve: SweepCurve) -> int:
    """Return the number of inferences that costs are written for, as the dashboard chooses it."""
    return common_scale(point.cost_per_inference for point in curve.points)


def _verdict(curve: SweepCurve) -> str:
    bound_ms, cheapest = curve.latency_bound_ms, curve.cheapest
    within = "" if bound_ms is None else f" within {bound_ms:g} ms"
    if cheapest is None:
        fastest = curve.points[0]
        return f"no batch is{within}: batch {fastest.batch} takes {fastest.latency_p50_ms:.3f}"
    reason = "costs least" if cheapest.cost_per_inference is not None else "has the most throughput"
    threads = "" if cheapest.threads is None else f" on {counted(cheapest.threads, 'thread')}"
    return f"batch {cheapest.batch}{threads} {reason}{within}"


def _plot(curve: SweepCurve) -> str:
    """Plot latency and cost, or throughput without a cost, over the batch size.

    On a CPU it is the curve of the number of threads with the cheapest point.
    """
    best = curve.cheapest or curve.points[0]
    points = [point for point in curve.points if point.threads == best.threads]
    batches = [point.batch for point in points]
    costs = [point.cost_per_inference for point in points]
    has_cost = all(cost is not None for cost in costs)
    plotext = blank_plot(PLOT_ROWS)
    plotext.xscale("log")
    right = (
        [(cost or 0.0) * _scale(curve) for cost in costs]
        if has_cost
        else [point.throughput_per_s for point in points]
    )
    label = (
        f"{curve.currency} per {scale_words(_scale(curve))} (right)"
        if has_cost
        else "inf/s (right)"
    )
    latencies = [point.latency_p50_ms for point in points]
    plotext.plot(batches, latencies, label="p50 ms (left)", marker="braille")
    plotext.plot(batches, right, label=label, marker="dot", yside="right")
    plotext.xticks(batches, [str(batch) for batch in batches])
    plotext.xlabel("batch")
    return str(plotext.uncolorize(plotext.build()))
