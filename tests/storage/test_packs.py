"""A pack is the same rows as one text, and what is packed beforehand is what comes next or is not used."""

import pytest
from fakes.clock import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.lineprotocol import render
from agent.model import NS_PER_S, Point
from agent.storage.writer import Store

SINK = "s"


def point(number):
    name = "cost" if number % 10 == 3 else "device"
    tags = {"host": "h,ü", "device": f"gpu{number % 2}"}
    return Point(name, tags, {"v": number, "text": 'a "b" \\ é'}, 10**18 + number * NS_PER_S)


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "infercost.db", FakeClock())
    opened.register_sink(SINK)
    yield opened
    opened.close()


def outbox_of(store, *, important_first):
    return store.outbox_of(SINK, important_first=important_first, max_points=10**9)


@pytest.mark.parametrize("important_first", [False, True])
@pytest.mark.parametrize("stream", ["live", "backlog"])
def test_a_pack_holds_what_rows_gives(store, stream, important_first):
    store.append([point(i) for i in range(50)])
    outbox = outbox_of(store, important_first=important_first)
    if stream == "backlog":
        outbox.set_apart(0)
    rows_of = getattr(outbox, stream)
    seen = 0
    while rows := rows_of.rows(7):
        pack = rows_of.pack(7)
        assert pack.lines == "\n".join(row.line for row in rows).encode()
        assert (pack.seq, pack.points) == (rows[-1].seq, len(rows))
        rows_of.done(pack.seq, pack.points, ())
        seen += pack.points
    assert rows_of.pack(7) is None
    assert seen == 50
    (status,) = store.sinks()
    assert (status.sent_points, status.backlog.points) == (50, 0)


@pytest.mark.parametrize("important_first", [False, True])
def test_what_is_packed_beforehand_is_what_comes_next(store, important_first):
    points = [point(i) for i in range(60)]
    store.append(points)
    outbox = outbox_of(store, important_first=important_first)
    outbox.set_apart(0)
    backlog, found = outbox.backlog, []
    pack = backlog.pack(7)
    while pack is not None:
        behind = backlog.pack_behind(pack.seq, 7)
        found += pack.lines.decode().split("\n")
        # Not before the one in front of it is done.
        assert behind is None or not backlog.is_next(behind.seq)
        backlog.done(pack.seq, pack.points, ())
        if behind is None:
            pack = backlog.pack(7)
        else:
            assert backlog.is_next(behind.seq)
            assert backlog.pack(7) == behind
            pack = behind
    assert sorted(found) == sorted(map(render, points))
    (status,) = store.sinks()
    assert (status.sent_points, status.backlog.points) == (60, 0)


def test_what_is_packed_beforehand_is_not_used_where_the_bound_took_rows(store):
    store.append([point(i) for i in range(100)])
    outbox = store.outbox_of(SINK, important_first=False, max_points=20)
    outbox.set_apart(0)
    pack = outbox.backlog.pack(10)
    behind = outbox.backlog.pack_behind(pack.seq, 10)
    outbox.backlog.done(pack.seq, pack.points, ())
    assert outbox.backlog.is_next(behind.seq)
    assert outbox.keep_bound() > 0
    assert not outbox.backlog.is_next(behind.seq)


def test_live_rows_are_not_packed_beforehand(store):
    store.append([point(i) for i in range(20)])
    outbox = outbox_of(store, important_first=False)
    pack = outbox.live.pack(10)
    assert outbox.live.pack_behind(pack.seq, 10) is None
    assert not outbox.live.is_next(pack.seq)


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 9), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=40
    ),
    important_first=st.booleans(),
)
def test_every_row_leaves_once_however_packs_are_made(tmp_path_factory, steps, important_first):
    """Rows come and backlogs grow between packs; what was made beforehand is used or not."""
    store = Store.open(tmp_path_factory.mktemp("packs") / "store.db", FakeClock())
    store.register_sink(SINK)
    outbox = outbox_of(store, important_first=important_first)
    number, found, ready = 0, [], []
    for limit, comes, is_apart, ahead in [*steps, *[(9, False, True, 3)] * 60]:
        if comes:
            store.append([point(number + i) for i in range(5)])
            number += 5
        if is_apart:
            outbox.set_apart(0)
        if not (ready and outbox.backlog.is_next(ready[0].seq)):
            pack = outbox.backlog.pack(limit)
            ready = [] if pack is None else [pack]
        while ready and len(ready) <= ahead:
            behind = outbox.backlog.pack_behind(ready[-1].seq, limit)
            if behind is None:
                break
            ready.append(behind)
        if ready:
            pack = ready.pop(0)
            outbox.backlog.done(pack.seq, pack.points, ())
            found += pack.lines.decode().split("\n")
    store.close()
    assert sorted(found) == sorted(render(point(i)) for i in range(number))
