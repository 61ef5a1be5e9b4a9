"""A batch contains rows as one text; its acknowledgement covers exactly these rows."""

from pathlib import Path

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S, Point
from fakes.clock import FakeClock
from fakes.memory import memory_folder
from hypothesis import given, settings
from hypothesis import strategies as st

SINK = "s"


def point(number):
    name = "cost" if number % 10 == 3 else "device"
    tags = {"host": "h,ü", "device": f"gpu{number % 2}"}
    return Point(name, tags, {"v": number, "text": 'a "b" \\ é'}, 10**18 + number * NS_PER_S)


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "costprobe.db", FakeClock())
    opened.register_sink(SINK)
    yield opened
    opened.close()


def outbox_of(store):
    return store.outbox_of(SINK)


@pytest.mark.parametrize("stream", ["live", "backlog"])
def test_batch_holds_the_text_of_its_rows(store, stream):
    store.append([point(i) for i in range(50)])
    outbox = outbox_of(store)
    if stream == "backlog":
        outbox.move_to_backlog(0)
    batch_of, seen = getattr(outbox, f"{stream}_batch"), 0
    while batch := batch_of(7):
        rows = outbox.rows(batch)
        assert batch.lines == "\n".join(row.line for row in rows).encode()
        assert (batch.seq, batch.points) == (rows[-1].seq, len(rows))
        outbox.done(batch.after, batch.seq, batch.points, ())
        seen += batch.points
    assert seen == 50
    (status,) = store.sinks()
    assert (status.sent_points, status.backlog.points) == (50, 0)


def test_batch_in_advance_equals_the_next_batch(store):
    points = [point(i) for i in range(60)]
    store.append(points)
    outbox = outbox_of(store)
    outbox.move_to_backlog(0)
    found = []
    batch = outbox.backlog_batch(7)
    while batch is not None:
        pending = [batch]
        while len(pending) < 3 and (in_advance := outbox.backlog_batch(7, pending[-1].seq)):
            pending.append(in_advance)
        found += batch.lines.decode().split("\n")
        outbox.done(batch.after, batch.seq, batch.points, ())
        batch = outbox.backlog_batch(7)
        assert pending[1:2] in ([], [batch])
    assert sorted(found) == sorted(map(render, points))
    (status,) = store.sinks()
    assert (status.sent_points, status.backlog.points) == (60, 0)


def test_batch_that_another_thread_sent_counts_once(store):
    store.append([point(i) for i in range(20)])
    outbox = outbox_of(store)
    outbox.move_to_backlog(0)
    batch = outbox.backlog_batch(10)
    for _ in range(2):
        outbox.done(batch.after, batch.seq, batch.points, ())
    (status,) = store.sinks()
    assert (status.sent_points, status.backlog.points) == (10, 10)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 9), st.booleans(), st.booleans(), st.booleans()), max_size=40
    )
)
def test_every_row_is_sent_however_batches_are_prepared(steps):
    """Rows arrive and backlogs grow between batches; a batch that is being sent stays valid."""
    with memory_folder() as folder:
        every_row_is_sent(Path(folder) / "store.db", steps)


def every_row_is_sent(path, steps):
    store = Store.open(path, FakeClock())
    store.register_sink(SINK)
    outbox = outbox_of(store)
    number, found, prepared = 0, [], []
    for limit, arrives, is_apart, prepares in [*steps, *[(9, False, True, True)] * 60]:
        batch = prepared.pop(0) if prepared else outbox.backlog_batch(limit)
        while batch and prepares and len(prepared) < 2:
            in_advance = outbox.backlog_batch(limit, [batch, *prepared][-1].seq)
            if in_advance is None:
                break
            prepared.append(in_advance)
        if arrives:
            store.append([point(number + i) for i in range(5)])
            number += 5
        if is_apart:
            outbox.move_to_backlog(0)
        if batch:
            outbox.done(batch.after, batch.seq, batch.points, ())
            found += batch.lines.decode().split("\n")
    (status,) = store.sinks()
    store.close()
    assert sorted(found) == sorted(render(point(i)) for i in range(number))
    assert status.sent_points == number
