"""What a sink gets of the store: live rows, a backlog beside them, and no more than may wait."""

import random

import pytest
from fakes.clock import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.lineprotocol import render
from agent.model import NS_PER_S, Point
from agent.storage.outbox_order import load
from agent.storage.rollup import KeepSince
from agent.storage.writer import Store

SINK = "s"
MINUTE_NS = 60 * NS_PER_S


def point(number, measurement="device", every_ns=NS_PER_S):
    tags = {"host": "h", "device": f"gpu{number % 2}"}
    return Point(measurement, tags, {"v": number}, 10**18 + number * every_ns)


def mixed(count, start=0):
    """Mostly device rows, and a few that matter more."""
    return [
        point(i, "cost" if i % 10 == 3 else "event" if i % 50 == 7 else "device")
        for i in range(start, start + count)
    ]


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "infercost.db", FakeClock())
    opened.register_sink(SINK)
    yield opened
    opened.close()


def outbox_of(store, *, important_first=False, max_points=10**9):
    return store.outbox_of(SINK, important_first=important_first, max_points=max_points)


def drained(rows, limit=7):
    """All that a stream has, in its order."""
    found = []
    while batch := rows.rows(limit):
        rows.done(batch[-1].seq, len(batch), ())
        found += [row.line for row in batch]
    return found


def status(store):
    (found,) = store.sinks()
    return found


def test_few_rows_are_live_and_many_are_a_backlog_that_live_rows_do_not_wait_for(store):
    old, new = mixed(100), mixed(5, start=100)
    store.append(old)
    outbox = outbox_of(store)
    outbox.set_apart(100)
    assert outbox.backlog.rows(10) == []
    outbox.set_apart(50)
    store.append(new)
    assert drained(outbox.live) == [render(p) for p in new]
    assert status(store).backlog.points == 100
    assert drained(outbox.backlog) == [render(p) for p in old]
    assert (status(store).sent_points, status(store).backlog.points) == (105, 0)


def test_the_important_leave_first_and_the_newest_of_them(store):
    points = mixed(200)
    store.append(points)
    outbox = outbox_of(store, important_first=True)
    outbox.set_apart(10)
    found = drained(outbox.backlog)
    important = [render(p) for p in points if p.measurement != "device"]
    rest = [render(p) for p in points if p.measurement == "device"]
    assert found == important[::-1] + rest[::-1]


def test_an_outage_after_an_outage_makes_one_backlog(store):
    outbox = outbox_of(store)
    for start in (0, 100, 200):
        store.append(mixed(100, start))
        outbox.set_apart(10)
    with store._database.reading("read") as connection:  # noqa: SLF001 - what is kept is looked at
        assert len(load(connection, SINK).spans) == 1
    assert drained(outbox.backlog) == [render(p) for p in mixed(300)]


def test_a_new_order_takes_over_a_backlog_of_the_old(store):
    points = mixed(100)
    store.append(points)
    outbox_of(store).set_apart(10)
    first = outbox_of(store).backlog.rows(20)
    outbox_of(store).backlog.done(first[-1].seq, len(first), ())
    changed = outbox_of(store, important_first=True)
    changed.set_apart(10)
    assert len(drained(changed.backlog)) == 80
    assert status(store).sent_points == 100


def test_a_full_outbox_thins_device_rows_before_it_drops_and_counts_both(store):
    # Ten minutes of two devices at a second, with an event each minute.
    rows = [point(i) for i in range(600)]
    events = [point(i, "event", MINUTE_NS) for i in range(10)]
    store.append(rows)
    store.append(events)
    outbox = outbox_of(store, max_points=100)
    # In whole minutes of each device: 600 rows become 10 minutes x 2 devices, and one that began
    # before its minute did.
    assert outbox.keep_bound() > 0
    lines = drained(outbox.backlog, 1000)
    kept = [line for line in lines if line.startswith("device")]
    assert 20 <= len(kept) <= 22
    assert [line for line in lines if line.startswith("event")] == [render(p) for p in events]
    assert status(store).dropped_points == 600 - len(kept)
    assert store.dropped_points() == 600 - len(kept)


