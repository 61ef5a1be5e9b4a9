"""Rows for a sink: live rows, a backlog alongside, and a bounded outbox."""

import random
from pathlib import Path

import pytest
from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S, Point
from fakes.clock import FakeClock
from fakes.memory import memory_folder
from fakes.sizes import sized

SINK = "s"


def point(number, measurement="device"):
    tags = {"host": "h,ü", "device": f"gpu{number % 2}"}
    fields = {"v": number, "text": 'a "b" \\ é'}
    return Point(measurement, tags, fields, 10**18 + number * NS_PER_S)


def mixed(count, start=0):
    """Mostly device rows, and a few important rows."""
    return [
        point(i, "cost" if i % 10 == 3 else "event" if i % 50 == 7 else "device")
        for i in range(start, start + count)
    ]


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "costprobe.db", FakeClock())
    opened.register_sink(SINK)
    yield opened
    opened.close()


def drained(outbox, batch_of, limit=7):
    """All live rows, or all of the backlog, in order."""
    found = []
    while batch := batch_of(limit):
        found += [row.line for row in outbox.rows(batch)]
        outbox.done(batch.after, batch.seq, batch.points, ())
    return found


def status(store):
    (found,) = store.sinks()
    return found


def test_many_rows_become_a_backlog_beside_live_rows(store):
    old, new = mixed(100), mixed(5, start=100)
    store.append(old)
    outbox = store.outbox_of(SINK)
    outbox.move_to_backlog(100)
    assert outbox.backlog_batch(10) is None
    outbox.move_to_backlog(50)
    store.append(new)
    assert drained(outbox, outbox.live_batch) == [render(p) for p in new]
    assert status(store).backlog.points == 100
    assert drained(outbox, outbox.backlog_batch) == [render(p) for p in old]
    assert (status(store).sent_points, status(store).backlog.points) == (105, 0)


def test_rows_deleted_by_retention_count_once_and_only_for_sinks_that_lack_them(store):
    store.append(mixed(100))
    outbox = store.outbox_of(SINK)
    outbox.move_to_backlog(5)
    later = [point(1000 + i) for i in range(10)]
    store.append(later)
    drained(outbox, outbox.live_batch)
    store.retain(KeepSince(*[2 * 10**18] * 4))
    assert status(store).dropped_points == 100
    assert status(store).backlog.points == 0


STEPS = ["append", "apart", "live", "backlog", "backlog", "ahead", "refuse", "again"]


@pytest.mark.parametrize("seed", range(sized(15, 500)))
def test_every_row_is_sent_once_or_counted(seed):
    """Rows arrive, backlogs grow, and batches are being sent, in any order."""
    with memory_folder() as folder:
        rng = random.Random(seed)
        sent_once_or_counted(rng.choices(STEPS, k=60), rng, Path(folder))


def sent_once_or_counted(steps, rng, folder):
    store = Store.open(folder / "costprobe.db", FakeClock())
    store.register_sink(SINK)
    appended, sent, refused = 0, [], []
    prepared = []  # batches of the backlog that are being sent
    for step in steps:
        outbox = store.outbox_of(SINK)
        if step == "append":
            count = rng.randint(1, 60)
            store.append(mixed(count, appended))
            appended += count
        elif step == "apart":
            outbox.move_to_backlog(rng.randint(0, 50))
        elif step == "again":
            store.close()
            store = Store.open(store.path, FakeClock())
        elif step == "ahead":
            for _ in range(2):
                after = prepared[-1].seq if prepared else 0
                prepared += filter(None, [outbox.backlog_batch(rng.randint(1, 9), after)])
        else:
            batch_of = outbox.live_batch if step == "live" else outbox.backlog_batch
            is_prepared = prepared and step != "live"
            batch = prepared.pop(0) if is_prepared else batch_of(rng.randint(1, 40))
            rows = outbox.rows(batch) if batch else []
            if rows and step == "refuse":
                outbox.done(batch.after, rows[0].seq, 0, [RejectedLine(rows[0].line, "no")])
                refused.append(rows[0].line)
                prepared.clear()
            elif rows:
                assert batch.lines == "\n".join(row.line for row in rows).encode()
                outbox.done(batch.after, rows[-1].seq, len(rows), ())
                sent += [row.line for row in rows]
    outbox = store.outbox_of(SINK)
    sent += drained(outbox, outbox.live_batch) + drained(outbox, outbox.backlog_batch)
    found = status(store)
    store.close()
    assert len(set(sent)) == len(sent) == found.sent_points
    assert len(refused) == found.rejected_points
    assert not set(sent) & set(refused)
    assert len(sent) + len(refused) + found.dropped_points == appended
    assert found.backlog.points == 0


def test_backlog_whose_rows_are_gone_ends(store):
    store.append(mixed(20))
    outbox = store.outbox_of(SINK)
    outbox.move_to_backlog(5)
    with store._database.transaction("delete in") as connection:  # noqa: SLF001 - nothing else does
        connection.execute("DELETE FROM points")
    assert status(store).backlog.points == 20
    assert outbox.backlog_batch(10) is None
    assert (status(store).sent_points, status(store).backlog.points) == (0, 0)


def test_batch_that_another_thread_sent_counts_once(store):
    store.append([point(i) for i in range(20)])
    outbox = store.outbox_of(SINK)
    outbox.move_to_backlog(0)
    batch = outbox.backlog_batch(10)
    for _ in range(2):
        outbox.done(batch.after, batch.seq, batch.points, ())
    assert (status(store).sent_points, status(store).backlog.points) == (10, 10)
