"""What would have fired: the rules and detectors over rows of the past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from agent.alert import Alert
from agent.alerting.analyst import Analyst
from agent.alerting.engine import AlertEngine
from agent.model import NS_PER_S, Event, Point

# The notifier that a replay's engine tells: it collects.
COLLECTOR = "replay"
MAX_TICKS_OF_A_SILENCE = 2000


@dataclass(slots=True)
class Replayed:
    """What came of a replay.

    Attributes:
        incidents: Every incident that fired, as it was told last, in the order of firing.
        events: Drifts and anomalies, in order.
        rows: How many rows were looked at.
        first_ns: UTC in ns of the first row; None without rows.
        last_ns: UTC in ns of the last row.
    """

    incidents: dict[str, Alert] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    rows: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


def replay(
    rows: Iterable[Point], engine: AlertEngine, analyst: Analyst, every_s: float
) -> Replayed:
    """Feeds rows to an engine and an analyst as if they came now.

    Args:
        rows: In the order of their times.
        engine: New, with a notifier COLLECTOR.
        analyst: New.
        every_s: How often the rules are evaluated.
    """
    found = Replayed()
    every_ns = int(every_s * NS_PER_S)
    due_ns = 0
    for time_ns, together in groupby(rows, key=attrgetter("time_ns")):
        points = list(together)
        if found.first_ns is None:
            found.first_ns = due_ns = time_ns
        for tick_ns in _ticks(due_ns, time_ns, every_ns):
            _collect(found, engine, tick_ns)
            due_ns = tick_ns + every_ns
        found.rows += len(points)
        found.last_ns = time_ns
        _feed(found, engine, analyst, points)
    if found.last_ns is not None:
        _collect(found, engine, found.last_ns)
    return found


def _feed(found: Replayed, engine: AlertEngine, analyst: Analyst, points: Sequence[Point]) -> None:
    for point in points:
        engine.observe(point)
    for event in analyst.take(points):
        found.events.append(event)
        engine.notice(event)


def _ticks(due_ns: int, until_ns: int, every_ns: int) -> Iterator[int]:
    """The instants of evaluation up to a time; in a long silence, not all of them."""
    silent = (until_ns - due_ns) // every_ns
    step_ns = every_ns * max(1, silent // MAX_TICKS_OF_A_SILENCE)
    yield from range(due_ns, until_ns, step_ns)


def _collect(found: Replayed, engine: AlertEngine, time_ns: int) -> None:
    for notice in engine.tick(time_ns, ()).notices:
        found.incidents[notice.alert.id] = notice.alert
