"""Heartbeats of the watchers of a fleet: rows of `watcher`, through a sink, in the fleet's own database."""

from __future__ import annotations

from typing import Final

from costprobe.adapters.fleet.question import Question
from costprobe.adapters.sinks.registry import build_sink
from costprobe.adapters.sinks.settings import SinkConfig
from costprobe.app.fleet.check import FleetQuery
from costprobe.core.clock import Clock
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.domain.fleet.lease import INTERVALS, Heartbeat, holds_lease

_ACTIVE: Final = "active"
_PASSIVE: Final = "passive"


class Lease:
    """The lease of one watcher.

    Args:
        sink: The sink that writes to the fleet's database.
        name: Name of the watcher: the tag `host` of its heartbeats.
        every_s: Interval of the evaluations in s, the same of all watchers.
        clock: For the sink.

    Attributes:
        is_held: Whether this watcher notifies; unchanged while the database does not answer.
        others_ns: UTC in ns of the newest heartbeat of another watcher that holds it; 0 without one.
    """

    def __init__(self, sink: SinkConfig, name: str, every_s: float, clock: Clock) -> None:
        self._sink = build_sink(sink, clock)
        self._name = name
        self._every_s = every_s
        self.is_held = False
        self.others_ns = 0

    def renew(self, query: FleetQuery) -> None:
        """Read all heartbeats, decide who holds the lease, and write the own heartbeat.

        Args:
            query: The database, at a multiple of the interval.

        Raises:
            DeliveryError: The database did not answer or did not accept the heartbeat.
            PartialAnswerError: It answered in part.
        """
        now_ns, every_ns = query.now_ns, int(self._every_s * NS_PER_S)
        since_ns = now_ns - INTERVALS * every_ns
        # A heartbeat has the time of the evaluation, which may be that of this one.
        with query.over(since_ns - NS_PER_S, now_ns + NS_PER_S, 1) as answers:
            found = answers.groups(Question("watcher", "every_s", "newest", by=("host", "state")))
        heartbeats = [
            Heartbeat(host, state == _ACTIVE, round(time_s * NS_PER_S))
            for (host, state), time_s in found.items()
        ]
        self.others_ns = max(
            (one.time_ns for one in heartbeats if one.is_active and one.watcher != self._name),
            default=0,
        )
        holds = holds_lease(self._name, heartbeats, now_ns, every_ns, held=self.is_held)
        self.is_held = self.is_held and holds
        tags = {"host": self._name, "state": _ACTIVE if holds else _PASSIVE}
        point = make_point("watcher", tags, {"every_s": self._every_s}, now_ns)
        self._sink.post(self._sink.encode(render(point).encode()))
        self.is_held = holds

    def close(self) -> None:
        """Close the connection."""
        self._sink.close()
