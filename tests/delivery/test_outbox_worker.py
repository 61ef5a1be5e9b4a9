"""Delivery: in order, acknowledged, split around refused points, without loss."""

import pytest
from costprobe.adapters.http.errors import Misconfigured, RetryLater
from costprobe.delivery.loop import MAX_BACKOFF_S, MAX_BATCH_BYTES
from fakes.clock import FakeClock
from fakes.outbox import MemoryOutbox
from fakes.sending import drain, worker_of
from fakes.sinks import RecordingSink
from hypothesis import given
from hypothesis import strategies as st


def worker_with(outbox, sink, *, batch_points=100, **more):
    return worker_of(outbox, sink, batch_points=batch_points, **more)


@given(
    st.lists(st.booleans(), min_size=1, max_size=300),
    st.integers(1, 64),
    st.lists(st.sampled_from([RetryLater("busy"), Misconfigured("no such bucket"), OSError(5)])),
)
def test_each_point_of_a_backlog_is_counted_once_in_order(poisoned, batch_points, failures):
    """Two requests are in flight: rows may arrive twice after a failure, in any order."""
    lines = [("poison" if bad else "m") + f" v={i} {i}" for i, bad in enumerate(poisoned)]
    outbox, sink = MemoryOutbox(backlog=lines), RecordingSink()
    worker = worker_with(outbox, sink, batch_points=batch_points)
    worker.step()
    sink.failures = failures
    drain(worker, outbox)
    accepted = [line for line in lines if "poison" not in line]
    assert set(sink.lines) == set(accepted)
    assert [line for line, _ in outbox.rejected] == [line for line in lines if "poison" in line]
    assert outbox.sent == len(accepted)


def test_points_that_the_server_counts_as_dropped_are_quarantined_together():
    """As rows older than the database keeps: whole batches of a backlog."""
    lines = [f"{'poison' if i < 3300 else 'm'} v={i} {i}" for i in range(4000)]
    outbox, sink = MemoryOutbox(lines), RecordingSink()
    sink.counts = True
    drain(worker_with(outbox, sink, batch_points=1000), outbox)
    assert sink.lines == lines[3300:]
    assert [line for line, _ in outbox.rejected] == lines[:3300]
    # A request for each batch, and a search for the first row that is kept.
    assert sink.requests <= 3 + 2 * 10


def test_rows_that_always_cause_an_internal_error_block_nothing():
    backlog = [f"{'poison' if i in {0, 7, 400, 401} else 'm'} v={i} {i}" for i in range(1000)]
    outbox, sink = MemoryOutbox(backlog=backlog), RecordingSink()
    sink.is_internal = True
    worker = worker_with(outbox, sink, batch_points=500)
    for _ in range(10):
        worker.step()
    # Without another row that the server accepts it may fail for any reason.
    assert outbox.rejected == []
    outbox.live.add(["m v=1 1"])
    drain(worker, outbox, steps=100)
    assert [line for line, _ in outbox.rejected] == [x for x in backlog if "poison" in x]
    assert {"m v=1 1", *backlog} - set(sink.lines) == {line for line, _ in outbox.rejected}
    assert worker.status()["rejected_points"] == 4


def test_server_with_internal_errors_for_everything_loses_nothing():
    """A full disk, for example: 500 for rows, also for those that it accepted before."""
    outbox, sink = MemoryOutbox(["m v=0 0"]), RecordingSink()
    worker = worker_with(outbox, sink)
    worker.step()
    outbox.live.add(f"m v={i} {i}" for i in range(1, 300))
    sink.failures = [RetryLater("disk full", is_internal=True) for _ in range(200)]
    requests = []
    while sink.failures:
        before = sink.requests
        worker.step()
        requests.append(sink.requests - before)
        assert outbox.rejected == []
    # The search ends with the first row, and with one that was accepted before.
    assert max(requests) <= 12
    drain(worker, outbox)
    assert outbox.rejected == []
    assert len(set(sink.lines)) == 300


def test_requests_that_are_too_large_are_divided():
    number = [f"m v={i} {i}" for i in range(20_000)]
    single = ["m v=1 1", "m s=" + "x" * 30_000, "m v=3 3"]
    large = ["m s=" + "é" * 100_000] * 50
    for lines, limit, batch, rejected in (
        (number, 20_000, 5000, []),
        (single, 20_000, 100, single[1:2]),
        (large, MAX_BATCH_BYTES, 50, []),
    ):
        outbox, sink = MemoryOutbox(lines), RecordingSink(limit_bytes=limit)
        drain(worker_with(outbox, sink, batch_points=batch), outbox)
        assert sink.lines == [line for line in lines if line not in rejected]
        assert outbox.rejected == [(line, "too large") for line in rejected]
        assert lines == single or sink.too_large < sink.requests / 4
    # 10 MB: none of the requests was refused for its size.
    assert (sink.requests, sink.too_large) == (4, 0)


