"""The load curve of a server: measured, its cheapest point within a service level, its rows.

It is measured with a closed loop over concurrencies, then an open loop over request rates. A
point has the figures of a server at one load. A curve also has its Pareto front and its ends; it
is written as rows of `sweep`, and read from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, cast

from costprobe.core.columns import as_number
from costprobe.core.records import FieldValue, Point
from costprobe.core.schema import make_point
from costprobe.probing.cost import ProbeRun
from costprobe.probing.load_settings import RATE_SHARES, LoadConfig
from costprobe.probing.rows import (
    cost_fields,
    energy_fields,
    further_fields,
    latency_fields,
    time_fields,
)
from costprobe.probing.settings import ServedProbeConfig

Loop = Literal["closed", "open"]
_TIMES: Final = tuple(
    f"{name}_{figure}_ms"
    for name in ("latency", "ttft", "tpot", "itl")
    for figure in ("p50", "p90", "p99", "mean")
)
# The figures of a point, by the names of the series `sweep`.
FIGURES: Final = (
    *("offered_per_s", "throughput_per_s", "tokens_in_per_s", "tokens_out_per_s", "in_flight"),
    *_TIMES,
    *("tokens_in", "tokens_out", "cached_tokens", "tokens_per_s_user", "goodput_per_s"),
    *("requests", "errors", "window_s", "late_ms", "client_busy_share"),
    *("energy_per_inference_j", "energy_rel_err"),
    *("energy_per_million_tokens_in_j", "energy_per_million_tokens_out_j"),
    *("cost_per_inference", "cost_per_million_tokens_in", "cost_per_million_tokens_out"),
)
# Quantiles of a normal distribution: the 90th percentile, and two-sided 95 %.
_Z90, _Z95 = 1.2816, 1.96

# An open loop whose answers fall short of this share of its requests has a growing queue.
KEPT_UP: Final = 0.9
# A closed loop is saturated if the throughput rose by a smaller share than this.
GAIN_MIN: Final = 0.05
# A loop ends when a larger share of its requests had no answer.
ERRORS_MAX: Final = 0.05
# Why a loop ended.
LoopEnd = Literal["saturated", "errors", "complete"]

# Start of the worker, rise and tail of the load, and the end of requests in flight, in s.
POINT_OVERHEAD_S = 6.0
# Start of the worker, name resolution and queries take less.
DEADLINE_MARGIN_S = 60.0


@dataclass(frozen=True, slots=True)
class LoadStep:
    """A load to measure.

    Attributes:
        loop: "closed": so many requests in flight; "open": requests at random instants.
        number: Its place in its loop, from 1.
        concurrency: Requests in flight of a closed loop; None of an open loop.
        rate_per_s: Mean requests per second of an open loop; None of a closed loop.
    """

    loop: Loop
    number: int
    concurrency: int | None = None
    rate_per_s: float | None = None

    @property
    def text(self) -> str:
        """The load: "8 in flight", "1.5 requests/s"."""
        if self.rate_per_s is not None:
            return f"{self.rate_per_s:.3g} requests/s"
        return f"{self.concurrency} in flight"


@dataclass(slots=True)
class MeasuredLoops:
    """The points of both loops.

    Attributes:
        points: In the order of their measurement.
        ends: Why each loop ended.
        stopped: Why the measurement was ended before; empty if it was not.
    """

    points: list[LoadPoint] = field(default_factory=list)
    ends: dict[Loop, str] = field(default_factory=dict)
    stopped: str = ""


class LoadStoppedError(Exception):
    """The measurement has to end; the text states why."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load curve takes.

    Attributes:
        points: Most points.
        expected_s: Seconds that they take if windows and answers are short.
        longest_s: Most seconds that they take.
    """

    points: int
    expected_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """The figures of a server at one load.

    Attributes:
        loop: Kind of the loop.
        number: Its place in its loop, from 1.
        concurrency: Requests in flight of a closed loop; None of an open loop.
        figures: Value of each of FIGURES; None where unknown.
        energy_method: How the energy was measured; None if it was not.
        contended: Whether others used the device; None where unknown.
    """

    loop: Loop
    number: int
    concurrency: int | None
    figures: Mapping[str, float | None]
    energy_method: str | None = None
    contended: bool | None = None

    def __getitem__(self, name: str) -> float | None:
        """Return a figure; None where it is unknown."""
        return self.figures.get(name)

    @property
    def text(self) -> str:
        """The load: "8 in flight", "1.5 requests/s"."""
        return LoadStep(self.loop, self.number, self.concurrency, self["offered_per_s"]).text

    @property
    def error_share(self) -> float:
        """Share of the requests without an answer, from 0 to 1."""
        requests = self["requests"] or 0.0
        return (self["errors"] or 0.0) / requests if requests else 1.0

    @property
    def work_per_s(self) -> float:
        """Generated tokens per second; requests where tokens are unknown."""
        return self["tokens_out_per_s"] or self["throughput_per_s"] or 0.0

    @property
    def cost(self) -> float | None:
        """Cost per million generated tokens; of a request where tokens are unknown; None without a price."""
        if self["tokens_out_per_s"]:
            return self["cost_per_million_tokens_out"]
        return self["cost_per_inference"]

    @property
    def speed(self) -> float | None:
        """Tokens per second of a user; requests per second of one where tokens are unknown."""
        if self["tokens_per_s_user"] is not None or self["tokens_out_per_s"]:
            return self["tokens_per_s_user"]
        latency_ms = self["latency_p50_ms"]
        return 1000 / latency_ms if latency_ms else None

    @property
    def rel_err(self) -> float:
        """Relative uncertainty (95 %) of the throughput, from the spread of the requests' latencies.

        Without their percentiles the spread is taken to be as large as the mean.
        """
        answered = (self["requests"] or 0.0) - (self["errors"] or 0.0)
        if answered <= 0:
            return 1.0
        p50, p90, mean = (self[f"latency_{name}_ms"] for name in ("p50", "p90", "mean"))
        spread = (p90 - p50) / _Z90 / mean if p50 and p90 and mean else 1.0
        return _Z95 * spread / math.sqrt(answered)

    def meets(self, bounds_ms: Mapping[str, float]) -> bool | None:
        """Return whether the point meets a service level; None if too few requests tell.

        A request without an answer is late: where a percentile has a bound, no more than the rest
        of the requests may be without one.

        Args:
            bounds_ms: Longest times in ms, by their names: "ttft_p90".
        """
        found: list[bool | None] = []
        for name, bound_ms in bounds_ms.items():
            figure = self[f"{name}_ms"]
            percentile = int(name.rpartition("_p")[2])
            if self.error_share * 100 > 100 - percentile:
                found.append(False)
            else:
                found.append(None if figure is None else figure <= bound_ms)
        if False in found:
            return False
        return None if None in found else True


def point_of(step: LoadStep, run: ProbeRun) -> LoadPoint:
    """Return a point of a load curve.

    Cost and energy per million tokens in, and out, each contain the whole cost and energy, as in the
    series `cost`: they are not to be added.

    Args:
        step: The load.
        run: The run, with its cost at the prices in force.
    """
    known: dict[str, FieldValue | None] = {
        **{name: getattr(run, name, None) for name in FIGURES},
        **further_fields(run),
        **time_fields("itl", run.itl_ms),
        **latency_fields(run),
        **energy_fields(run.energy),
        **(cost_fields(run.cost, run) if run.cost else {}),
    }
    tpot_ms = known["tpot_p50_ms"]
    known["tokens_per_s_user"] = 1000 / tpot_ms if isinstance(tpot_ms, float) and tpot_ms else None
    return LoadPoint(
        loop=step.loop,
        number=step.number,
        concurrency=step.concurrency,
        figures={name: as_number(known[name]) for name in FIGURES},
        energy_method=None if run.energy is None else run.energy.method,
        contended=run.contended,
    )


def loop_end(points: Sequence[LoadPoint]) -> LoopEnd | None:
    """Return why a loop ends after its last point; None if it continues.

    Args:
        points: Points of one loop in the order of their load, at least one.
    """
    last = points[-1]
    if last.error_share > ERRORS_MAX:
        return "errors"
    if last.loop == "open":
        offered = last["offered_per_s"] or 0.0
        return "saturated" if (last["throughput_per_s"] or 0.0) < KEPT_UP * offered else None
    best = max((point.work_per_s for point in points[:-1]), default=0.0)
    return "saturated" if last.work_per_s < best * (1 + GAIN_MIN) else None


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """A load curve.

    Attributes:
        probe: Name of the probe.
        device: Name of the devices.
        currency: ISO 4217 code; empty if the devices have no price.
        fingerprint: Fingerprint of server, model and workload.
        time_ns: UTC in ns of its end.
        bounds_ms: Longest times of the service level in ms, by their names: "ttft_p90"; empty
            without one.
        points: The closed loop, then the open loop, each in the order of its load.
        ends: Why each loop ended.
        stopped: Why the curve was ended before its loops; empty if it was not.
        tags: Host and static labels.
    """

    probe: str
    device: str
    currency: str
    fingerprint: str
    time_ns: int
    bounds_ms: Mapping[str, float]
    points: tuple[LoadPoint, ...]
    ends: Mapping[Loop, str] = field(default_factory=dict)
    stopped: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_saturated(self) -> bool:
        """Whether the closed loop went on until throughput no longer rose."""
        return self.ends.get("closed") == "saturated"

    @property
    def fastest(self) -> LoadPoint:
        """The point with the highest throughput."""
        return max(self.points, key=lambda point: point.work_per_s)

    @property
    def cheapest(self) -> LoadPoint | None:
        """Cheapest point that meets the service level; None if none is known to meet it.

        Without a price it is the one with the highest throughput, which on the same devices is also
        the cheapest, except for electricity.
        """
        within = [point for point in self.points if point.meets(self.bounds_ms)]
        if not within or any(point.cost is None for point in within):
            return max(within, key=lambda point: point.work_per_s, default=None)
        return min(within, key=lambda point: point.cost or 0.0)

    @property
    def front(self) -> tuple[LoadPoint, ...]:
        """Points that no other one beats in both cost and speed of a user, the fastest first.

        Without a price the device's time per token takes the place of the cost.
        """
        known = [point for point in self.points if point.speed is not None and point.work_per_s]
        known.sort(key=lambda point: (-(point.speed or 0.0), self.price(point)))
        front: list[LoadPoint] = []
        for point in known:
            if not front or self.price(point) < self.price(front[-1]):
                front.append(point)
        return tuple(front)

    def price(self, point: LoadPoint) -> float:
        """Return the cost of a point, or device-seconds per token if any point has no cost."""
        if any(each.cost is None for each in self.points):
            return 1 / point.work_per_s
        return point.cost or 0.0


def measured_loops(
    config: LoadConfig, measure: Callable[[LoadStep], LoadPoint], why_stop: Callable[[], str]
) -> MeasuredLoops:
    """Measure points until each loop ends.

    Args:
        config: The loads.
        measure: Measures a point; raises LoadStoppedError to discard it and end.
        why_stop: Called before each point; returns why it must not be measured, empty if it may.
    """
    loops = MeasuredLoops()
    closed = (
        LoadStep("closed", number, concurrency=concurrency)
        for number, concurrency in enumerate(config.closed_steps, 1)
    )
    kinds: dict[Loop, Iterable[LoadStep]] = {
        "closed": closed,
        "open": _open_steps(config, loops.points),
    }
    try:
        for loop, steps in kinds.items():
            measured: list[LoadPoint] = []
            for step in steps:
                if reason := why_stop():
                    return replace(loops, stopped=reason)
                measured.append(measure(step))
                loops.points.append(measured[-1])
                if end := loop_end(measured):
                    loops.ends[loop] = end
                    break
            else:
                if measured:
                    loops.ends[loop] = "complete"
    except LoadStoppedError as stopped:
        loops.stopped = str(stopped)
    return loops


def _open_steps(config: LoadConfig, closed: Sequence[LoadPoint]) -> Iterable[LoadStep]:
    rates = config.rates
    if rates is None:
        highest = max((point["throughput_per_s"] or 0.0 for point in closed), default=0.0)
        rates = tuple(share * highest for share in RATE_SHARES if highest)
    for number, rate_per_s in enumerate(sorted(set(rates)), 1):
        yield LoadStep("open", number, rate_per_s=rate_per_s)


def load_plan(probe: ServedProbeConfig) -> LoadPlan:
    """Return what the load curve of a probe takes; it may end earlier, at saturation."""
    config = probe.load_curve
    rates = len(RATE_SHARES) if config.rates is None else len(config.rates)
    points = len(config.closed_steps) + rates
    expected_s = config.warmup_s + config.window_s + POINT_OVERHEAD_S
    return LoadPlan(points, points * expected_s, points * longest_point_s(probe))


def longest_point_s(probe: ServedProbeConfig) -> float:
    """Return the most seconds that a point takes: its requests may all take until their timeout."""
    config = probe.load_curve
    waits_s = 3 * probe.timeout_s
    return config.warmup_s + config.window_max_s + waits_s + POINT_OVERHEAD_S


def curve_rows(curve: LoadCurve) -> list[Point]:
    """Return the rows of a curve, one for each point, with one timestamp."""
    cheapest, front = curve.cheapest, curve.front
    last = {point.loop: point for point in curve.points}
    slo = slo_text(curve.bounds_ms)
    rows = []
    for point in curve.points:
        tags = {
            **curve.tags,
            "device": curve.device,
            "probe": curve.probe,
            "loop": point.loop,
            "step": str(point.number),
            "concurrency": "" if point.concurrency is None else str(point.concurrency),
            "currency": curve.currency,
        }
        fields = {
            **point.figures,
            "energy_method": point.energy_method,
            "contended": point.contended,
            "fingerprint": curve.fingerprint,
            "slo": slo or None,
            "meets_slo": point.meets(curve.bounds_ms) if slo else None,
            "cheapest": point == cheapest,
            "front": point in front,
            "loop_end": curve.ends.get(point.loop) if point == last[point.loop] else None,
        }
        rows.append(make_point("sweep", tags, fields, curve.time_ns))
    return rows


def is_load_row(row: Point) -> bool:
    """Return whether a row of `sweep` is a point of a load curve, not of a sweep over batches."""
    return "loop" in row.tags


def curves_from_rows(rows: Iterable[Point], bounds_ms: Mapping[str, float]) -> list[LoadCurve]:
    """Return the curves among rows of `sweep` of one probe, in order of time.

    Args:
        rows: Rows of the probe; those of sweeps over batches are skipped.
        bounds_ms: The service level to compare the points with.
    """
    by_curve: dict[tuple[int, str], list[Point]] = {}
    for row in rows:
        if is_load_row(row):
            by_curve.setdefault((row.time_ns, row.tags.get("device", "")), []).append(row)
    return [_curve(by_curve[key], bounds_ms) for key in sorted(by_curve)]


def curve_from_rows(rows: Iterable[Point], bounds_ms: Mapping[str, float]) -> LoadCurve:
    """Return the newest curve among rows of one probe, of which at least one is of a load curve.

    Args:
        rows: Rows of the probe.
        bounds_ms: The service level to compare the points with.
    """
    return curves_from_rows(rows, bounds_ms)[-1]


def _curve(rows: Sequence[Point], bounds_ms: Mapping[str, float]) -> LoadCurve:
    points = sorted((_point(row) for row in rows), key=lambda point: (point.loop, point.number))
    first = rows[0]
    return LoadCurve(
        probe=first.tags["probe"],
        device=first.tags["device"],
        currency=first.tags.get("currency", ""),
        fingerprint=str(first.fields.get("fingerprint", "")),
        time_ns=first.time_ns,
        bounds_ms=bounds_ms,
        points=tuple(points),
        ends={
            cast("Loop", row.tags["loop"]): str(row.fields["loop_end"])
            for row in rows
            if "loop_end" in row.fields
        },
    )


def slo_text(bounds_ms: Mapping[str, float]) -> str:
    """Return a service level as text: "ttft_p90 500 ms, tpot_p90 50 ms"; empty without one."""
    return ", ".join(f"{name} {bound_ms:g} ms" for name, bound_ms in bounds_ms.items())


def _point(row: Point) -> LoadPoint:
    method, contended = row.fields.get("energy_method"), row.fields.get("contended")
    concurrency, step = row.tags.get("concurrency", ""), row.tags.get("step", "")
    return LoadPoint(
        loop=cast("Loop", row.tags["loop"]),
        number=int(step) if step.isdigit() else 0,
        concurrency=int(concurrency) if concurrency.isdigit() else None,
        figures={name: as_number(row.fields.get(name)) for name in FIGURES},
        energy_method=None if method is None else str(method),
        contended=contended if isinstance(contended, bool) else None,
    )