def test_beyond_that_the_oldest_go_and_what_matters_last(store):
    store.append([point(i, "agent") for i in range(300)])
    store.append([point(i, "cost") for i in range(50)])
    outbox = outbox_of(store, important_first=True, max_points=80)
    assert outbox.keep_bound() == 270
    lines = drained(outbox.backlog)
    assert [line.split(",")[0] for line in lines] == ["cost"] * 50 + ["agent"] * 30
    assert lines[-1] == render(point(270, "agent"))
    assert status(store).dropped_points == 270


def test_what_may_wait_is_left_alone(store):
    store.append(mixed(100))
    assert outbox_of(store, max_points=100).keep_bound() == 0
    assert len(drained(outbox_of(store).live)) == 100


def test_refused_rows_of_a_backlog_are_put_aside(store):
    store.append(mixed(20))
    outbox = outbox_of(store)
    outbox.set_apart(5)
    (row,) = outbox.backlog.rows(1)
    outbox.backlog.done(row.seq, 0, [(row.line, "field type conflict")])
    assert status(store).rejected_points == 1
    assert len(drained(outbox.backlog)) == 19


def test_rows_that_retention_takes_are_counted_once_and_not_where_they_were_sent(store):
    store.append(mixed(100))
    outbox = outbox_of(store)
    outbox.set_apart(5)
    later = [point(1000 + i) for i in range(10)]
    store.append(later)
    drained(outbox.live)
    store.retain(KeepSince(*[2 * 10**18] * 4))
    assert status(store).dropped_points == 100
    assert status(store).backlog.points == 0


def test_a_forgotten_sink_leaves_nothing_behind(store):
    store.append(mixed(100))
    outbox_of(store).set_apart(5)
    store.forget_sink(SINK)
    store.register_sink(SINK)
    assert drained(outbox_of(store).live) == [render(p) for p in mixed(100)]


STEPS = st.lists(
    st.sampled_from(["append", "apart", "live", "backlog", "change", "bound", "refuse", "again"]),
    min_size=5,
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32), is_important_first=st.booleans())
def test_whatever_happens_every_row_is_sent_once_or_counted(
    steps, seed, is_important_first, tmp_path_factory
):
    rng = random.Random(seed)
    store = Store.open(tmp_path_factory.mktemp("s") / "infercost.db", FakeClock())
    store.register_sink(SINK)
    appended, sent, refused, first = 0, [], [], is_important_first
    for step in steps:
        outbox = outbox_of(store, important_first=first, max_points=60)
        if step == "append":
            count = rng.randint(1, 60)
            store.append(mixed(count, appended))
            appended += count
        elif step == "apart":
            outbox.set_apart(rng.randint(0, 50))
        elif step == "change":
            first = not first
        elif step == "bound":
            outbox.keep_bound()
        elif step == "again":
            store.close()
            store = Store.open(store.path, FakeClock())
        else:
            stream = outbox.live if step == "live" else outbox.backlog
            rows = stream.rows(rng.randint(1, 40))
            if rows and step == "refuse":
                stream.done(rows[0].seq, 0, [(rows[0].line, "no")])
                refused.append(rows[0].line)
            elif rows:
                stream.done(rows[-1].seq, len(rows), ())
                sent += [row.line for row in rows]
    outbox = outbox_of(store, important_first=first)
    sent += drained(outbox.live) + drained(outbox.backlog)
    found = status(store)
    store.close()
    assert len(set(sent)) == len(sent) == found.sent_points
    assert len(refused) == found.rejected_points
    assert not set(sent) & set(refused)
    assert len(sent) + len(refused) + found.dropped_points == appended
    assert found.backlog.points == 0
