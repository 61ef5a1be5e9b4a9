"""Rows that a database permanently rejects are a fault for an hour, and one event."""

from threading import Event as Flag

from costprobe.adapters.store.cursors import RejectedLine
from costprobe.core.records import Point
from costprobe.delivery.delivery import SinkDelivery
from fakes.sending import config_of

HOUR_S = 3600


def delivery_of(store, clock):
    return SinkDelivery([config_of("v1", name="eu")], store, clock, Flag(), "h")


def reject(store, clock, reason):
    """Store a row, and reject it as the delivery worker does."""
    store.append([Point("device", {"device": "gpu0"}, {"power_w": 1.0}, clock.time_ns())])
    outbox = store.outbox_of("eu")
    batch = outbox.live_batch(10)
    outbox.done(batch.after, batch.seq, 0, [RejectedLine("device power_w=1.0", reason)])


def test_rejections_are_one_event_and_a_fault_until_an_hour_after_the_last(store, clock):
    delivery = delivery_of(store, clock)
    assert delivery.new_rejections() == []
    assert delivery.status()["eu"]["rejections"] is None
    reject(store, clock, "field type conflict")
    (event,) = delivery.new_rejections()
    assert (event.kind, event.cause, event.time_ns) == ("fault", "rows_rejected", clock.time_ns())
    assert "field type conflict" in event.detail
    clock.move(HOUR_S - 1)
    reject(store, clock, "again")
    assert delivery.new_rejections() == []
    clock.move(HOUR_S - 1)
    assert delivery.status()["eu"]["rejections"]["points"] == 2
    # A restart neither repeats the event nor ends the fault.
    delivery = delivery_of(store, clock)
    assert delivery.new_rejections() == []
    assert delivery.status()["eu"]["rejections"]["reason"] == "again"
    clock.move(2)
    assert delivery.status()["eu"]["rejections"] is None
    reject(store, clock, "later")
    assert len(delivery.new_rejections()) == 1
