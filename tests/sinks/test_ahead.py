"""The next request is made beforehand, and only what is still next is sent."""

import threading

import pytest
from fakes.outbox import MemoryOutbox

from agent.sinks.ahead import Ahead


def lines(count):
    return [f"m v={i} {i}" for i in range(count)]


@pytest.fixture
def ahead():
    made = Ahead(bytes.upper, "ahead")
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
        ahead.drop()
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

    ahead = Ahead(slow, "ahead")
    stream = MemoryOutbox(lines(25)).live
    first = ahead.take(stream, 10)
    ahead.begin(stream, first.pack.seq, 10)
    assert begun.wait(30)
    stream.done(first.pack.seq, 10, ())
    go_on.set()
    assert ahead.take(stream, 10).pack.seq == 20
    ahead.close()
