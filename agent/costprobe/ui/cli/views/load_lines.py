"""A load curve as tables, and its Pareto front as a plot."""

from __future__ import annotations

from costprobe.core.money import common_scale, money, scale_words, unit_price
from costprobe.core.units import counted, percent, significant
from costprobe.drift.load_curve import CurveChange
from costprobe.probing.load_curve import LoadCurve, LoadPoint, slo_text
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.views.plots import blank_plot
from costprobe.ui.text import joules, local

PLOT_ROWS = 14
# Above this share of a processor the client's own timing is late.
BUSY_CLIENT = 0.7
_MARKS = {
    "*": "cheapest",
    "~": "the client was busy or late: its own times are in these figures",
}
_UNITS = "times in ms"
_UNITS_OF_TOKENS = (
    "times in ms; tok/s and J/Mtok of generated tokens; the costs per million tokens (Mtok) in and"
    " out each contain the whole cost"
)
# Headings and figures of times: tokens have times of their own, another response has its latency.
_TIMES_OF_TOKENS = (
    ("TTFT p50", "ttft_p50_ms"),
    ("p90", "ttft_p90_ms"),
    ("TPOT p50", "tpot_p50_ms"),
    ("p90", "tpot_p90_ms"),
    ("ITL p90", "itl_p90_ms"),
)
_TIMES = (
    ("latency p50", "latency_p50_ms"),
    ("p90", "latency_p90_ms"),
    ("p99", "latency_p99_ms"),
)
_ENDS = {
    "saturated": "throughput no longer rose",
    "errors": "too many requests failed",
    "complete": "all loads were measured",
}


def shown(curve: LoadCurve, change: CurveChange | None = None) -> list[str]:
    """Return a curve as tables and a plot, with the cheapest point and the change since the last."""
    speeds, costs = _speeds(curve), _costs(curve)
    used = [mark for mark in _MARKS if any(mark in cells[0] for cells in speeds)]
    methods = sorted({point.energy_method for point in curve.points if point.energy_method})
    lines = [
        f"{curve.probe} on {curve.device}, {local(curve.time_ns)}, fingerprint {curve.fingerprint}",
        *table_lines(speeds),
        *table_lines(costs),
        *(f"{mark} {_MARKS[mark]}" for mark in used),
        _UNITS_OF_TOKENS if _has_tokens(curve) else _UNITS,
        *([f"energy: {', '.join(methods).replace('_', ' ')}"] if methods else []),
        *(f"{loop} loop: {_ENDS.get(end, end)}" for loop, end in curve.ends.items()),
        *([f"stopped: {curve.stopped}"] if curve.stopped else []),
        *([] if change is None else [_change(change)]),
        _verdict(curve),
    ]
    if len(curve.front) > 1:
        lines += _plot(curve).split("\n")
    return lines


def _has_tokens(curve: LoadCurve) -> bool:
    return any(point["tokens_out_per_s"] for point in curve.points)


def _speeds(curve: LoadCurve) -> list[tuple[str, ...]]:
    """Return the heading and a row for each load: throughput, times, errors."""
    has_tokens = _has_tokens(curve)
    times = _TIMES_OF_TOKENS if has_tokens else _TIMES
    heads = ("load", "req/s", *(("tok/s",) if has_tokens else ()), *(name for name, _ in times))
    rows = [
        (
            _load(curve, point),
            significant(point["throughput_per_s"] or 0, 3),
            *((_figure(point["tokens_out_per_s"]),) if has_tokens else ()),
            *(_figure(point[figure]) for _, figure in times),
            percent(point.error_share),
        )
        for point in curve.points
    ]
    return [(*heads, "errors"), *rows]


def _costs(curve: LoadCurve) -> list[tuple[str, ...]]:
    """Return the heading and a row for each load: speed of a user, energy, cost, goodput."""
    has_tokens, scale = _has_tokens(curve), _scale(curve)
    energy = "energy_per_million_tokens_out_j" if has_tokens else "energy_per_inference_j"
    heads = ("tok/s/user", "J/Mtok") if has_tokens else ("J/req",)
    prices = ("Mtok in", "Mtok out") if has_tokens else ()
    rows = []
    for point in curve.points:
        request = point["cost_per_inference"]
        tokens = (point["cost_per_million_tokens_in"], point["cost_per_million_tokens_out"])
        rows.append(
            (
                _load(curve, point),
                *((_figure(point["tokens_per_s_user"], 3),) if has_tokens else ()),
                _energy(point[energy], point["energy_rel_err"]),
                _money(None if request is None else request * scale, curve),
                *((_money(price, curve) for price in tokens) if has_tokens else ()),
                _figure(point["goodput_per_s"], 3),
            )
        )
    return [("load", *heads, f"{scale_words(scale)} req", *prices, "good/s"), *rows]


