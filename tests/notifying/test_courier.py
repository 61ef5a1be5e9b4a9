"""A courier tells in order, tries again, gives up late, and never dies."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest
from fakes.clock import FakeClock
from fakes.incidents import incident

from agent.clock import SystemClock
from agent.daemon.notifying import StoreQueue
from agent.notifying.courier import MISCONFIGURED_S, Courier, CourierSettings
from agent.notifying.sender import Misconfigured, Refused, RetryLater
from agent.storage.writer import Store

TESTS = Path(__file__).parents[1]


@dataclass
class Waiting:
    id: int
    alert: Any
    queued_ns: int


class Queue:
    """A queue in memory."""

    def __init__(self, clock, count=0):
        self.notices = [
            Waiting(n, incident(id=str(n)).to_document(), clock.time_ns()) for n in range(count)
        ]
        self.lost = []

    def waiting(self, limit):
        return self.notices[:limit]

    def sent(self, notices):
        self.notices = [notice for notice in self.notices if notice.id not in notices]

    def dropped(self, notice, reason):
        self.sent([notice])
        self.lost.append((notice, reason))


class Sender:
    """Answers as scripted, then takes everything."""

    def __init__(self, *answers, poison=()):
        self.answers = list(answers)
        self.poison = set(poison)
        self.told = []

    def send(self, alerts, time_ns):  # noqa: ARG002 - of the protocol
        if self.answers and (answer := self.answers.pop(0)) is not None:
            raise answer
        if self.poison & {alert.id for alert in alerts}:
            raise Refused("no such channel")
        self.told.append([alert.id for alert in alerts])

    def close(self):
        pass


@pytest.fixture
def clock():
    return FakeClock()


def courier_of(queue, sender, clock, **more):
    firing = more.pop("firing", tuple)
    settings = CourierSettings("ops", **{"rate_per_minute": 6000, **more})
    return Courier(
        queue, sender, settings, clock=clock, stop=Flag(), rng=random.Random(1), firing=firing
    )


def drain(courier, queue, clock, steps=200):
    """Steps until the courier idles; gives the waits it asked for."""
    waits = []
    for _ in range(steps):
        wait_s = courier.step()
        if wait_s:
            waits.append(wait_s)
            clock.move(wait_s + 0.001)
        if not queue.waiting(1):
            break
    return waits


def test_notices_are_told_in_order_one_by_one_or_in_batches(clock):
    for batch, told in ((1, [["0"], ["1"], ["2"]]), (2, [["0", "1"], ["2"]])):
        queue, sender = Queue(clock, 3), Sender()
        assert drain(courier_of(queue, sender, clock, batch=batch), queue, clock) == []
        assert sender.told == told
        assert queue.notices == []


def test_it_tries_again_ever_later_and_in_order(clock):
    queue, sender = Queue(clock, 2), Sender(*[RetryLater("away")] * 8)
    courier = courier_of(queue, sender, clock)
    courier.step()
    assert courier.status()["failing"] == "away"
    waits = drain(courier, queue, clock)
    assert sender.told == [["0"], ["1"]]
    assert max(waits) > 10
    assert max(waits) <= 300
    assert courier.status()["failing"] is None


def test_it_waits_as_long_as_it_is_asked_to_within_reason(clock):
    for asked_s, waited_s in ((120.0, 120.0), (1e9, 3600.0)):
        courier = courier_of(Queue(clock, 1), Sender(RetryLater("busy", asked_s)), clock)
        assert courier.step() == pytest.approx(waited_s)


def test_what_is_misconfigured_is_kept_and_said(clock):
    queue, sender = Queue(clock, 1), Sender(Misconfigured("token_file: 401"))
    courier = courier_of(queue, sender, clock)
    assert courier.step() == pytest.approx(MISCONFIGURED_S)
    assert courier.status()["failing"] == "token_file: 401"
    drain(courier, queue, clock)
    assert sender.told == [["0"]]


def test_of_a_batch_only_what_is_refused_is_dropped(clock):
    queue, sender = Queue(clock, 4), Sender(poison={"2"})
    drain(courier_of(queue, sender, clock, batch=4), queue, clock)
    assert sender.told == [["0"], ["1"], ["3"]]
    assert queue.lost == [(2, "no such channel")]


def test_a_calendar_that_leaps_makes_no_notice_old(clock):
    queue, sender = Queue(clock, 1), Sender(RetryLater("away"))
    courier = courier_of(queue, sender, clock, keep_s=3600.0)
    courier.step()
    clock.step(10**9)
    drain(courier, queue, clock)
    assert (queue.lost, sender.told) == ([], [["0"]])


def test_what_is_too_old_is_given_up_and_counted(clock):
    queue, sender = Queue(clock, 1), Sender(*[RetryLater("away")] * 99)
    courier = courier_of(queue, sender, clock, keep_s=3600.0)
    drain(courier, queue, clock, steps=400)
    ((_, reason),) = queue.lost
    assert reason == "not told within 3600 s: away"
    assert sender.told == []


def test_no_more_than_the_rate_is_told(clock):
    queue, sender = Queue(clock, 10), Sender()
    courier = courier_of(queue, sender, clock, rate_per_minute=4)
    while courier.step() == 0 and queue.notices:
        pass
    assert len(sender.told) == 4
    clock.move(15)
    courier.step()
    assert len(sender.told) == 5


def test_what_still_fires_is_told_again_and_again(clock):
    sender = Sender()
    courier = courier_of(
        Queue(clock),
        sender,
        clock,
        refresh_every_s=60.0,
        batch=10,
        firing=lambda: (incident(id="a"), incident(id="b")),
    )
    for _ in range(30):
        clock.move(courier.step())
    assert sender.told == [["a", "b"]] * 2


def test_an_unexpected_fault_is_survived_and_its_text_kept_back(clock):
    queue, sender = Queue(clock, 1), Sender(RuntimeError("https://me:secret@example.com"))
    courier = courier_of(queue, sender, clock)
    courier.step()
    assert courier.status()["failing"] == "unexpected RuntimeError"
    drain(courier, queue, clock)
    assert sender.told == [["0"]]


class FullDisk(Queue):
    """A queue that can be read, and not written until there is room."""

    is_full = True

    def sent(self, notices):
        if self.is_full:
            raise OSError("no space left on device")
        super().sent(notices)


def test_what_was_told_is_not_told_again_while_the_store_cannot_record_it(clock):
    queue, sender = FullDisk(clock, 2), Sender()
    courier = courier_of(queue, sender, clock)
    for _ in range(5):
        with pytest.raises(OSError, match="no space"):
            courier.step()
        clock.move(60)
    assert sender.told == [["0"]]
    queue.is_full = False
    drain(courier, queue, clock)
    assert sender.told == [["0"], ["1"]]


@pytest.mark.parametrize("broken", [{"of_another_version": 1}, {"symptoms": None}])
@pytest.mark.parametrize("batch", [1, 10])
def test_what_cannot_be_read_is_given_up_and_blocks_nothing(clock, broken, batch):
    queue, sender = Queue(clock, 3), Sender()
    queue.notices[1].alert = {**queue.notices[1].alert, **broken}
    drain(courier_of(queue, sender, clock, batch=batch), queue, clock)
    assert [number for told in sender.told for number in told] == ["0", "2"]
    assert [number for number, _ in queue.lost] == [1]


def test_what_is_too_old_does_not_delay_what_is_new(clock):
    queue, sender = Queue(clock, 100), Sender()
    clock.move(2 * 86_400)
    queue.notices += [Waiting(100, incident(id="new").to_document(), clock.time_ns())]
    assert drain(courier_of(queue, sender, clock), queue, clock) == []
    assert sender.told == [["new"]]
    assert len(queue.lost) == 100


def test_after_a_refused_batch_the_next_goes_as_a_whole(clock):
    queue, sender = Queue(clock, 9), Sender(poison={"1"})
    drain(courier_of(queue, sender, clock, batch=3), queue, clock)
    assert sender.told == [["0"], ["2"], ["3", "4", "5"], ["6", "7", "8"]]


def test_who_refuses_is_there_and_fails_no_more(clock):
    queue, sender = Queue(clock, 1), Sender(RetryLater("away"), poison={"0"})
    courier = courier_of(queue, sender, clock)
    drain(courier, queue, clock)
    assert queue.lost == [(0, "no such channel")]
    assert courier.status()["failing"] is None


def still_firing(clock, sender):
    return courier_of(
        Queue(clock),
        sender,
        clock,
        refresh_every_s=600.0,
        batch=2,
        firing=lambda: [incident(id=str(n)) for n in range(5)],
    )


def test_one_refused_message_lets_the_others_be_told_again(clock, caplog):
    sender = Sender(poison={"0"})
    courier = still_firing(clock, sender)
    for _ in range(2):
        clock.move(601)
        courier.step()
    assert sender.told == [["2", "3"], ["4"]] * 2
    (record,) = caplog.records
    assert "no such channel" in record.getMessage()


def test_a_failed_repetition_is_tried_again_after_its_back_off(clock):
    sender = Sender(RetryLater("away"))
    courier = still_firing(clock, sender)
    clock.move(601)
    clock.move(courier.step() + 0.001)
    assert sender.told == []
    courier.step()
    assert sender.told == [["0", "1"], ["2", "3"], ["4"]]


class Stuck(Sender):
    """Hangs until it is let go."""

    def __init__(self):
        super().__init__()
        self.let_go = Flag()

    def send(self, alerts, time_ns):  # noqa: ARG002 - of the protocol
        self.let_go.wait(30)
        raise RetryLater("hung")


def test_a_dead_notifier_delays_no_other(tmp_path):
    store, stop, stuck, well = (
        Store.open(tmp_path / "s.db", SystemClock()),
        Flag(),
        Stuck(),
        Sender(),
    )
    couriers = [
        Courier(
            StoreQueue(store, name),
            sender,
            CourierSettings(name),
            clock=SystemClock(),
            stop=stop,
            rng=random.Random(1),
        )
        for name, sender in (("dead", stuck), ("well", well))
    ]
    threads = [Thread(target=courier.run, daemon=True) for courier in couriers]
    for thread in threads:
        thread.start()
    alerts = [incident(id=str(n)).to_document() for n in range(3)]
    store.commit_alerts([], {}, [(name, a) for a in alerts for name in ("dead", "well")])
    for courier in couriers:
        courier.wake()
    ends_s = time.monotonic() + 90
    while len(well.told) < 3 and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert well.told == [["0"], ["1"], ["2"]]
    assert [notice.alert["id"] for notice in store.notices("dead", 9)] == ["0", "1", "2"]
    stop.set()
    stuck.let_go.set()
    for courier, thread in zip(couriers, threads, strict=True):
        courier.wake()
        thread.join(60)
    store.close()


PROGRAM = """
import os, random, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from fakes.incidents import incident
from agent.clock import SystemClock
from agent.daemon.notifying import StoreQueue
from agent.notifying.courier import Courier, CourierSettings
from agent.storage.writer import Store

