"""Replay of stored rows through the detectors and rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from costprobe.alerts.engine import AlertEngine
from costprobe.core.incident import Alert
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.core.schema import event_point
from costprobe.drift.monitor import DriftMonitor

# Name of the notifier that collects the notices of a replay.
COLLECTOR = "replay"


@dataclass(slots=True)
class Replayed:
    """Result of a replay.

    Attributes:
        incidents: Every incident that fired, in its last state, in the order of firing.
        events: Drifts and anomalies, in order.
        rows: Number of replayed rows.
        first_ns: UTC in ns of the first row; None without rows.
        last_ns: UTC in ns of the last row.
    """

    incidents: dict[str, Alert] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    rows: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


def replay(
    rows: Iterable[Point], engine: AlertEngine, monitor: DriftMonitor, every_s: float
) -> Replayed:
    """Replay rows through an engine and a drift monitor.

    Args:
        rows: Rows in order of time.
        engine: A new engine with a notifier COLLECTOR.
        monitor: A new drift monitor.
        every_s: Interval of evaluations.
    """
    replayed = Replayed()
    every_ns = int(every_s * NS_PER_S)
    due_ns = usual_ns = 0
    for time_ns, together in groupby(rows, key=attrgetter("time_ns")):
        points = list(together)
        if replayed.first_ns is None:
            replayed.first_ns = due_ns = time_ns
        last_ns = replayed.last_ns or time_ns
        for tick_ns in _ticks(max(due_ns, last_ns), (last_ns, time_ns), max(every_ns, usual_ns)):
            _collect(replayed, engine, tick_ns)
            due_ns = tick_ns + every_ns
        usual_ns = time_ns - last_ns
        replayed.rows += len(points)
        replayed.last_ns = time_ns
        _feed(replayed, engine, monitor, points)
    if replayed.last_ns is not None:
        _collect(replayed, engine, replayed.last_ns)
    return replayed


def merged(replays: Sequence[Replayed]) -> Replayed:
    """Return the results of several hosts as one, incidents and events in order of time."""
    alerts = [alert for one in replays for alert in one.incidents.values()]
    alerts.sort(key=lambda alert: alert.fired_ns or alert.since_ns)
    events = [event for one in replays for event in one.events]
    return Replayed(
        incidents={alert.id: alert for alert in alerts},
        events=sorted(events, key=attrgetter("time_ns")),
        rows=sum(one.rows for one in replays),
        first_ns=min((one.first_ns for one in replays if one.first_ns is not None), default=None),
        last_ns=max((one.last_ns for one in replays if one.last_ns is not None), default=None),
    )


def _feed(
    replayed: Replayed, engine: AlertEngine, monitor: DriftMonitor, points: Sequence[Point]
) -> None:
    for point in points:
        engine.observe(point)
    for event in monitor.update(points):
        replayed.events.append(event)
        engine.observe(event_point(event, {}))


def _ticks(due_ns: int, gap_ns: tuple[int, int], least_ns: int) -> Iterator[int]:
    """Return the evaluation instants between two rows.

    Without a row little changes: one evaluation in the usual distance of rows suffices, and in a
    longer gap one whenever it has grown by a tenth.
    """
    last_ns, until_ns = gap_ns
    while due_ns < until_ns:
        yield due_ns
        due_ns += max(least_ns, (due_ns - last_ns) // 10)


def _collect(replayed: Replayed, engine: AlertEngine, time_ns: int) -> None:
    for notice in engine.tick(time_ns, ()).notices:
        replayed.incidents[notice.alert.id] = notice.alert
