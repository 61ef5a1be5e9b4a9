"""Delivery: in order, acknowledged, split around what is refused, never lost, never stopped."""

import random
import threading

import pytest
from fakes.clock import FakeClock
from fakes.outbox import MemoryOutbox
from hypothesis import given
from hypothesis import strategies as st

from agent.sinks.batching import (
    MAX_BATCH_BYTES,
    MIN_BATCH_BYTES,
    TAKEN_BEFORE_LARGER,
    BatchSize,
)
from agent.sinks.errors import Misconfigured, Rejected, RetryLater
from agent.sinks.pusher import MAX_BACKOFF_S, Pusher


class Taker:
    """A sink that takes lines, refuses poison, and fails as it is told."""

    at_once = 1

    def __init__(self, *, limit_bytes=None):
        self.lines = []
        self.requests = 0
        self.too_large = 0
        self.failures = []
        self.limit_bytes = limit_bytes
        self.closed = False
        self.doubtful = False
        self.refuses_nothing_too = False

    def pack(self, lines):
        return lines

    def post(self, body):
        self.send(body)

    def send(self, lines):
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)
        if self.limit_bytes and len(lines) > self.limit_bytes:
            self.too_large += 1
            raise Rejected("too large", too_large=True)
        found = lines.decode().split("\n")
        if any("poison" in line for line in found):
            raise Rejected("it is poison", doubtful=self.doubtful)
        self.lines += found

    def check(self):
        if self.refuses_nothing_too:
            raise Rejected("go away", doubtful=True)
        return "fine"

    def close(self):
        self.closed = True


class TakerOfTwo(Taker):
    """The same for two requests at once, which may have to wait.

    Attributes:
        opened: Lets them go on.
        now, most: How many there are, and how many there were at most.
    """

    at_once = 2

    def __init__(self):
        super().__init__()
        self.opened = threading.Event()
        self.opened.set()
        self.now = self.most = 0
        self._lock = threading.Lock()

    def post(self, body):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.opened.wait(30)
        with self._lock:
            self.now -= 1
            self.send(body)


def pusher_of(outbox, sink, *, batch_points=100, stop=None, clock=None, drain_points_per_s=10**6):
    return Pusher(
        "s",
        outbox,
        sink,
        stop or threading.Event(),
        batch_points=batch_points,
        flush_every_s=0.01,
        drain_points_per_s=drain_points_per_s,
        rng=random.Random(1),
        clock=clock,
    )


def drain(pusher, outbox, steps=10_000):
    for _ in range(steps):
        pusher.step()
        if outbox.is_drained:
            return
    raise AssertionError("it never drained")


def test_everything_arrives_in_order():
    lines = [f"m v={i} {i}" for i in range(1050)]
    outbox, sink = MemoryOutbox(lines), Taker()
    drain(pusher_of(outbox, sink), outbox)
    assert sink.lines == lines
    assert outbox.sent == 1050
    assert sink.requests == 11


@given(
    st.lists(st.booleans(), min_size=1, max_size=300),
    st.integers(1, 64),
    st.lists(st.sampled_from([RetryLater("busy"), Misconfigured("no such bucket"), OSError(5)])),
)
def test_with_two_requests_at_once_too_each_point_arrives_once(poisoned, batch_points, failures):
    lines = [("poison" if bad else "m") + f" v={i} {i}" for i, bad in enumerate(poisoned)]
    outbox, sink = MemoryOutbox(lines), TakerOfTwo()
    pusher = pusher_of(outbox, sink, batch_points=batch_points)
    pusher.step()
    sink.failures = failures
    drain(pusher, outbox)
    assert sorted(sink.lines) == sorted(line for line in lines if "poison" not in line)
    assert [line for line, _ in outbox.rejected] == [line for line in lines if "poison" in line]
    assert outbox.sent == len(sink.lines)


