"""The delivery worker delivers in order, retries, discards expired notices and survives errors."""

import itertools
import random
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any

import pytest
from costprobe.adapters.http.errors import Misconfigured, Rejected, RetryLater
from costprobe.delivery.contract import Notifier
from costprobe.delivery.loop import KEEP_S, NotifierWorker
from fakes.incidents import incident


@dataclass
class Waiting:
    id: int
    alert: Any
    queued_ns: int


class Queue:
    """An in-memory queue."""

    def __init__(self, clock, count=0):
        self.queued = [
            Waiting(n, incident(id=str(n)).to_document(), clock.time_ns()) for n in range(count)
        ]
        self.lost = []

    def notices(self, _, limit):
        return self.queued[:limit]

    def notices_sent(self, notices):
        self.queued = [notice for notice in self.queued if notice.id not in notices]

    def notice_dropped(self, notice, reason):
        self.notices_sent([notice])
        self.lost.append((notice, reason))


class Scripted(Notifier):
    """Raises as scripted, then accepts everything."""

    def __init__(self, *answers, poison=()):
        self.answers = list(answers)
        self.poison = set(poison)
        self.sent = []

    def send(self, alerts, time_ns):  # noqa: ARG002 - of the protocol
        if self.answers and (answer := self.answers.pop(0)) is not None:
            raise answer
        if self.poison & {alert.id for alert in alerts}:
            raise Rejected("no such channel")
        self.sent.append([alert.id for alert in alerts])


@pytest.fixture(autouse=True)
def many_messages(monkeypatch):
    monkeypatch.setattr("costprobe.delivery.loop.MESSAGES_PER_MINUTE", 6000)


def worker_of(queue, sender, clock, *, batch=1, resend_every_s=None, firing=tuple):
    sender.alerts_per_send, sender.resend_every_s = batch, resend_every_s
    return NotifierWorker(
        queue, "ops", sender, clock=clock, stop=Flag(), rng=random.Random(1), firing=firing
    )


def drain(worker, queue, clock, steps=200):
    """Step the worker until its queue is empty."""
    for _ in range(steps):
        clock.move(worker.step() + 0.001)
        if not queue.queued:
            break


def test_notices_are_delivered_in_order_one_by_one_or_in_batches(clock):
    for batch, expected in ((1, [["0"], ["1"], ["2"]]), (2, [["0", "1"], ["2"]])):
        queue, sender = Queue(clock, 3), Scripted()
        drain(worker_of(queue, sender, clock, batch=batch), queue, clock)
        assert sender.sent == expected
        assert queue.queued == []


def test_failure_is_reported_without_a_secret_and_the_notice_kept(clock):
    for error, words in (
        (RetryLater("away"), "away"),
        (Misconfigured("token: 401"), "token: 401"),
        (RuntimeError("https://me:secret@example.com"), "unexpected RuntimeError"),
    ):
        queue, sender = Queue(clock, 1), Scripted(error)
        worker = worker_of(queue, sender, clock)
        assert worker.step() > 0
        assert worker.status()["failing"] == words
        drain(worker, queue, clock)
        assert (sender.sent, worker.status()["failing"]) == ([["0"]], None)


def test_only_the_rejected_notice_of_a_batch_is_discarded(clock):
    for count, batch, poison, sent in (
        (4, 4, "2", [["0", "1"], ["3"]]),
        # The batch after it is sent whole.
        (9, 3, "1", [["0"], ["2"], ["3", "4", "5"], ["6", "7", "8"]]),
    ):
        queue, sender = Queue(clock, count), Scripted(poison={poison})
        drain(worker_of(queue, sender, clock, batch=batch), queue, clock)
        assert sender.sent == sent
        assert queue.lost == [(int(poison), "no such channel")]


def test_notice_beyond_keep_is_discarded_and_counted(clock):
    queue, sender = Queue(clock, 1), Scripted(RetryLater("away"), RetryLater("away"))
    worker = worker_of(queue, sender, clock)
    worker.step()
    clock.move(KEEP_S - 1)
    worker.step()
    clock.move(2)
    worker.step()
    assert (queue.lost, sender.sent) == ([(0, "not delivered within 86400 s: away")], [])
    # The next alert shows whether the receiver is back.
    assert worker.status()["failing"] == "away"


def test_rate_limit_is_kept(clock, monkeypatch):
    monkeypatch.setattr("costprobe.delivery.loop.MESSAGES_PER_MINUTE", 4)
    queue, sender = Queue(clock, 10), Scripted()
    worker = worker_of(queue, sender, clock)
    while worker.step() == 0 and queue.queued:
        pass
    assert len(sender.sent) == 4
    clock.move(15)
    worker.step()
    assert len(sender.sent) == 5


class FullDisk(Queue):
    """A queue that is readable but not writable until the disk has space."""

    is_full = True

    def notices_sent(self, notices):
        if self.is_full:
            raise OSError("no space left on device")
        super().notices_sent(notices)


def test_delivered_notice_is_not_repeated_while_the_store_is_not_writable(clock):
    queue, sender = FullDisk(clock, 2), Scripted()
    worker = worker_of(queue, sender, clock)
    for _ in range(5):
        assert worker.step() > 0
        # The store reports its own fault.
        assert worker.status()["failing"] is None
        clock.move(60)
    assert sender.sent == [["0"]]
    queue.is_full = False
    drain(worker, queue, clock)
    assert sender.sent == [["0"], ["1"]]


def test_unreadable_notice_is_discarded_and_blocks_nothing(clock):
    for broken, batch in itertools.product(
        ({"of_another_version": 1}, {"symptoms": None}), (1, 10)
    ):
        queue, sender = Queue(clock, 3), Scripted()
        queue.queued[1].alert = {**queue.queued[1].alert, **broken}
        drain(worker_of(queue, sender, clock, batch=batch), queue, clock)
        assert [number for batch in sender.sent for number in batch] == ["0", "2"]
        assert [number for number, _ in queue.lost] == [1]


def test_firing_alerts_are_resent_and_a_rejected_message_does_not_stop_others(clock, caplog):
    firing = [incident(id=str(n)) for n in range(5)]
    resent = {"resend_every_s": 60.0, "batch": 2, "firing": lambda: firing}
    sender = Scripted(poison={"0"})
    worker = worker_of(Queue(clock), sender, clock, **resent)
    for _ in range(30):
        clock.move(worker.step())
    assert sender.sent == [["2", "3"], ["4"]] * 2
    (record,) = caplog.records
    assert "no such channel" in record.getMessage()


def test_unstored_alerts_are_delivered_first_and_once_with_retries(clock):
    queue, sender = FullDisk(clock, 1), Scripted(RetryLater("busy", 5.0), None, Rejected("no"))
    worker = worker_of(queue, sender, clock)
    worker.send_unstored([incident(id="a"), incident(id="b"), incident(id="c")])
    assert worker.step() >= 5.0
    clock.move(60)
    for _ in range(3):
        worker.step()
    # "b" was rejected permanently, and "0" is in the queue.
    assert sender.sent == [["a"], ["c"]]
    worker.step()
    assert sender.sent == [["a"], ["c"], ["0"]]
    # An alert that cannot be stored needs no store: it does not wait for the back-off.
    worker.send_unstored([incident(id="d")])
    worker.step()
    assert sender.sent == [["a"], ["c"], ["0"], ["d"]]
