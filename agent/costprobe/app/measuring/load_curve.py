"""Measuring a load curve: a closed loop over concurrencies, then an open loop over request rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from costprobe.adapters.probing.load_settings import RATE_SHARES, LoadConfig
from costprobe.adapters.probing.served_settings import ServedProbeConfig
from costprobe.domain.costing.load.curve import loop_end
from costprobe.domain.costing.load.point import LoadPoint, LoadStep, Loop

# Start of the worker, rise and tail of the load, and the end of requests in flight, in s.
POINT_OVERHEAD_S = 6.0
# Start of the worker, name resolution and queries take less.
DEADLINE_MARGIN_S = 60.0


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
    try:
        closed = (
            LoadStep("closed", number, concurrency=concurrency)
            for number, concurrency in enumerate(config.closed_steps, 1)
        )
        _measure_loop(loops, "closed", closed, config, measure, why_stop)
        _measure_loop(loops, "open", _open_steps(config, loops.points), config, measure, why_stop)
    except LoadStoppedError as stopped:
        loops.stopped = str(stopped)
    return loops


def _measure_loop(
    loops: MeasuredLoops,
    loop: Loop,
    steps: Iterable[LoadStep],
    config: LoadConfig,
    measure: Callable[[LoadStep], LoadPoint],
    why_stop: Callable[[], str],
) -> None:
    measured: list[LoadPoint] = []
    for step in steps:
        if reason := why_stop():
            raise LoadStoppedError(reason)
        measured.append(measure(step))
        loops.points.append(measured[-1])
        end = loop_end(measured, config.min_gain, config.max_errors)
        if end is not None:
            loops.ends[loop] = end
            return
    if measured:
        loops.ends[loop] = "complete"


def _open_steps(config: LoadConfig, closed: Sequence[LoadPoint]) -> Iterable[LoadStep]:
    rates = config.rates
    if rates is None:
        highest = max((point["throughput_per_s"] or 0.0 for point in closed), default=0.0)
        rates = tuple(share * highest for share in RATE_SHARES if highest)
    for number, rate_per_s in enumerate(sorted(set(rates)), 1):
        yield LoadStep("open", number, rate_per_s=rate_per_s)


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
