"""A sink is a cursor: nothing is skipped, nothing is forgotten, what is refused is put aside."""

import pytest
from store_samples import T0_NS, S, point

from agent.lineprotocol import render
from agent.storage.outbox import (
    BACKLOG_COUNTED_MAX,
    REASON_CHARS_MAX,
    REJECTED_KEPT_PER_SINK,
    Backlog,
    RejectedLine,
    SinkStatus,
)
from agent.storage.reader import StoreReader
from agent.storage.writer import Store


def test_a_new_sink_starts_at_the_beginning_or_at_the_end(store):
    store.register_sink("early")
    store.append([point(1), point(2)])
    store.register_sink("all")
    store.register_sink("new", from_beginning=False)
    store.append([point(3)])
    assert (store.cursor("early"), store.cursor("all"), store.cursor("new")) == (0, 0, 2)
    assert [row.line for row in store.rows_after(store.cursor("new"), 9)] == [render(point(3))]


def test_a_sink_keeps_its_cursor_when_it_registers_again(store, path, clock):
    store.append([point(1), point(2)])
    store.register_sink("a")
    store.advance("a", 1, 1)
    store.close()
    again = Store.open(path, clock)
    again.register_sink("a", from_beginning=False)
    assert again.cursor("a") == 1
    again.close()


def test_sinks_are_independent_and_a_backlog_knows_its_oldest(store):
    store.append([point(second) for second in range(5)])
    store.register_sink("fast")
    store.register_sink("slow")
    store.advance("fast", 5, 5)
    store.advance("slow", 2, 2)
    assert store.backlog("fast") == Backlog(0, None)
    assert store.backlog("slow") == Backlog(3, T0_NS + 2 * S)


def test_a_cursor_never_moves_back(store):
    store.append([point(1), point(2)])
    store.register_sink("a")
    store.advance("a", 2, 2)
    store.advance("a", 1, 1)
    assert store.cursor("a") == 2


def test_a_replaced_point_is_sent_again_and_counts_once_in_the_backlog(store):
    store.register_sink("a")
    store.append([point(1)])
    store.advance("a", 1, 1)
    store.append([point(1, power_w=2.0)])
    store.append([point(1, power_w=3.0)])
    assert store.backlog("a").points == 1
    assert [row.line for row in store.rows_after(store.cursor("a"), 9)] == [
        render(point(1, power_w=3.0))
    ]


def test_a_long_backlog_is_told_by_its_seqs(store):
    store.register_sink("a")
    store.append([point(second) for second in range(BACKLOG_COUNTED_MAX + 5)])
    assert store.backlog("a") == Backlog(BACKLOG_COUNTED_MAX + 5, T0_NS)
    store.advance("a", 10, 10)
    assert store.backlog("a").points == BACKLOG_COUNTED_MAX - 5


def test_refused_rows_are_put_aside_with_their_reason_and_all_counted(store, path, clock):
    store.append([point(1)])
    store.register_sink("a")
    store.register_sink("b")
    total = REJECTED_KEPT_PER_SINK + 7
    for first in (0, 60):
        batch = [
            RejectedLine(f"line {n}", "\udce9" + "x" * 9999)
            for n in range(first, total if first else 60)
        ]
        store.advance("a", 1, 0, batch)
    store.advance("b", 1, 1, [RejectedLine("other", "field type conflict")])
    reader = StoreReader.open(path)
    kept = reader.rejected("a")
    assert [refused.line for _, refused in kept] == [f"line {n}" for n in range(7, total)]
    assert {len(refused.reason) for _, refused in kept} == {REASON_CHARS_MAX}
    assert reader.rejected("b") == [
        (clock.time_ns(), RejectedLine("other", "field type conflict")),
    ]
    assert reader.sinks() == store.sinks()
    assert store.sinks() == [
        SinkStatus("a", 1, Backlog(0, None), 0, total, 0, clock.time_ns()),
        SinkStatus("b", 1, Backlog(0, None), 1, 1, 0, clock.time_ns()),
    ]
    reader.close()


def test_more_refused_rows_than_are_kept_may_come_at_once(store, path):
    store.register_sink("a")
    store.advance("a", 0, 0, [RejectedLine(f"line {n}", "no") for n in range(250)])
    assert store.sinks()[0].rejected_points == 250
    reader = StoreReader.open(path)
    assert [refused.line for _, refused in reader.rejected("a")] == [
        f"line {n}" for n in range(250 - REJECTED_KEPT_PER_SINK, 250)
    ]
    reader.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.cursor("nobody"),
        lambda store: store.backlog("nobody"),
        lambda store: store.advance("nobody", 1, 1),
    ],
)
def test_an_unregistered_sink_is_an_error(store, ask):
    with pytest.raises(KeyError, match="nobody"):
        ask(store)
    store.append([point(1)])  # the transaction did not stay open


def test_a_forgotten_sink_leaves_nothing_behind(store, path):
    store.append([point(1)])
    store.register_sink("a")
    store.advance("a", 1, 0, [RejectedLine("l", "r")])
    store.forget_sink("a")
    assert store.sinks() == []
    reader = StoreReader.open(path)
    assert reader.rejected("a") == []
    reader.close()
