import threading

import pytest

from agent.clock import SystemClock
from agent.telemetry.crew import QUICK_VISITS, Crew

PERIOD_NS = 10**7


class Worker:
    """A device that is due every 10 ms, and blocks when told to."""

    class Named:
        def __init__(self, name):
            self.name = name

    def __init__(self, name, clock):
        self.sensor = self.Named(name)
        self.clock = clock
        self.commands = []
        self.waiting = []
        self.threads = []
        self.arrived = threading.Event()
        self.free = threading.Event()
        self.free.set()
        self.commanded = threading.Event()

    @property
    def has_commands(self):
        return bool(self.waiting)

    def offer(self, command):
        self.waiting.append(command)
        self.commanded.set()
        return True

    def work(self):
        while self.waiting:
            self.commands.append(self.waiting.pop(0))
        self.threads.append(threading.get_ident())
        if not self.free.is_set():
            self.arrived.set()
            self.free.wait(60)
        return self.clock.monotonic_ns() + PERIOD_NS

    def await_command(self, until_ns):
        self.commanded.wait(max(0, until_ns - self.clock.monotonic_ns()) / 1e9)
        self.commanded.clear()

    def block(self):
        self.free.clear()
        assert self.arrived.wait(60)


@pytest.fixture
def crew():
    return Crew(SystemClock(), lambda: None, lambda: None, lambda: None)


def workers(crew, *names):
    found = [Worker(name, SystemClock()) for name in names]
    for worker in found:
        crew.add(worker)
    return found


def test_one_thread_looks_after_all(crew, wait_until):
    a, b, c = workers(crew, "gpu0", "gpu1", "gpu2")
    wait_until(lambda: min(len(w.threads) for w in (a, b, c)) > 5)
    crew.relieve()
    assert len({*a.threads, *b.threads, *c.threads}) == 1


def test_a_device_that_hangs_does_not_hold_the_others(crew, wait_until):
    a, b = workers(crew, "gpu0", "gpu1")
    a.block()
    seen = len(b.threads)
    crew.relieve(patience_ns=0)
    wait_until(lambda: len(b.threads) > seen + 5)
    assert b.threads[-1] not in a.threads
    a.free.set()


def test_two_that_hang_hold_nobody(crew, wait_until):
    a, b, c = workers(crew, "gpu0", "gpu1", "gpu2")
    a.block()
    crew.relieve(patience_ns=0)
    b.block()
    crew.relieve(patience_ns=0)
    seen = len(c.threads)
    wait_until(lambda: len(c.threads) > seen + 5)
    a.free.set()
    b.free.set()


def test_a_device_that_is_quick_again_is_on_the_round_again(crew, wait_until):
    a, b = workers(crew, "gpu0", "gpu1")
    a.block()
    crew.relieve(patience_ns=0)
    seen = len(a.threads)
    a.free.set()
    wait_until(lambda: len(a.threads) > seen + QUICK_VISITS and a.threads[-1] == b.threads[-1])


def test_a_command_is_taken_at_once(crew, wait_until):
    (a,) = workers(crew, "gpu0")
    assert crew.offer("gpu0", {"cmd": "mark"})
    wait_until(lambda: a.commands == [{"cmd": "mark"}])
    assert not crew.offer("gpu7", {"cmd": "mark"})


def test_a_device_that_hangs_alone_is_no_reason_to_end_the_round(crew, wait_until):
    (a,) = workers(crew, "gpu0")
    a.block()
    crew.relieve(patience_ns=0)
    (b,) = workers(crew, "gpu1")
    wait_until(lambda: len(b.threads) > 2)
    a.free.set()


def test_all_are_told_of_a_rest():
    rests = threading.Event()
    crew = Crew(SystemClock(), rests.set, lambda: None, lambda: None)
    workers(crew, "gpu0")
    assert rests.wait(60)


def test_who_stays_with_a_device_is_not_at_rest_until_it_is_quick_again(crew, wait_until):
    a, b = workers(crew, "gpu0", "gpu1")
    wait_until(lambda: crew.rests)
    a.block()
    assert not crew.rests
    crew.relieve(patience_ns=0)
    seen = len(b.threads)
    wait_until(lambda: len(b.threads) > seen + 2)
    assert not crew.rests
    a.free.set()
    wait_until(lambda: crew.rests)
    assert len(a.threads) > QUICK_VISITS


def test_each_round_is_told_of_before_it_begins(wait_until):
    begun = []
    crew = Crew(SystemClock(), lambda: None, lambda: begun.append(len(a.threads)), lambda: None)
    a = Worker("gpu0", SystemClock())
    crew.add(a)
    wait_until(lambda: len(a.threads) > 5)
    assert begun[0] == 0
    assert begun == sorted(begun)
