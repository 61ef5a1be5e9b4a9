"""Each sink has a cursor: no row is skipped, and rejected rows are stored."""

from costprobe.adapters.store.cursors import (
    BACKLOG_COUNTED_MAX,
    REASON_CHARS_MAX,
    REJECTED_KEPT_PER_SINK,
    Backlog,
    RejectedLine,
    SinkStatus,
)
from costprobe.adapters.store.read import StoreReader
from fakes.store_access import advance
from store_samples import T0_NS, point


def test_long_backlog_is_estimated_from_seqs(store):
    store.register_sink("a")
    store.append([point(second) for second in range(BACKLOG_COUNTED_MAX + 5)])
    assert store.backlog("a") == Backlog(BACKLOG_COUNTED_MAX + 5, T0_NS)
    advance(store, "a", 10, 10)
    assert store.backlog("a").points == BACKLOG_COUNTED_MAX - 5


def test_refused_rows_are_stored_with_reason_and_counted(store, path, clock):
    store.append([point(1), point(2)])
    store.register_sink("a")
    store.register_sink("b")
    total = REJECTED_KEPT_PER_SINK + 7
    for first in (0, 60):
        batch = [
            RejectedLine(f"line {n}", "\udce9" + "x" * 9999)
            for n in range(first, total if first else 60)
        ]
        advance(store, "a", 2 if first else 1, 0, batch)
    advance(store, "b", 2, 1, [RejectedLine("other", "field type conflict")])
    reader = StoreReader.open(path)
    kept = reader.rejected("a")
    assert [refused.line for _, refused in kept] == [f"line {n}" for n in range(7, total)]
    assert {len(refused.reason) for _, refused in kept} == {REASON_CHARS_MAX}
    assert reader.rejected("b") == [
        (clock.time_ns(), RejectedLine("other", "field type conflict")),
    ]
    assert reader.sinks() == store.sinks()
    assert store.sinks() == [
        SinkStatus("a", 2, Backlog(0, None), 0, total, 0, clock.time_ns()),
        SinkStatus("b", 2, Backlog(0, None), 1, 1, 0, clock.time_ns()),
    ]
    reader.close()
