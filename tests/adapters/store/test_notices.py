"""Incidents, their rows and notices commit together; queues are bounded and ordered."""

from contextlib import closing

import pytest
from costprobe.adapters.store.cursors import QUEUED_MAX_PER_NOTIFIER, REASON_CHARS_MAX
from costprobe.adapters.store.read import StoreReader
from costprobe.core.schema import make_point


def row(clock, state="firing"):
    tags = {"host": "h", "rule": "broken", "state": state}
    return make_point("alert", tags, {"id": "a1"}, clock.time_ns())


def test_rows_states_and_notices_commit_together(store, clock):
    store.commit_alerts([row(clock)], {"alerting": {"a": 1}}, [("ops", {"id": "a1"})])
    assert store.state("alerting") == {"a": 1}
    ((_, alert, queued_ns),) = store.notices("ops", 10)
    assert (alert, queued_ns) == ({"id": "a1"}, clock.time_ns())
    with closing(StoreReader.open(store.path)) as reader:
        assert len(list(reader.points("alert", 0, 2**62))) == 1


def test_failed_commit_stores_nothing(store, clock):
    for states, notices in (
        ({"alerting": float("nan")}, []),
        ({}, [("ops", {"value": float("nan")})]),
    ):
        with pytest.raises(ValueError, match="JSON"):
            store.commit_alerts([row(clock)], {"first": 1, **states}, [("ops", {}), *notices])
    assert (store.state("first"), store.notices("ops", 10)) == (None, [])
    with closing(StoreReader.open(store.path)) as reader:
        assert list(reader.points("alert", 0, 2**62)) == []
    store.commit_alerts([row(clock)], {}, [])


def test_delivered_and_dropped_notices_are_counted(store, clock):
    store.commit_alerts([], {}, [("ops", {"n": n}) for n in range(4)])
    ids = [notice.id for notice in store.notices("ops", 10)]
    clock.move(5)
    store.notices_sent(ids[:2])
    store.notice_dropped(ids[2], "no \udce9 " + "x" * 9999)
    (status,) = store.notifiers()
    assert (status.sent, status.dropped, status.queued) == (2, 1, 1)
    assert status.last_sent_ns == clock.time_ns()
    assert status.last_reason.startswith("no ? x")
    assert len(status.last_reason) == REASON_CHARS_MAX
    with closing(StoreReader.open(store.path)) as reader:
        assert reader.notifiers() == [status]


def test_queue_of_each_notifier_is_ordered_drops_and_counts_its_oldest_and_ends_with_it(store):
    most = QUEUED_MAX_PER_NOTIFIER
    queued = [("ops", {"n": n}) for n in range(most + 2)]
    store.commit_alerts([], {}, [*queued[:2], ("mail", {"n": 1}), *queued[2:]])
    store.commit_alerts([], {}, [("mail", {"n": 2})])
    assert [notice.alert["n"] for notice in store.notices("ops", 2)] == [2, 3]
    assert [notice.alert["n"] for notice in store.notices("mail", 10)] == [1, 2]
    mail, ops = store.notifiers()
    assert (ops.queued, ops.dropped, ops.last_reason) == (most, 2, "the queue was full")
    store.forget_notifier("ops")
    assert store.notifiers() == [mail]
    assert store.notices("ops", 10) == []