def test_server_that_refuses_everything_does_not_empty_the_outbox():
    """As a TLS port does for plain HTTP, or a proxy without that path."""
    lines = [f"poison v={i} {i}" for i in range(1000)]
    outbox, sink = MemoryOutbox(lines), RecordingSink()
    sink.is_doubtful = sink.refuses_everything = True
    worker = worker_with(outbox, sink, batch_points=1000)
    for _ in range(5):
        assert worker.step() > 0
    assert worker.status()["state"] == "misconfigured"
    assert "check url" in worker.status()["last_error"]
    assert outbox.rejected == []
    assert outbox.live.done_seq == 0
    # Each attempt halves the batch down to one point: ten halvings for 1,000.
    assert sink.requests <= 5 * 11


def test_doubtful_refusal_counts_if_an_empty_write_is_accepted():
    lines = ["m v=1 1", "poison v=2 2", "m v=3 3"]
    outbox, sink = MemoryOutbox(lines), RecordingSink()
    sink.is_doubtful = True
    drain(worker_with(outbox, sink), outbox)
    assert sink.lines == ["m v=1 1", "m v=3 3"]
    assert outbox.rejected == [("poison v=2 2", "it is poison")]


def test_lasting_failure_and_recovery_are_logged_once(caplog):
    caplog.set_level("INFO")
    for failure, level in ((RetryLater("away"), "WARNING"), (Misconfigured("key"), "ERROR")):
        outbox, sink = MemoryOutbox(["m v=1 1"]), RecordingSink()
        sink.failures = [failure] * 5
        worker = worker_with(outbox, sink)
        caplog.clear()
        for _ in range(6):
            worker.step()
        assert [record.levelname for record in caplog.records] == [level, "INFO"]


def test_status_contains_the_time_of_the_next_attempt():
    clock = FakeClock()
    outbox, sink = MemoryOutbox(["m v=1 1"]), RecordingSink()
    worker = worker_with(outbox, sink, clock=clock)
    assert worker.status()["retry_in_s"] is None
    sink.failures = [RetryLater("busy", after_s=17.0)]
    pause_s = worker.step()
    assert 17.0 <= pause_s <= 18.0
    assert worker.status()["retry_in_s"] == pytest.approx(pause_s)
    clock.move(5)
    assert worker.status()["retry_in_s"] == pytest.approx(pause_s - 5)
    clock.move(60)
    assert worker.status()["retry_in_s"] == 0
    worker.step()
    assert worker.status()["retry_in_s"] is None
    assert worker.status()["last_success_ns"] == clock.time_ns()


def test_failure_loses_nothing_and_is_in_the_status():
    for failure, state in (
        (RetryLater("down"), "backing off"),
        (Misconfigured("no such bucket"), "misconfigured"),
        (RuntimeError("bug"), "failing"),
    ):
        outbox, sink = MemoryOutbox(["m v=1 1"] * 10), RecordingSink()
        sink.failures = [failure]
        worker = worker_with(outbox, sink)
        assert worker.step() > 0
        status = worker.status()
        assert (status["state"], str(failure) in status["last_error"]) == (state, True)
        assert outbox.live.done_seq == 0
        worker.step()
        assert len(sink.lines) == 10
        assert worker.status()["last_error"] is None


def test_back_off_grows_with_jitter_up_to_a_limit():
    outbox, sink = MemoryOutbox(["m v=1 1"]), RecordingSink()
    sink.failures = [RetryLater("down") for _ in range(60)]
    worker = worker_with(outbox, sink)
    pauses = [worker.step() for _ in range(60)]
    assert max(pauses) <= MAX_BACKOFF_S
    assert max(pauses[:2]) <= 2.0
    assert len(set(pauses)) == 60
    assert sum(pauses[20:]) / 40 > 10


def test_backlog_is_drained_alongside_live_rows_at_a_limited_rate():
    clock = FakeClock()
    outbox = MemoryOutbox(backlog=[f"old v={i} {i}" for i in range(5000)])
    sink = RecordingSink()
    worker = worker_with(outbox, sink, batch_points=100, clock=clock, drain_points_per_s=1000)
    came = []
    for second in range(20):
        outbox.live.add([f"new v={second} {second}"])
        pause_s = 0.0
        while pause_s < 1e-3:
            pause_s = worker.step()
        came.append(sum(line.startswith("old") for line in sink.lines))
        clock.move(1)
    # A second's worth and a batch that overdraws it, then a second's worth each second.
    assert came[:5] == [1100, 2100, 3100, 4100, 5000]
    assert [line for line in sink.lines if line.startswith("new")] == [
        f"new v={second} {second}" for second in range(20)
    ]
    assert outbox.is_drained


def test_failures_reduce_and_successes_increase_the_batch_size():
    sizes = []

    class Slow(RecordingSink):
        """A server that times out for more than 1,000 points."""

        def post(self, lines):
            count = lines.count(b"\n") + 1
            sizes.append(count)
            if count > 1000:
                raise RetryLater("timed out")
            super().post(lines)

    lines = [f"m v={i} {i}" for i in range(60_000)]
    outbox, sink = MemoryOutbox(lines), Slow()
    drain(worker_with(outbox, sink, batch_points=5000), outbox)
    assert sink.lines == lines
    assert sizes[:4] == [5000, 2500, 1250, 625]
    # From then on the batch grows to the server's capacity, and halves after a failure.
    settled = sizes[4:-1]
    assert max(settled) <= 1250
    assert sum(settled) / len(settled) > 600
