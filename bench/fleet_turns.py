"""When a fleet's requests arrive: real pushers of every host in simulated time.

Three cases, each with and without a host's own moment: hosts that were all started within two
seconds (a rollout), and a database that is away for ten minutes and then takes everything.
"""

import heapq
import random
from threading import Event
from typing import NamedTuple

from agent.model import NS_PER_S
from agent.sinks.errors import RetryLater
from agent.sinks.pusher import Pusher
from agent.sinks.turn import Turn

FLUSH_S = 10.0
STARTED_WITHIN_S = 2.0
BATCH_POINTS = 5000
DRAIN_PER_S = 100_000
OUTAGE_S = 600.0
PLAYED_S = 120.0
START_NS = 1_780_000_000 * NS_PER_S


class SimulatedClock:
    """Both clocks of all hosts."""

    def __init__(self):
        self.now_s = 0.0

    def time_ns(self):
        return START_NS + int(self.now_s * NS_PER_S)

    def monotonic_ns(self):
        return int(self.now_s * NS_PER_S)


class Pack(NamedTuple):
    """A request's rows: their number stands for their text."""

    seq: int
    points: int
    lines: bytes


class Lines:
    """So many rows, counted and not kept."""

    def __init__(self, waiting=0):
        self.waiting = waiting

    def pack(self, limit):
        points = min(limit, self.waiting)
        return Pack(points, points, b"x" * points) if points else None

    def pack_behind(self, _seq, _limit):
        """Nothing is made beforehand: a host has no full request."""

    def done(self, _seq, sent, _rejected):
        self.waiting -= sent


class HostOutbox:
    """Live rows that come at a rate, and a backlog."""

    def __init__(self, clock, per_s, waiting):
        self._clock, self._per_s, self._filled_s = clock, per_s, clock.now_s
        self._live, self.backlog = Lines(waiting), Lines()

    @property
    def live(self):
        came = int((self._clock.now_s - self._filled_s) * self._per_s)
        self._filled_s += came / self._per_s
        self._live.waiting += came
        return self._live

    def set_apart(self, over_points):
        if self.live.waiting > over_points:
            self.backlog.waiting += self._live.waiting
            self._live.waiting = 0


class Server:
    """Counts what arrives in each second."""

    at_once = 1

    def __init__(self, clock, back_s=0.0):
        self._clock, self._back_s = clock, back_s
        self.requests, self.rows = {}, {}

    def pack(self, lines):
        return lines

    def post(self, body):
        if self._clock.now_s < self._back_s:
            raise RetryLater("away")
        second = int(self._clock.now_s)
        self.requests[second] = self.requests.get(second, 0) + 1
        self.rows[second] = self.rows.get(second, 0) + len(body)

    def close(self):
        """Holds nothing."""


def arrivals(hosts, per_s, *, with_turns, backlog=0, back_s=0.0, seconds=60):
    """Rows that arrive in the worst second, and in a second of the first ten that it takes them.

    Args:
        hosts: How many.
        per_s: Rows a second of each.
        with_turns: Whether each has its own moment.
        backlog: Rows that wait at each from the beginning.
        back_s: When the server comes back.
        seconds: How long from then on.
    """
    clock = SimulatedClock()
    server = Server(clock, back_s)
    rng = random.Random(1)
    waiting = []
    for number in range(hosts):
        clock.now_s = rng.uniform(0.0, STARTED_WITHIN_S)
        name = f"gpu-node-{number:05}.example.com"
        own = random.Random(number)
        pusher = Pusher(
            "influxdb",
            HostOutbox(clock, per_s, backlog),
            server,
            Event(),
            batch_points=BATCH_POINTS,
            flush_every_s=FLUSH_S,
            drain_points_per_s=DRAIN_PER_S,
            rng=own,
            clock=clock,
            turn=Turn(name, "influxdb", FLUSH_S, own) if with_turns else None,
        )
        heapq.heappush(waiting, (clock.now_s, number, pusher))
    end_s = back_s + STARTED_WITHIN_S + seconds
    while waiting and waiting[0][0] < end_s:
        clock.now_s, number, pusher = heapq.heappop(waiting)
        pause_s = max(pusher.step(), 0.001)
        heapq.heappush(waiting, (clock.now_s + pause_s, number, pusher))
    first = int(back_s) if backlog else int(STARTED_WITHIN_S)
    every = [server.rows.get(second, 0) for second in range(first, first + seconds)]
    return {"peak": max(every), "first_10_s": sum(every[:10]) / 10}


def table(hosts, per_s, outage_s=OUTAGE_S):
    """Each case without and with turns, as multiples of the rows that the fleet makes a second."""
    # Of an outage two minutes are played, which is when the retries are as rare as they get.
    backlog = int(per_s * (outage_s - PLAYED_S))
    found = {}
    for with_turns in (False, True):
        rollout = arrivals(hosts, per_s, with_turns=with_turns)
        outage = arrivals(
            hosts, per_s, with_turns=with_turns, backlog=backlog, back_s=PLAYED_S, seconds=240
        )
        found["rollout", with_turns] = rollout["peak"] / (hosts * per_s)
        found["outage", with_turns] = outage["peak"] / (hosts * per_s)
        found["outage, first 10 s", with_turns] = outage["first_10_s"] / (hosts * per_s)
    return found
