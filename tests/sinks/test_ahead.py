"""The next request is made beforehand, and only what is still next is sent."""

import threading

import pytest
from fakes.outbox import MemoryOutbox

from agent.sinks.ahead import WAITS_MAX, Ahead


def lines(count):
    return [f"m v={i} {i}" for i in range(count)]


@pytest.fixture
def ahead():
    made = Ahead(bytes.upper, print, "ahead")
    yield made
    made.close()


def test_what_was_made_beforehand_is_taken(ahead):
    stream = MemoryOutbox(lines(25)).live
    first = ahead.take(stream, 10)
    assert (first.pack.points, first.is_full) == (10, True)
    ahead.begin(stream, first.pack.seq, 10)
    stream.done(first.pack.seq, 10, ())
    packs = []
    stream.pack = packs.append  # nothing is to be read again
    second = ahead.take(stream, 10)
    assert second.body == "\n".join(lines(25)[10:20]).encode().upper()
    assert packs == []


@pytest.mark.parametrize("change", ["not done", "dropped", "smaller", "another stream"])
def test_what_is_not_next_any_more_is_made_anew(ahead, change):
    outbox = MemoryOutbox(lines(25), lines(25))
    stream = outbox.live
    first = ahead.take(stream, 10)
    ahead.begin(stream, first.pack.seq, 10)
    if change != "not done":
        stream.done(first.pack.seq, 10, ())
    if change == "dropped":
        ahead.drop(stream)
    limit = 5 if change == "smaller" else 10
    other = outbox.backlog if change == "another stream" else stream
    start = 10 if other.done_seq else 0
    found = ahead.take(other, limit).pack
    assert found.lines == "\n".join(lines(25)[start : start + limit]).encode()


def test_a_failure_beforehand_is_met_where_it_can_be_told(ahead):
    stream = MemoryOutbox(lines(25)).live
    first = ahead.take(stream, 10)

    def fail(*_):
        raise OSError("the disk is gone")

    whole, stream.pack_behind = stream.pack, fail
    ahead.begin(stream, first.pack.seq, 10)
    stream.done(first.pack.seq, 10, ())
    assert ahead.take(stream, 10).pack == whole(10)
    stream.pack = fail
    with pytest.raises(OSError, match="disk"):
        ahead.take(stream, 10)


def test_it_is_made_while_the_caller_goes_on():
    begun, go_on = threading.Event(), threading.Event()

    def slow(text):
        if text.startswith(b"m v=10"):
            begun.set()
            assert go_on.wait(30)
        return text

    ahead = Ahead(slow, print, "ahead")
    stream = MemoryOutbox(lines(25)).live
    first = ahead.take(stream, 10)
    ahead.begin(stream, first.pack.seq, 10)
    assert begun.wait(30)
    stream.done(first.pack.seq, 10, ())
    go_on.set()
    assert ahead.take(stream, 10).pack.seq == 20
    ahead.close()


@pytest.fixture
def sending():
    """One that may send, to a server that takes what it is given, or fails."""
    sent, failures = [], []

    def post(body):
        if failures:
            raise failures.pop()
        sent.append(body)

    made = Ahead(bytes.upper, post, "ahead")
    made.sent, made.failures = sent, failures
    yield made
    made.close()


def text(start, end):
    return "\n".join(lines(25)[start:end]).encode().upper()


def test_what_was_sent_before_its_turn_has_arrived_when_it_comes(sending):
    stream = MemoryOutbox(lines(25)).live
    first = sending.take(stream, 10)
    sending.begin(stream, first.pack.seq, 10, posts=True)
    stream.done(first.pack.seq, 10, ())
    second = sending.take(stream, 10)
    assert (second.has_arrived, second.pack.seq, second.is_full) == (True, 20, True)
    stream.done(second.pack.seq, 10, ())
    third = sending.take(stream, 10)
    assert (third.has_arrived, third.pack.seq, third.is_full) == (True, 25, False)
    stream.done(third.pack.seq, 5, ())
    assert sending.take(stream, 10) is None
    assert sending.sent == [text(10, 20), text(20, 25)]


def test_what_has_arrived_is_kept_while_the_one_before_it_fails(sending, wait_until):
    stream = MemoryOutbox(lines(25)).live
    first = sending.take(stream, 10)
    sending.begin(stream, first.pack.seq, 10, posts=True)
    wait_until(lambda: len(sending.sent) == 2)
    sending.drop(stream)
    for limit in (10, 4):
        again = sending.take(stream, limit)
        assert (again.has_arrived, again.pack.points) == (False, limit)
        sending.begin(stream, again.pack.seq, limit, posts=True)  # there is one already
    stream.done(4, 4, ())
    assert sending.take(stream, 6).pack.seq == 10
    stream.done(10, 6, ())
    assert sending.take(stream, 6).has_arrived
    stream.done(20, 10, ())
    assert sending.take(stream, 6).has_arrived
    assert sending.sent == [text(10, 20), text(20, 25)]


def test_what_has_arrived_does_not_wait_for_ever(sending, wait_until):
    stream = MemoryOutbox(lines(25)).live
    first = sending.take(stream, 10)
    sending.begin(stream, first.pack.seq, 10, posts=True)
    wait_until(lambda: len(sending.sent) == 2)
    for _ in range(WAITS_MAX + 1):
        assert not sending.take(stream, 10).has_arrived
    assert sending.arrived() == []


def test_what_came_of_it_is_told_where_its_turn_comes(sending):
    stream = MemoryOutbox(lines(25)).live
    error = OSError("gone")
    sending.failures.append(error)
    first = sending.take(stream, 10)
    sending.begin(stream, first.pack.seq, 10, posts=True)
    stream.done(first.pack.seq, 10, ())
    second = sending.take(stream, 10)
    assert (second.has_arrived, second.error, second.pack.seq) == (False, error, 20)
    sending.drop(stream)
    # What is behind a failure is not begun.
    assert sending.sent == []
    assert sending.take(stream, 10).error is None


def test_live_rows_wait_for_nothing_that_is_on_its_way():
    go_on = threading.Event()
    ahead = Ahead(bytes.upper, lambda _: go_on.wait(30), "ahead")
    outbox = MemoryOutbox(lines(5), lines(25))
    first = ahead.take(outbox.backlog, 10)
    ahead.begin(outbox.backlog, first.pack.seq, 10, posts=True)
    assert ahead.take(outbox.live, 10).pack.points == 5
    ahead.drop(outbox.live)
    go_on.set()
    outbox.backlog.done(first.pack.seq, 10, ())
    assert ahead.take(outbox.backlog, 10).has_arrived
    ahead.close()