def test_a_server_has_two_requests_once_it_has_taken_one_and_while_it_keeps_up(wait_until):
    outbox, sink = MemoryOutbox([f"m v={i} {i}" for i in range(2000)]), TakerOfTwo()
    pusher = pusher_of(outbox, sink)
    pusher.step()
    assert (sink.requests, sink.most) == (1, 1)
    sink.opened.clear()
    step = threading.Thread(target=pusher.step)
    step.start()
    wait_until(lambda: sink.now == 2)
    sink.opened.set()
    step.join()
    for _ in range(5):
        pusher.step()
    assert sink.most == 2
    sink.failures = [RetryLater("busy")]
    while not pusher.status()["failures"]:
        pusher.step()
    sink.most = 0
    # After a failure it has one alone, and a smaller one, until it has taken that.
    while not sink.most:
        pusher.step()
    assert sink.most == 1
    drain(pusher, outbox)
    assert len(sink.lines) == outbox.sent == 2000


def test_what_has_arrived_before_its_turn_is_recorded_at_a_stop(wait_until):
    outbox, sink = MemoryOutbox([f"m v={i} {i}" for i in range(1000)]), TakerOfTwo()
    stop = threading.Event()
    pusher = pusher_of(outbox, sink, stop=stop)
    pusher.step()
    pusher.step()
    # The three requests behind these two leave before their turn.
    wait_until(lambda: len(sink.lines) == 500)
    assert outbox.live.done_seq == 200
    stop.set()
    pusher.run()
    assert outbox.live.done_seq == len(sink.lines) == 500
    assert sink.closed


def test_a_full_batch_is_followed_at_once_and_an_empty_outbox_waits():
    outbox, sink = MemoryOutbox(["a v=1 1"] * 100), Taker()
    pusher = pusher_of(outbox, sink, clock=FakeClock())
    assert pusher.step() == 0.0
    assert pusher.step() == pytest.approx(0.01)
    assert pusher.status()["state"] == "idle"


def test_a_refused_point_is_put_aside_and_blocks_nothing():
    lines = [f"m v={i} {i}" for i in range(1000)]
    lines[617] = "poison v=1 1"
    outbox, sink = MemoryOutbox(lines), Taker()
    pusher = pusher_of(outbox, sink, batch_points=1000)
    drain(pusher, outbox)
    assert sink.lines == lines[:617] + lines[618:]
    assert outbox.rejected == [("poison v=1 1", "it is poison")]
    assert pusher.status()["rejected"] == 1
    # One point among a thousand is found in about twice log2(1000) requests.
    assert sink.requests <= 25


@given(st.lists(st.booleans(), min_size=1, max_size=300), st.integers(1, 64))
def test_whatever_is_refused_the_rest_arrives_once(poisoned, batch_points):
    lines = [("poison" if bad else "m") + f" v={i} {i}" for i, bad in enumerate(poisoned)]
    outbox, sink = MemoryOutbox(lines), Taker()
    drain(pusher_of(outbox, sink, batch_points=batch_points), outbox)
    assert sink.lines == [line for line in lines if "poison" not in line]
    assert [line for line, _ in outbox.rejected] == [line for line in lines if "poison" in line]


def test_a_request_that_is_too_large_is_made_smaller_and_stays_so():
    lines = [f"m v={i} {i}" for i in range(20_000)]
    outbox, sink = MemoryOutbox(lines), Taker(limit_bytes=20_000)
    drain(pusher_of(outbox, sink, batch_points=5000), outbox)
    assert sink.lines == lines
    assert outbox.rejected == []
    # The first batch finds the limit: as a whole, and in each of its halves.
    assert sink.too_large == 3


def test_a_single_line_that_is_too_large_is_put_aside():
    lines = ["m v=1 1", "m s=" + "x" * 30_000, "m v=3 3"]
    outbox, sink = MemoryOutbox(lines), Taker(limit_bytes=20_000)
    drain(pusher_of(outbox, sink), outbox)
    assert sink.lines == ["m v=1 1", "m v=3 3"]
    assert [reason for _, reason in outbox.rejected] == ["too large"]


def test_a_request_is_bounded_in_bytes_however_many_points_it_may_hold():
    lines = ["m s=" + "é" * 100_000] * 50
    outbox, sink = MemoryOutbox(lines), Taker(limit_bytes=MAX_BATCH_BYTES)
    drain(pusher_of(outbox, sink, batch_points=50), outbox)
    assert sink.lines == lines
    # 10 MB: none of the requests was refused for its size.
    assert sink.requests == 3