folder, last = Path(sys.argv[1]), int(sys.argv[2])
store = Store.open(folder / "s.db", SystemClock())
told = os.open(folder / "told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

class Sender:
    def send(self, alerts, time_ns):
        for alert in alerts:
            os.write(told, f"{alert.id} {alert.state}\\n".encode())
    def close(self):
        pass

settings = CourierSettings("ops", rate_per_minute=6_000_000)
stop = threading.Event()
courier = Courier(StoreQueue(store, "ops"), Sender(), settings,
                  clock=SystemClock(), stop=stop, rng=random.Random(1))
threading.Thread(target=courier.run, daemon=True).start()
while (n := (store.state("n") or 0)) < last:
    state = "firing" if n % 2 == 0 else "resolved"
    alert = incident(id=str(n // 2), state=state).to_document()
    store.commit_alerts([], {"n": n + 1}, [("ops", alert)])
    courier.wake()
while store.notices("ops", 1):
    courier.wake()
os.write(told, b"done\\n")
"""


def test_nothing_is_lost_or_out_of_order_over_kill_9(tmp_path):
    count, rng, kills = 4000, random.Random(7), 0
    for _ in range(60):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(count), str(TESTS)],
            cwd=TESTS.parent,
        )
        try:
            process.wait(rng.uniform(0.3, 0.6) if kills < 8 else 60)
            break
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
    assert process.returncode == 0
    assert kills > 2
    lines = (tmp_path / "told").read_text().splitlines()
    told = list(dict.fromkeys(line for line in lines if line != "done"))
    assert told == [f"{n // 2} {'resolved' if n % 2 else 'firing'}" for n in range(count)]


def test_what_could_not_be_stored_is_told_first_again_after_a_failure_and_once(clock):
    class Broken(Queue):
        """A store that can be read and not written."""

        def sent(self, _):
            raise OSError("no space left")

    queue, sender = Broken(clock, 1), Sender(RetryLater("busy", 5.0), None, Refused("no"))
    courier = courier_of(queue, sender, clock)
    courier.tell_unstored([incident(id="a"), incident(id="b"), incident(id="c")])
    assert courier.step() >= 5.0
    clock.move(60)
    for _ in range(3):
        courier.step()
    # "b" was refused for good, and "0" is what the queue holds.
    assert sender.told == [["a"], ["c"]]
    with pytest.raises(OSError, match="no space"):
        courier.step()
    assert sender.told == [["a"], ["c"], ["0"]]


def test_what_is_not_stored_is_bounded(clock):
    queue, sender = Queue(clock), Sender()
    courier = courier_of(queue, sender, clock)
    courier.tell_unstored([incident(id=str(n)) for n in range(250)])
    for _ in range(300):
        courier.step()
        clock.move(1)
    assert [told for (told,) in sender.told] == [str(n) for n in range(150, 250)]
