"""Measuring the load curve of a server: consent, the loops, what is stored, and its tables and plot."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.store.read import StoreReader
from costprobe.alerts.settings import matches
from costprobe.configuration import Config
from costprobe.core.columns import number
from costprobe.core.money import common_scale, money, scale_words, unit_price
from costprobe.core.periods import is_within
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S, TOGETHER, Event, Point
from costprobe.core.schema import event_point
from costprobe.core.units import counted, percent, significant
from costprobe.drift.load_curve import (
    CurveChange,
    PresentLoad,
    load_curve_event,
    newest_shift,
)
from costprobe.pricing.book import Terms
from costprobe.probing.load_curve import (
    DEADLINE_MARGIN_S,
    LoadCurve,
    LoadPlan,
    LoadPoint,
    LoadStep,
    LoadStoppedError,
    MeasuredLoops,
    curve_rows,
    curves_from_rows,
    load_plan,
    longest_point_s,
    measured_loops,
    point_of,
    slo_text,
)
from costprobe.probing.load_settings import LATENCY_RISE_MAX
from costprobe.probing.settings import DEFER_AT_MOST_S, ServedProbeConfig
from costprobe.savings.gather import probes_of
from costprobe.serving.latency_watch import ProductionWatch, watched
from costprobe.ui.amounts import si_column
from costprobe.ui.cli.bench import Bench, open_bench
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import check_names
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import BadInputError, Settings, bad_input, reader_of
from costprobe.ui.cli.views.plots import blank_plot
from costprobe.ui.text import ago, figure, local, with_error


def measured_curve(
    settings: Settings, probe: ServedProbeConfig, device: str | None, *, agreed: bool
) -> LoadCurve:
    """Measure the load curve of a probe.

    Args:
        settings: The configuration.
        probe: The probe.
        device: Name of the device; None for all that the probe names.
        agreed: Whether the operator agreed to the load.

    Raises:
        click.ClickException: There is no consent, or no point was measured.
    """
    plan = load_plan(probe)
    deadline_s = longest_point_s(probe) + DEADLINE_MARGIN_S
    probe = probe.model_copy(update={"deadline_s": deadline_s})
    with open_bench(settings, probe, device) as bench:
        labels = {**bench.tags, "device": bench.device, "probe": probe.name}
        echo(_announcement(probe, bench.device, plan, bench.terms), err=True)
        if not agreed and not in_maintenance(settings.config, labels, time.time_ns()):
            raise bad_input(
                "a load curve takes the whole capacity of the server: add --yes, or run it within"
                " a [[maintenance]] window"
            )
        check_idle(bench, probe)

        def why_forbidden() -> str:
            is_allowed = agreed or in_maintenance(settings.config, labels, time.time_ns())
            return "" if is_allowed else "the maintenance window has ended"

        loops, fingerprint = _guarded_loops(bench, probe, settings.config, why_forbidden)
        terms = bench.terms
    return LoadCurve(
        probe=probe.name,
        device=bench.device,
        currency=terms.rate.currency if terms else "",
        fingerprint=fingerprint,
        time_ns=time.time_ns(),
        bounds_ms=_bounds_ms(probe),
        points=tuple(loops.points),
        ends=loops.ends,
        stopped=loops.stopped,
        tags={**bench.tags, **probe.labels},
    )


def _guarded_loops(
    bench: Bench, probe: ServedProbeConfig, config: Config, why_forbidden: Callable[[], str]
) -> tuple[MeasuredLoops, str]:
    """Measure both loops while production does not suffer; return them with the fingerprint.

    Raises:
        click.ClickException: No point was measured.
    """
    curve, fingerprint = probe.load_curve, ""
    services = watched(config.service, bench.devices)
    try:
        with ProductionWatch(services, LATENCY_RISE_MAX, bench.wait) as watch:
            if services:
                names = ", ".join(watch.in_production)
                ends = "; the curve ends if its latency rises" if names else ""
                echo(f"requests of production: {names or 'none seen'}{ends}", err=True)

            def why_stop() -> str:
                return watch.why_stop or why_forbidden()

            def check() -> None:
                if reason := why_stop():
                    raise LoadStoppedError(reason)

            def measure(step: LoadStep) -> LoadPoint:
                nonlocal fingerprint
                try:
                    run = bench.run(probe, load=step, check=check)
                except BadInputError:
                    raise
                except click.ClickException as error:
                    # The points before this one are kept.
                    raise LoadStoppedError(f"{step.text}: {error.message}") from error
                fingerprint = run.fingerprint
                return point_of(step, bench.priced(run))

            loops = measured_loops(curve, measure, why_stop)
    except ScrapeError as error:
        raise click.ClickException(str(error)) from error
    bench.bar.clear()
    if not loops.points:
        raise click.ClickException(loops.stopped)
    return loops, fingerprint


def check_idle(bench: Bench, probe: ServedProbeConfig) -> None:
    """Apply `when_busy` to the devices of a server.

    Raises:
        click.ClickException: Other work uses them.
    """
    config = probe.load_curve
    if config.when_busy == "run":
        return
    if not bench.wait_idle(DEFER_AT_MOST_S if config.when_busy == "defer" else 0.0):
        raise click.ClickException(
            f'{bench.device} is busy with other work: repeat it later, or set when_busy = "run"'
            f" in [probe.load] of {probe.name} to measure beside it"
        )


def stored(settings: Settings, probe: ServedProbeConfig, device: str | None) -> list[LoadCurve]:
    """Return the stored load curves of a probe on one device, in order of time; at least one.

    Raises:
        click.ClickException: There is none.
    """
    tags = {"probe": probe.name, **({"device": device} if device else {})}
    with reader_of(settings) as reader:
        check_names(reader, settings, {"device": device})
        rows = reader.points("sweep", 0, END_OF_TIME_NS, tags)
        curves = curves_from_rows(rows, _bounds_ms(probe))
    if not curves:
        raise click.ClickException(
            f"no load curve of {probe.name} is stored; run: costprobe probe {probe.name} --load"
        )
    return [curve for curve in curves if curve.device == curves[-1].device]


def earlier(settings: Settings, probe: ServedProbeConfig, curve: LoadCurve) -> list[LoadCurve]:
    """Return the stored curves of the same devices, in order of time."""
    if not settings.store_path.exists():
        return []
    tags = {"probe": probe.name, "device": curve.device}
    with reader_of(settings) as reader:
        return curves_from_rows(reader.points("sweep", 0, END_OF_TIME_NS, tags), curve.bounds_ms)


def rows_of(settings: Settings, curves: Sequence[LoadCurve]) -> list[Point]:
    """Return the rows of the newest curve, with the event of its change.

    Args:
        settings: The configuration.
        curves: All curves of the probe, in order of time.
    """
    event, newest = change_event(settings, curves), curves[-1]
    return [*curve_rows(newest), *([] if event is None else [event_point(event, newest.tags)])]


def in_maintenance(config: Config, labels: Mapping[str, str], time_ns: int) -> bool:
    """Return whether an instant lies in a maintenance window that applies to these labels."""
    return any(
        matches(window.match, labels)
        and is_within(window.days, window.start, window.end, window.timezone, time_ns)
        for window in config.maintenance
    )


def curve_document(curve: LoadCurve, change: CurveChange | None) -> dict[str, Any]:
    """Return a curve, with its change since the one before, as JSON."""
    cheapest, front = curve.cheapest, curve.front
    return {
        "probe": curve.probe,
        "device": curve.device,
        "currency": curve.currency,
        "fingerprint": curve.fingerprint,
        "time_ns": curve.time_ns,
        "slo_ms": dict(curve.bounds_ms),
        "saturated": curve.is_saturated,
        "loop_ends": dict(curve.ends),
        "stopped": curve.stopped or None,
        "change": None if change is None else asdict(change),
        "points": [
            {
                **{k: v for k, v in asdict(point).items() if k != "figures"},
                **point.figures,
                "meets_slo": point.meets(curve.bounds_ms) if curve.bounds_ms else None,
                "front": point in front,
                "cheapest": point == cheapest,
            }
            for point in curve.points
        ],
    }


def _bounds_ms(probe: ServedProbeConfig) -> dict[str, float]:
    return probe.slo.bounds_ms if probe.slo else {}


def _announcement(
    probe: ServedProbeConfig, device: str, plan: LoadPlan, terms: Terms | None
) -> str:
    """Return what a load curve takes in time and money."""
    cost = ""
    if terms is not None:
        expected, longest = (
            money(terms.per_s * seconds, terms.rate.currency)
            for seconds in (plan.expected_s, plan.longest_s)
        )
        cost = f"; {expected} at the present price, at most {longest}"
    return (
        f"load curve of {probe.name} on {device}: up to {counted(plan.points, 'point')}, about"
        f" {ago(plan.expected_s)}, at most {ago(plan.longest_s)}{cost}"
    )


# The present load is that of so long before a curve.
_PRESENT_NS: Final = 86_400 * NS_PER_S


def change_event(settings: Settings, curves: Sequence[LoadCurve]) -> Event | None:
    """Return the event of a newest curve that differs from the level before, or is back; None if neither.

    Args:
        settings: The configuration.
        curves: All curves of a probe on its devices, in order of time; at least one.
    """
    shift = newest_shift(curves)
    if shift is None:
        return None
    with reader_of(settings) as reader:
        rows = _device_rows(reader, shift.baseline), _device_rows(reader, shift.newest)
        load = _present_load(reader, settings.config, shift.newest)
    return load_curve_event(shift, rows, load)


def _device_rows(reader: StoreReader, curve: LoadCurve) -> list[Point]:
    """Return the rows of the first device of a curve in the windows of its points."""
    tags = {"device": curve.device.split(TOGETHER)[0]}
    return list(reader.points("device", _start_ns(curve), curve.time_ns, tags))


def _present_load(reader: StoreReader, config: Config, curve: LoadCurve) -> PresentLoad | None:
    """Return the load of the service whose server was measured; None without one."""
    unit = "tokens_out" if curve.fastest["tokens_out_per_s"] else "requests"
    # The requests of the curve are in the server's counters, too; its warm-ups take time as well.
    until_ns = curve.time_ns - 2 * (curve.time_ns - _start_ns(curve))
    for service in config.service:
        if all(probe.name != curve.probe for probe in probes_of(config.probe, service)):
            continue
        rows = [
            row
            for row in reader.points(
                "serving",
                until_ns - _PRESENT_NS,
                until_ns,
                {"service": service.name},
            )
            if "served_model" not in row.tags
        ]
        covered_s = math.fsum(number(row, "window_s") or 0.0 for row in rows)
        work = math.fsum(number(row, unit) or 0.0 for row in rows)
        if covered_s and work:
            return PresentLoad(work / covered_s, len(service.url))
    return None


def _start_ns(curve: LoadCurve) -> int:
    """Return UTC in ns from which on the points of a curve, without their warm-ups, were measured."""
    windows_s = math.fsum(point["window_s"] or 0.0 for point in curve.points)
    return curve.time_ns - int(windows_s * NS_PER_S)


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
            *((figure(point["tokens_out_per_s"]),) if has_tokens else ()),
            *(figure(point[key]) for _, key in times),
            percent(point.error_share),
        )
        for point in curve.points
    ]
    return [(*heads, "errors"), *rows]


def _costs(curve: LoadCurve) -> list[tuple[str, ...]]:
    """Return the heading and a row for each load: speed of a user, energy, cost, goodput."""
    has_tokens, scale = _has_tokens(curve), _scale(curve)
    energy = "energy_per_million_tokens_out_j" if has_tokens else "energy_per_inference_j"
    unit, energies = si_column([point[energy] for point in curve.points], "J")
    heads = ("tok/s/user", f"{unit}/Mtok") if has_tokens else (f"{unit}/req",)
    prices = ("Mtok in", "Mtok out") if has_tokens else ()
    rows = []
    for point, joules in zip(curve.points, energies, strict=True):
        request = point["cost_per_inference"]
        tokens = (point["cost_per_million_tokens_in"], point["cost_per_million_tokens_out"])
        rows.append(
            (
                _load(curve, point),
                *((figure(point["tokens_per_s_user"], 3),) if has_tokens else ()),
                with_error(joules, point["energy_rel_err"]),
                _money(None if request is None else request * scale, curve),
                *((_money(price, curve) for price in tokens) if has_tokens else ()),
                figure(point["goodput_per_s"], 3),
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
            return f"no point is known to be{within}: set a longer window, for more requests"
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
        label="cheapest at its speed",
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
