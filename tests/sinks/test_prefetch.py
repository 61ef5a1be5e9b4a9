"""The next request of a backlog is prepared in advance, and dropped after a failure."""

import threading

import pytest
from costprobe.adapters.sinks.prefetch import Prefetch
from fakes.outbox import MemoryOutbox

LINES = [f"m v={i} {i}" for i in range(25)]


def text(start, end):
    return "\n".join(LINES[start:end]).encode().upper()


@pytest.fixture
def backlog():
    return MemoryOutbox(backlog=LINES).backlog


@pytest.fixture
def prefetch(backlog):
    made = Prefetch(backlog, bytes.upper, "prefetch")
    yield made
    made.close()


def test_prepared_request_is_taken_without_another_read(prefetch, backlog):
    first = prefetch.take(10)
    assert (first.batch.points, first.is_full, first.body) == (10, True, text(0, 10))
    prefetch.start(first.batch, 10)
    backlog.done(first.batch, first.batch.seq, 10, ())
    backlog.batch = None  # a second read would fail
    assert prefetch.take(10).body == text(10, 20)


def test_request_is_prepared_while_the_caller_waits_for_the_server(backlog):
    begun, may_continue = threading.Event(), threading.Event()

    def slow(lines):
        if lines.startswith(b"m v=10"):
            begun.set()
            assert may_continue.wait(30)
        return lines

    prefetch = Prefetch(backlog, slow, "prefetch")
    first = prefetch.take(10)
    prefetch.start(first.batch, 10)
    assert begun.wait(30)
    backlog.done(first.batch, first.batch.seq, 10, ())
    may_continue.set()
    assert prefetch.take(10).batch.seq == 20
    prefetch.close()


def test_discarded_request_is_read_again(prefetch, backlog):
    first = prefetch.take(10)
    prefetch.start(first.batch, 10)
    prefetch.discard()
    assert prefetch.take(5).body == text(0, 5)


def test_end_of_the_backlog(prefetch, backlog):
    first = prefetch.take(25)
    prefetch.start(first.batch, 10)
    backlog.done(first.batch, 25, 25, ())
    assert prefetch.take(10) is None


def test_failure_in_advance_is_raised_only_if_it_persists(prefetch, backlog):
    def fail(*_):
        raise OSError("the disk is gone")

    first = prefetch.take(10)
    backlog.batch_after = fail
    prefetch.start(first.batch, 10)
    backlog.done(first.batch, first.batch.seq, 10, ())
    assert prefetch.take(10).body == text(10, 20)
    backlog.batch = fail
    with pytest.raises(OSError, match="disk"):
        prefetch.take(10)
