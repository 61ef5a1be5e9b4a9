"""The hosts of a fleet send at different moments, also after an outage."""

import random
from collections import Counter

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.delivery.loop import BACKLOG_FLUSHES, FlushSchedule
from fakes.clock import FakeClock
from fakes.outbox import MemoryOutbox
from fakes.sending import worker_of
from fakes.sinks import RecordingSink
from hypothesis import given
from hypothesis import strategies as st

EVERY_S = 10.0
NAMES = [f"gpu-node-{number:05}.example.com" for number in range(10_000)]


def schedule_of(host="h", sink="s", every_s=EVERY_S, clock=None):
    return FlushSchedule(host, sink, every_s, random.Random(1), clock or FakeClock())


def worker_with(outbox, sink, clock, schedule=None):
    schedule = schedule or schedule_of(clock=clock)
    return worker_of(
        outbox, sink, clock=clock, schedule=schedule, batch_points=100, flush_every_s=EVERY_S
    )


@pytest.mark.parametrize("every_s", [1.0, 10.0, 300.0])
def test_phases_of_a_fleet_are_spread_evenly(every_s):
    tenths = Counter(
        int(schedule_of(host, every_s=every_s).phase_s / every_s * 10) for host in NAMES
    )
    assert set(tenths) == set(range(10))
    assert max(tenths.values()) < 1.15 * len(NAMES) / 10


@given(st.text(max_size=20), st.floats(0.01, 86_400), st.integers(0, 2**62))
def test_next_flush_is_at_the_phase_within_one_interval(host, every_s, utc_ns):
    own = schedule_of(host, every_s=every_s, clock=FakeClock(utc_ns))
    wait_s = own.live_wait_s()
    assert 0 < wait_s <= 1.1 * every_s + 1e-6
    every_ns = int(every_s * NS_PER_S)
    past_ns = (utc_ns + int(wait_s * NS_PER_S) - int(own.phase_s * NS_PER_S)) % every_ns
    assert min(past_ns, every_ns - past_ns) <= 1e-6 * every_ns + 1000


def test_live_rows_are_sent_at_the_phase():
    clock, sink, outbox = FakeClock(), RecordingSink(), MemoryOutbox()
    own = schedule_of(clock=clock)
    worker = worker_with(outbox, sink, clock, own)
    sent_at_s = []
    for number in range(8 * int(EVERY_S)):
        outbox.live.add([f"m v={number} {number}"])
        before = len(sink.lines)
        pause_s = max(worker.step(), 0.001)
        if len(sink.lines) > before:
            sent_at_s.append(clock.time_ns() / NS_PER_S % EVERY_S)
        clock.move(pause_s)
    assert len(sent_at_s) >= 8
    assert all(at_s == pytest.approx(own.phase_s, abs=0.01) for at_s in sent_at_s)


def test_wall_clock_step_delays_one_flush_at_most():
    clock, sink, outbox = FakeClock(), RecordingSink(), MemoryOutbox()
    worker = worker_with(outbox, sink, clock)
    clock.move(worker.step())
    clock.step(-7200.0)
    outbox.live.add(["m v=1 1"])
    waited_s = 0.0
    while not sink.lines:
        pause_s = max(worker.step(), 0.001)
        waited_s += pause_s
        clock.move(pause_s)
        assert waited_s <= 2.2 * EVERY_S
    assert sink.lines == ["m v=1 1"]


def backlog_begins_s(seed, *, requested=False):
    """How long after an outage the first row of a backlog arrives."""
    clock, sink = FakeClock(), RecordingSink()
    outbox = MemoryOutbox(backlog=["m v=1 1"])
    own = FlushSchedule("h", "s", EVERY_S, random.Random(seed), clock)
    worker = worker_with(outbox, sink, clock, own)
    clock.move(100.0)
    outbox.live.add(["m v=2 2"])
    sink.is_away = True
    assert worker.step() > 0
    sink.is_away = False
    if requested:
        worker.retry_now()
    back_ns = clock.monotonic_ns()
    while "m v=1 1" not in sink.lines:
        clock.move(max(worker.step(), 0.001))
    return (clock.monotonic_ns() - back_ns) / NS_PER_S


def test_backlogs_of_a_fleet_begin_at_different_times():
    begins_s = [backlog_begins_s(seed) for seed in range(50)]
    assert max(begins_s) <= (BACKLOG_FLUSHES + 2.2) * EVERY_S
    assert max(begins_s) - min(begins_s) > BACKLOG_FLUSHES / 2 * EVERY_S


def test_requested_retry_skips_the_random_delay():
    assert max(backlog_begins_s(seed, requested=True) for seed in range(20)) <= 1.1 * EVERY_S
