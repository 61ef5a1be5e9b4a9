"""Old rows go, but not before every sink is done with them, unless that takes too long."""

from fakes.clock import FakeClock
from store_samples import DAY_NS, T0_NS, S, happened, lines_of, query

from agent.lineprotocol import render
from agent.storage.rollup import KeepSince, Retained
from agent.storage.writer import Store

NEVER = -(2**63)


def since(keep_ns, outbox_keep_ns=NEVER):
    return KeepSince(keep_ns, keep_ns, keep_ns, outbox_keep_ns)


def filled(store, seconds=10):
    store.append([happened(second) for second in range(seconds)])


def test_without_a_sink_rows_past_retention_go(store):
    filled(store)
    assert store.retain(since(T0_NS + 4 * S)) == Retained(0, 4, 0, is_done=True)
    assert lines_of(store) == [render(happened(second)) for second in range(4, 10)]


def test_a_slow_sink_keeps_what_it_has_not_sent(store):
    filled(store)
    store.register_sink("fast")
    store.register_sink("slow")
    store.advance("fast", 10, 10)
    store.advance("slow", 3, 3)
    assert store.retain(since(T0_NS + 8 * S)) == Retained(0, 3, 0, is_done=True)
    assert store.backlog("slow").points == 7
    store.advance("slow", 10, 7)
    assert store.retain(since(T0_NS + 8 * S)) == Retained(0, 5, 0, is_done=True)
    assert store.dropped_points() == 0


def test_a_dead_sink_loses_rows_past_the_outbox_retention_and_they_are_counted(store):
    filled(store)
    store.register_sink("alive")
    store.register_sink("dead")
    store.advance("alive", 10, 10)
    assert store.retain(since(T0_NS + 8 * S, T0_NS + 6 * S)) == Retained(0, 6, 6, is_done=True)
    assert store.dropped_points() == 6
    alive, dead = store.sinks()
    assert (alive.dropped_points, dead.dropped_points) == (0, 6)
    assert dead.acked_seq == 6  # so that a long backlog, told by its seqs, is told right
    assert dead.backlog.points == 4


def test_rows_within_retention_are_never_dropped_however_long_they_wait(store):
    filled(store)
    store.register_sink("dead")
    assert store.retain(since(T0_NS + 2 * S, T0_NS + 6 * S)) == Retained(0, 2, 2, is_done=True)
    assert len(lines_of(store)) == 8


def test_when_all_is_dropped_the_cursor_stands_at_the_end(store):
    filled(store)
    store.register_sink("dead")
    store.retain(since(T0_NS + DAY_NS, T0_NS + DAY_NS))
    assert store.cursor("dead") == 10
    store.append([happened(99)])
    assert [row.line for row in store.rows_after(store.cursor("dead"), 9)] == [render(happened(99))]


def test_a_step_is_bounded_and_says_whether_it_is_done(store):
    for device in ("gpu0", "gpu1", "gpu2"):
        store.append([happened(second, device) for second in range(10)])
    steps = [store.retain(since(T0_NS + 8 * S), limit=10) for _ in range(2)]
    # A series is taken as a whole where it is not long.
    assert steps == [Retained(0, 16, 0, is_done=False), Retained(0, 8, 0, is_done=True)]


def test_a_point_with_a_time_in_the_future_stops_nothing(store):
    store.append([happened(10**6), *(happened(second) for second in range(5))])
    assert store.retain(since(T0_NS + 5 * S), limit=2) == Retained(0, 2, 0, is_done=False)
    assert store.retain(since(T0_NS + 5 * S), limit=9) == Retained(0, 3, 0, is_done=True)
    assert lines_of(store) == [render(happened(10**6))]


def test_a_series_goes_with_its_last_row_and_can_come_back(store, path):
    filled(store)
    store.append([happened(20, "gpu1")])
    store.retain(since(T0_NS + 15 * S))
    assert query(path, "SELECT count(*) FROM series") == [(1,)]
    store.append([happened(21)])
    assert lines_of(store) == [render(happened(20, "gpu1")), render(happened(21))]
    assert query(path, "PRAGMA foreign_key_check") == []


def test_a_file_that_is_mostly_free_gives_its_pages_back(path):
    store = Store.open(path, FakeClock())
    store.append([happened(second, title="x" * 3000) for second in range(3000)])
    store.close()
    full_bytes = path.stat().st_size
    store = Store.open(path, FakeClock())
    while not store.retain(since(T0_NS + 2999 * S)).is_done:
        pass
    while store.give_back():
        pass
    store.close()
    assert path.stat().st_size < full_bytes / 2
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