def test_what_refuses_everything_does_not_empty_the_outbox():
    """As a TLS port does that is spoken to in plain HTTP, or a proxy that knows no such path."""
    lines = [f"poison v={i} {i}" for i in range(1000)]
    outbox, sink = MemoryOutbox(lines), Taker()
    sink.doubtful = sink.refuses_nothing_too = True
    pusher = pusher_of(outbox, sink, batch_points=1000)
    for _ in range(5):
        assert pusher.step() > 0
    assert pusher.status()["state"] == "misconfigured"
    assert "check url" in pusher.status()["last_error"]
    assert outbox.rejected == []
    assert outbox.live.done_seq == 0
    # Each attempt finds it out on the way to one point: 1,000 takes ten halvings.
    assert sink.requests <= 5 * 11


def test_a_doubtful_refusal_counts_where_a_write_of_nothing_is_taken():
    lines = ["m v=1 1", "poison v=2 2", "m v=3 3"]
    outbox, sink = MemoryOutbox(lines), Taker()
    sink.doubtful = True
    drain(pusher_of(outbox, sink), outbox)
    assert sink.lines == ["m v=1 1", "m v=3 3"]
    assert outbox.rejected == [("poison v=2 2", "it is poison")]


def test_many_refused_points_are_one_line_in_the_log(caplog):
    outbox, sink = MemoryOutbox([f"poison v={i} {i}" for i in range(90)]), Taker()
    drain(pusher_of(outbox, sink), outbox)
    (record,) = caplog.records
    assert "90 points" in record.getMessage()
    assert "it is poison" in record.getMessage()


@pytest.mark.parametrize(
    ("failure", "level"), [(RetryLater("away"), "WARNING"), (Misconfigured("key"), "ERROR")]
)
def test_a_failure_that_lasts_is_said_once_and_its_end_too(failure, level, caplog):
    caplog.set_level("INFO")
    outbox, sink = MemoryOutbox(["m v=1 1"]), Taker()
    sink.failures = [failure] * 5
    pusher = pusher_of(outbox, sink)
    for _ in range(6):
        pusher.step()
    assert [record.levelname for record in caplog.records] == [level, "INFO"]


def test_the_status_says_when_it_tries_again():
    clock = FakeClock()
    outbox, sink = MemoryOutbox(["m v=1 1"]), Taker()
    pusher = pusher_of(outbox, sink, clock=clock)
    assert pusher.status()["retry_in_s"] is None
    sink.failures = [RetryLater("busy", after_s=17.0)]
    pause_s = pusher.step()
    assert pusher.status()["retry_in_s"] == pytest.approx(pause_s)
    clock.move(5)
    assert pusher.status()["retry_in_s"] == pytest.approx(pause_s - 5)
    clock.move(60)
    assert pusher.status()["retry_in_s"] == 0
    pusher.step()
    assert pusher.status()["retry_in_s"] is None
    assert pusher.status()["last_success_ns"] == clock.time_ns()


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (RetryLater("down"), "backing off"),
        (Misconfigured("no such bucket"), "misconfigured"),
        (RuntimeError("bug"), "failing"),
    ],
)
def test_a_failure_keeps_everything_and_is_seen_in_the_status(failure, state):
    outbox, sink = MemoryOutbox(["m v=1 1"] * 10), Taker()
    sink.failures = [failure]
    pusher = pusher_of(outbox, sink)
    assert pusher.step() > 0
    status = pusher.status()
    assert status["state"] == state
    assert str(failure) in status["last_error"]
    assert outbox.live.done_seq == 0
    pusher.step()
    assert len(sink.lines) == 10
    assert pusher.status()["last_error"] is None