def _scale(curve: LoadCurve) -> int:
    """Return the number of requests that costs are written for, as the dashboard chooses it."""
    return common_scale(point["cost_per_inference"] for point in curve.points)


def _load(curve: LoadCurve, point: LoadPoint) -> str:
    load = f"{significant(point['offered_per_s'] or 0, 3)}/s"
    if point.concurrency is not None:
        load = f"{point.concurrency} in flight"
    marks = ("*" if point == curve.cheapest else "") + ("~" if _is_late(point) else "")
    return f"{load} {marks}".rstrip()


def _is_late(point: LoadPoint) -> bool:
    """Return whether the client itself was too busy to time and send requests."""
    first_ms = point["ttft_p50_ms"] or point["latency_p50_ms"] or 0.0
    is_behind = (point["late_ms"] or 0.0) > max(1.0, 0.02 * first_ms)
    return (point["client_busy_share"] or 0.0) > BUSY_CLIENT or is_behind


def _figure(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else significant(value, digits)


def _energy(energy_j: float | None, rel_err: float | None) -> str:
    if energy_j is None:
        return "-"
    return f"{joules(energy_j).removesuffix(' J')} ±{percent(rel_err or 0)}"


def _money(amount: float | None, curve: LoadCurve) -> str:
    return "-" if amount is None else money(amount, curve.currency)


def _change(change: CurveChange) -> str:
    words = "" if change.is_persistent else ", within the noise"
    software = "; server, model or prompt changed" if change.other_software else ""
    return (
        f"since {local(change.since_ns)}: throughput {change.throughput_pct:+z.1f} %"
        f" ±{change.uncertainty_pct:.1f} % at {counted(change.points, 'common point')}{words}{software}"
    )


def _verdict(curve: LoadCurve) -> str:
    cheapest = curve.cheapest
    within = f" within {slo_text(curve.bounds_ms)}" if curve.bounds_ms else ""
    if cheapest is None:
        if any(point.meets(curve.bounds_ms) is None for point in curve.points):
            return f"no point is known to be{within}: set a longer window_max, for more requests"
        return f"no point is{within}"
    if cheapest.cost is None:
        return f"{cheapest.text} has the most throughput{within}"
    price = f"{_money(cheapest.cost, curve)} per million generated tokens"
    if not _has_tokens(curve):
        price = unit_price(cheapest.cost, curve.currency, _scale(curve), "request")
    return f"{cheapest.text} costs least{within}: {price}"


def _plot(curve: LoadCurve) -> str:
    """Plot cost over the speed of a user: all points, and the Pareto front as a line."""
    has_tokens = _has_tokens(curve)
    has_cost = all(point.cost is not None for point in curve.points)
    # The cost of tokens is that of a million already.
    scale = 1 if has_tokens or not has_cost else _scale(curve)
    price = f"device-s per {'token out' if has_tokens else 'request'}"
    if has_cost:
        unit = "1M tokens out" if has_tokens else scale_words(scale, "request")
        price = f"{curve.currency} per {unit}"
    speed = "tokens/s of a user" if has_tokens else "requests/s of a user"
    front = curve.front
    others = [p for p in curve.points if p not in front and p.speed is not None and p.work_per_s]
    plotext = blank_plot(PLOT_ROWS)
    plotext.plot(
        [point.speed or 0.0 for point in front],
        [curve.price(point) * scale for point in front],
        label="Pareto front",
        marker="braille",
    )
    if others:
        plotext.scatter(
            [point.speed or 0.0 for point in others],
            [curve.price(point) * scale for point in others],
            label="other points",
            marker="x",
        )
    plotext.xlabel(f"{speed}; up: {price}")
    return str(plotext.uncolorize(plotext.build()))
