"""Old rows are deleted once every sink acknowledged them, or past the outbox retention."""

from costprobe.adapters.store.retention import KeepSince, Retained
from costprobe.core.line_protocol import render
from fakes.store_access import advance, cursor, rows_after
from store_samples import DAY_NS, T0_NS, S, happened, lines_of, query

NEVER = -(2**63)


def since(keep_ns, outbox_keep_ns=NEVER):
    return KeepSince(keep_ns, keep_ns, keep_ns, outbox_keep_ns)


def filled(store, seconds=10):
    store.append([happened(second) for second in range(seconds)])


def test_rows_past_retention_are_deleted_without_sinks(store):
    filled(store)
    assert store.retain(since(T0_NS + 4 * S)) == Retained(0, 4, 0, is_done=True)
    assert lines_of(store) == [render(happened(second)) for second in range(4, 10)]


def test_unsent_rows_of_a_slow_sink_are_kept(store):
    filled(store)
    store.register_sink("fast")
    store.register_sink("slow")
    advance(store, "fast", 10, 10)
    advance(store, "slow", 3, 3)
    assert store.retain(since(T0_NS + 8 * S)) == Retained(0, 3, 0, is_done=True)
    assert store.backlog("slow").points == 7
    advance(store, "slow", 10, 7)
    assert store.retain(since(T0_NS + 8 * S)) == Retained(0, 5, 0, is_done=True)
    assert store.dropped_points() == 0


def test_unsent_rows_past_the_outbox_retention_are_dropped_and_counted(store):
    filled(store)
    store.register_sink("alive")
    store.register_sink("dead")
    advance(store, "alive", 10, 10)
    assert store.retain(since(T0_NS + 8 * S, T0_NS + 6 * S)) == Retained(0, 6, 6, is_done=True)
    assert store.dropped_points() == 6
    alive, dead = store.sinks()
    assert (alive.dropped_points, dead.dropped_points) == (0, 6)
    assert dead.acked_seq == 6  # a long backlog is estimated from seqs
    assert dead.backlog.points == 4


def test_rows_within_retention_are_never_dropped_however_long_they_wait(store):
    filled(store)
    store.register_sink("dead")
    assert store.retain(since(T0_NS + 2 * S, T0_NS + 6 * S)) == Retained(0, 2, 2, is_done=True)
    assert len(lines_of(store)) == 8


def test_cursor_is_at_the_end_after_all_rows_were_dropped(store):
    filled(store)
    store.register_sink("dead")
    store.retain(since(T0_NS + DAY_NS, T0_NS + DAY_NS))
    assert cursor(store, "dead") == 10
    store.append([happened(99)])
    assert [row.line for row in rows_after(store, cursor(store, "dead"), 9)] == [
        render(happened(99))
    ]


def test_step_is_bounded_and_reports_completion(store):
    for device in ("gpu0", "gpu1", "gpu2"):
        store.append([happened(second, device) for second in range(10)])
    steps = [store.retain(since(T0_NS + 8 * S), limit=10) for _ in range(2)]
    # A short series is deleted in one step.
    assert steps == [Retained(0, 16, 0, is_done=False), Retained(0, 8, 0, is_done=True)]


def test_future_timestamp_does_not_stop_retention(store):
    store.append([happened(10**6), *(happened(second) for second in range(5))])
    assert store.retain(since(T0_NS + 5 * S), limit=2) == Retained(0, 2, 0, is_done=False)
    assert store.retain(since(T0_NS + 5 * S), limit=9) == Retained(0, 3, 0, is_done=True)
    assert lines_of(store) == [render(happened(10**6))]


def test_series_is_deleted_with_its_last_row_and_can_be_recreated(store, path):
    filled(store)
    store.append([happened(20, "gpu1")])
    store.retain(since(T0_NS + 15 * S))
    assert query(path, "SELECT count(*) FROM series") == [(1,)]
    store.append([happened(21)])
    assert lines_of(store) == [render(happened(20, "gpu1")), render(happened(21))]
    assert query(path, "PRAGMA foreign_key_check") == []