def test_back_off_grows_is_spread_and_bounded():
    outbox, sink = MemoryOutbox(["m v=1 1"]), Taker()
    sink.failures = [RetryLater("down") for _ in range(60)]
    pusher = pusher_of(outbox, sink)
    pauses = [pusher.step() for _ in range(60)]
    assert max(pauses) <= MAX_BACKOFF_S
    assert max(pauses[:2]) <= 2.0
    assert len(set(pauses)) == 60
    assert sum(pauses[20:]) / 40 > 10


def test_the_wait_that_a_server_asks_for_is_kept():
    outbox, sink = MemoryOutbox(["m v=1 1"]), Taker()
    sink.failures = [RetryLater("busy", after_s=17.0)]
    assert 17.0 <= pusher_of(outbox, sink).step() <= 18.0


def test_a_failure_in_the_middle_of_a_split_repeats_little():
    lines = [f"m v={i} {i}" for i in range(64)]
    lines[0] = "poison v=0 0"
    outbox, sink = MemoryOutbox(lines), Taker()
    pusher = pusher_of(outbox, sink)
    original = sink.send

    def send(payload):
        if sink.requests == 9:
            sink.requests += 1
            raise RetryLater("gone")
        original(payload)

    sink.send = send
    drain(pusher, outbox)
    assert sink.lines == lines[1:]


def test_the_thread_ends_when_told_and_closes_its_sink():
    stop = threading.Event()
    outbox, sink = MemoryOutbox(["m v=1 1"] * 5), Taker()
    pusher = pusher_of(outbox, sink, stop=stop)
    thread = threading.Thread(target=pusher.run, daemon=True)
    thread.start()
    while not sink.lines:
        pusher.wake()
    stop.set()
    pusher.wake()
    thread.join(60)
    assert not thread.is_alive()
    assert sink.closed


def test_a_backlog_leaves_beside_live_rows_and_no_faster_than_it_may():
    clock = FakeClock()
    outbox = MemoryOutbox(backlog=[f"old v={i} {i}" for i in range(5000)])
    sink = Taker()
    pusher = pusher_of(outbox, sink, batch_points=100, clock=clock, drain_points_per_s=1000)
    came = []
    for second in range(20):
        outbox.live.add([f"new v={second} {second}"])
        pause_s = 0.0
        while pause_s < 1e-3:
            pause_s = pusher.step()
        came.append(sum(line.startswith("old") for line in sink.lines))
        clock.move(1)
    # A second's worth and a batch that overdraws it, then a second's worth each second.
    assert came[:5] == [1100, 2100, 3100, 4100, 5000]
    assert [line for line in sink.lines if line.startswith("new")] == [
        f"new v={second} {second}" for second in range(20)
    ]
    assert outbox.is_drained


def test_what_waits_is_set_apart_before_live_rows_are_looked_at():
    outbox = MemoryOutbox(["m v=1 1"])
    pusher_of(outbox, Taker(), batch_points=100).step()
    assert outbox.apart == [200]


def test_a_failure_makes_requests_smaller_and_success_larger_again():
    sizes = []

    class Slow(Taker):
        """A server that has no answer in time for more than 1,000 points."""

        def send(self, lines):
            count = lines.count(b"\n") + 1
            sizes.append(count)
            if count > 1000:
                raise RetryLater("timed out")
            super().send(lines)

    lines = [f"m v={i} {i}" for i in range(60_000)]
    outbox, sink = MemoryOutbox(lines), Slow()
    drain(pusher_of(outbox, sink, batch_points=5000), outbox)
    assert sink.lines == lines
    assert sizes[:4] == [5000, 2500, 1250, 625]
    # From then on it climbs to what the server can take, and falls back by half.
    settled = sizes[4:-1]
    assert max(settled) <= 1250
    assert sum(settled) / len(settled) > 600


def test_after_many_requests_that_fit_larger_ones_are_tried():
    batch = BatchSize(5000)
    batch.too_large(100_000)
    assert batch.size_bytes == 50_000
    for _ in range(TAKEN_BEFORE_LARGER - 1):
        batch.taken()
    assert batch.size_bytes == 50_000
    batch.taken()
    assert batch.size_bytes == 100_000
    batch.too_large(1)
    assert batch.size_bytes == MIN_BATCH_BYTES
