"""Incidents, their rows and notices commit together; queues are bounded and ordered."""

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
    reader = StoreReader.open(store.path)
    assert len(list(reader.points("alert", 0, 2**62))) == 1
    reader.close()


@pytest.mark.parametrize(
    ("states", "notices"),
    [({"alerting": float("nan")}, []), ({}, [("ops", {"value": float("nan")})])],
)
def test_failed_commit_stores_nothing(store, clock, states, notices):
    with pytest.raises(ValueError, match="JSON"):
        store.commit_alerts([row(clock)], {"first": 1, **states}, [("ops", {"id": "x"}), *notices])
    assert store.state("first") is None
    assert store.notices("ops", 10) == []
    reader = StoreReader.open(store.path)
    assert list(reader.points("alert", 0, 2**62)) == []
    reader.close()
    store.commit_alerts([row(clock)], {}, [])


def test_queue_is_ordered_and_per_notifier(store):
    store.commit_alerts([], {}, [("ops", {"n": 1}), ("mail", {"n": 2}), ("ops", {"n": 3})])
    store.commit_alerts([], {}, [("ops", {"n": 4})])
    assert [notice.alert["n"] for notice in store.notices("ops", 10)] == [1, 3, 4]
    assert [notice.alert["n"] for notice in store.notices("ops", 2)] == [1, 3]
    assert [notice.alert["n"] for notice in store.notices("mail", 10)] == [2]


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
    reader = StoreReader.open(store.path)
    assert reader.notifiers() == [status]
    reader.close()


def test_full_queue_drops_and_counts_its_oldest(store):
    most = QUEUED_MAX_PER_NOTIFIER
    store.commit_alerts([], {}, [("ops", {"n": n}) for n in range(most + 2)])
    assert [notice.alert["n"] for notice in store.notices("ops", 2)] == [2, 3]
    (status,) = store.notifiers()
    assert (status.queued, status.dropped) == (most, 2)
    assert status.last_reason == "the queue was full"


def test_deleted_notifier_leaves_no_rows(store):
    store.commit_alerts([], {}, [("ops", {"n": 1}), ("mail", {"n": 2})])
    store.forget_notifier("ops")
    assert [status.notifier for status in store.notifiers()] == ["mail"]
    assert store.notices("ops", 10) == []
