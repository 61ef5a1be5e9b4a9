"""Arrival times of a fleet's requests: the delivery workers of all hosts in simulated time.

Each case runs with and without the flush schedule: all hosts started within two seconds (a
rollout), and a database that is unreachable for ten minutes and then accepts everything.
"""

import heapq
import random
from threading import Event
from typing import Any, cast

from costprobe.adapters.http.errors import RetryLater
from costprobe.core.records import NS_PER_S, RowBatch
from costprobe.delivery.contract import SinkConfig
from costprobe.delivery.loop import FlushSchedule, SinkWorker
from fakes.sending import ImmediateSchedule

FLUSH_S = 10.0
STARTED_WITHIN_S = 2.0
DRAIN_PER_S = 100_000
OUTAGE_S = 600.0
SIMULATED_OUTAGE_S = 120.0
START_NS = 1_780_000_000 * NS_PER_S
CONFIG = SinkConfig.model_validate(
    {
        "api": "simulated",
        "flush_every": f"{FLUSH_S}s",
        "drain_points_per_s": DRAIN_PER_S,
    }
)


class FleetClock:
    """Wall clock and monotonic clock of all hosts."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def time_ns(self) -> int:
        return START_NS + int(self.now_s * NS_PER_S)

    def monotonic_ns(self) -> int:
        return int(self.now_s * NS_PER_S)

    def boottime_ns(self) -> int:
        return self.monotonic_ns()


class HostOutbox:
    """Live rows at a constant rate, and a backlog: numbers of rows, whose content is not stored."""

    def __init__(self, clock: FleetClock, per_s: float, waiting: int) -> None:
        self._clock, self._per_s, self._filled_s = clock, per_s, clock.now_s
        self._live, self._backlog = waiting, 0

    def live_batch(self, limit: int) -> RowBatch | None:
        arrived = int((self._clock.now_s - self._filled_s) * self._per_s)
        self._filled_s += arrived / self._per_s
        self._live += arrived
        return batch_of(1, min(limit, self._live))

    def backlog_batch(self, limit: int, after: int = 0) -> RowBatch | None:
        # None is in flight beside another: they would use threads.
        return None if after else batch_of(0, min(limit, self._backlog))

    def done(self, after: int, _seq: int, sent: int, _rejected: object) -> None:
        if after:
            self._live -= sent
        else:
            self._backlog -= sent

    def move_to_backlog(self, over_points: int) -> None:
        self.live_batch(0)
        if self._live > over_points:
            self._backlog += self._live
            self._live = 0


def batch_of(after: int, points: int) -> RowBatch | None:
    return RowBatch(after, points, points, b"x" * points) if points else None


class Server:
    """Counts the rows that arrive in each second."""

    def __init__(self, clock: FleetClock, reachable_s: float = 0.0) -> None:
        self._clock, self._reachable_s = clock, reachable_s
        self.requests: dict[int, int] = {}
        self.rows: dict[int, int] = {}

    def encode(self, points: bytes) -> bytes:
        return points

    def post(self, body: bytes) -> None:
        if self._clock.now_s < self._reachable_s:
            raise RetryLater("unreachable")
        second = int(self._clock.now_s)
        self.requests[second] = self.requests.get(second, 0) + 1
        self.rows[second] = self.rows.get(second, 0) + len(body)

    def close(self) -> None:
        """Do nothing: there is no connection."""


def arrivals(
    hosts: int,
    per_s: float,
    *,
    with_schedule: bool,
    backlog: int = 0,
    reachable_s: float = 0.0,
    seconds: int = 60,
) -> dict[str, float]:
    """Return the row arrivals in the worst second, and the mean of the first ten seconds.

    Args:
        hosts: Number of hosts.
        per_s: Rows per second of each host.
        with_schedule: Whether each host has its own phase within the flush interval.
        backlog: Queued rows of each host at the start.
        reachable_s: Time at which the server becomes reachable, in s.
        seconds: Simulated time after that, in s.
    """
    clock = FleetClock()
    server = Server(clock, reachable_s)
    rng = random.Random(1)
    waiting: list[tuple[float, int, Any]] = []
    for number in range(hosts):
        clock.now_s = rng.uniform(0.0, STARTED_WITHIN_S)
        name = f"gpu-node-{number:05}.example.com"
        host_rng = random.Random(number)
        worker = SinkWorker(
            CONFIG,
            cast("Any", HostOutbox(clock, per_s, backlog)),
            cast("Any", server),
            Event(),
            clock,
            rng=host_rng,
            schedule=FlushSchedule(name, "influxdb", FLUSH_S, host_rng, clock)
            if with_schedule
            else ImmediateSchedule(FLUSH_S),
        )
        heapq.heappush(waiting, (clock.now_s, number, worker))
    end_s = reachable_s + STARTED_WITHIN_S + seconds
    while waiting and waiting[0][0] < end_s:
        clock.now_s, number, worker = heapq.heappop(waiting)
        pause_s = max(worker.step(), 0.001)
        heapq.heappush(waiting, (clock.now_s + pause_s, number, worker))
    first = int(reachable_s) if backlog else int(STARTED_WITHIN_S)
    every = [server.rows.get(second, 0) for second in range(first, first + seconds)]
    return {"peak": max(every), "first_10_s": sum(every[:10]) / 10}


def table(hosts: int, per_s: float, outage_s: float = OUTAGE_S) -> dict[tuple[str, bool], float]:
    """Return each case without and with the flush schedule, as multiples of the fleet's row rate."""
    # Two minutes of the outage are simulated: by then the back-off has reached its maximum.
    backlog = int(per_s * (outage_s - SIMULATED_OUTAGE_S))
    multiples = {}
    for with_schedule in (False, True):
        rollout = arrivals(hosts, per_s, with_schedule=with_schedule)
        outage = arrivals(
            hosts,
            per_s,
            with_schedule=with_schedule,
            backlog=backlog,
            reachable_s=SIMULATED_OUTAGE_S,
            seconds=240,
        )
        multiples["rollout", with_schedule] = rollout["peak"] / (hosts * per_s)
        multiples["outage", with_schedule] = outage["peak"] / (hosts * per_s)
        multiples["outage, first 10 s", with_schedule] = outage["first_10_s"] / (hosts * per_s)
    return multiples
