"""A fleet's hosts each have their moment, and after an outage their backlogs begin apart."""

import random
import threading
from collections import Counter

import pytest
from fakes.clock import FakeClock
from fakes.outbox import MemoryOutbox
from hypothesis import given
from hypothesis import strategies as st

from agent.model import NS_PER_S
from agent.sinks.errors import RetryLater
from agent.sinks.pusher import Pusher
from agent.sinks.turn import BACKLOG_FLUSHES, Turn

EVERY_S = 10.0
NAMES = [f"gpu-node-{number:05}.example.com" for number in range(10_000)]


class Taker:
    """A sink that keeps what it is given, unless it is away."""

    at_once = 1

    def __init__(self):
        self.is_away = False
        self.lines = []

    def pack(self, lines):
        return lines

    def post(self, lines):
        if self.is_away:
            raise RetryLater("away")
        self.lines += lines.decode().split("\n")

    def close(self):
        """Holds nothing."""


def turn(host="h", sink="s", every_s=EVERY_S):
    return Turn(host, sink, every_s, random.Random(1))


def pusher_with(outbox, sink, clock, of=None):
    return Pusher(
        "s",
        outbox,
        sink,
        threading.Event(),
        batch_points=100,
        flush_every_s=EVERY_S,
        drain_points_per_s=10**6,
        rng=random.Random(1),
        clock=clock,
        turn=of or turn(),
    )


def test_a_hosts_moment_is_its_own_and_stays():
    assert turn().phase_s == turn().phase_s
    assert len({turn(host).phase_s for host in NAMES}) == len(NAMES)
    assert turn(sink="one").phase_s != turn(sink="two").phase_s


@pytest.mark.parametrize("every_s", [1.0, 10.0, 300.0])
def test_a_fleets_moments_are_spread_evenly(every_s):
    tenths = Counter(int(turn(host, every_s=every_s).phase_s / every_s * 10) for host in NAMES)
    assert set(tenths) == set(range(10))
    assert max(tenths.values()) < 1.15 * len(NAMES) / 10


@given(st.text(max_size=20), st.floats(0.01, 86_400), st.integers(0, 2**62))
def test_the_next_moment_is_the_hosts_and_comes_within_the_interval(host, every_s, utc_ns):
    own = turn(host, every_s=every_s)
    wait_s = own.live_wait_s(utc_ns)
    assert 0 < wait_s <= 1.1 * every_s + 1e-6
    every_ns = int(every_s * NS_PER_S)
    past_ns = (utc_ns + int(wait_s * NS_PER_S) - int(own.phase_s * NS_PER_S)) % every_ns
    assert min(past_ns, every_ns - past_ns) <= 1e-6 * every_ns + 1000


def test_live_rows_leave_at_the_hosts_moments():
    clock, sink, outbox = FakeClock(), Taker(), MemoryOutbox()
    own = turn()
    pusher = pusher_with(outbox, sink, clock, own)
    sent_at_s = []
    for number in range(8 * int(EVERY_S)):
        outbox.live.add([f"m v={number} {number}"])
        before = len(sink.lines)
        pause_s = max(pusher.step(), 0.001)
        if len(sink.lines) > before:
            sent_at_s.append(clock.time_ns() / NS_PER_S % EVERY_S)
        clock.move(pause_s)
    assert len(sent_at_s) >= 8
    assert all(at_s == pytest.approx(own.phase_s, abs=0.01) for at_s in sent_at_s)


def test_a_wall_clock_that_is_stepped_costs_no_more_than_a_flush():
    clock, sink, outbox = FakeClock(), Taker(), MemoryOutbox()
    pusher = pusher_with(outbox, sink, clock)
    clock.move(pusher.step())
    clock.step(-7200.0)
    outbox.live.add(["m v=1 1"])
    waited_s = 0.0
    while not sink.lines:
        pause_s = max(pusher.step(), 0.001)
        waited_s += pause_s
        clock.move(pause_s)
        assert waited_s <= 2.2 * EVERY_S
    assert sink.lines == ["m v=1 1"]


def backlog_begins_s(seed, *, asked=False):
    """How long after an outage the first row of a backlog arrives."""
    clock, sink = FakeClock(), Taker()
    outbox = MemoryOutbox(backlog=["m v=1 1"])
    own = Turn("h", "s", EVERY_S, random.Random(seed))
    pusher = pusher_with(outbox, sink, clock, own)
    clock.move(100.0)
    outbox.live.add(["m v=2 2"])
    sink.is_away = True
    assert pusher.step() > 0
    sink.is_away = False
    if asked:
        pusher.retry_now()
    back_ns = clock.monotonic_ns()
    while "m v=1 1" not in sink.lines:
        clock.move(max(pusher.step(), 0.001))
    return (clock.monotonic_ns() - back_ns) / NS_PER_S


def test_backlogs_begin_apart_after_an_outage():
    begins_s = [backlog_begins_s(seed) for seed in range(50)]
    assert max(begins_s) <= (BACKLOG_FLUSHES + 2.2) * EVERY_S
    assert max(begins_s) - min(begins_s) > BACKLOG_FLUSHES / 2 * EVERY_S


def test_who_asks_for_a_retry_waits_for_no_turn():
    assert max(backlog_begins_s(seed, asked=True) for seed in range(20)) <= 1.1 * EVERY_S
