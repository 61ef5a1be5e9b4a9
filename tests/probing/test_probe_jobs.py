"""When probes run: each within its part of the duty budget, also after a restart or a reload."""

import json
import logging
import math
import random
import threading
from itertools import pairwise

import pytest
from costprobe import __version__
from costprobe.adapters.probe_child.results import ProbeFault
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.core.records import Device
from costprobe.probing.jobs import PART_S, DeviceQueue, JobParts, Needed, ProbeJob
from costprobe.probing.run import Listeners, ProbeTarget
from costprobe.probing.settings import ProbeConfig
from fakes.clock import FakeClock
from record.record_files import check_outcomes

GPU = Device("gpu0", "gpu", "GPU-1", "a GPU")
HOUR_S = 3600.0


class Runs(list):
    """Runs that take device time and have no result: when each began, how long, with energy or not."""

    def __init__(self, clock, full_s, latency_s, kind):
        self.clock, self.durations_s, self.kind = clock, (latency_s, full_s), kind

    def run(self, *_, energy, **__):
        self.append((self.clock.monotonic_ns() / 1e9, self.durations_s[energy], energy))
        self.clock.move(self.durations_s[energy])
        return ProbeFault(self.kind, "out of memory", ["line"])


class Events(list):
    take_event = list.append


class Host:
    """A device and its probes, called at each multiple of their intervals as by the schedule.

    Each probe is (interval in s, run with energy in s, run without in s).
    """

    def __init__(
        self, *probes, share=0.01, kind="interrupted", ledger=None, clock=None, known=True
    ):
        self.clock, self.ledger = clock or FakeClock(), ledger or MemoryLedger()
        self.began_s = self.clock.monotonic_ns() / 1e9
        self.queue = DeviceQueue("gpu0", share, self.ledger, self.clock)
        self.runs, self.jobs, self.every_s = [], [], [every_s for every_s, *_ in probes]
        for number, (every_s, full_s, latency_s) in enumerate(probes):
            runs = Runs(self.clock, full_s, latency_s, kind)
            if known:
                durations = {"full_s": full_s, "latency_only_s": latency_s}
                document = {"version": __version__, **durations}
                self.ledger.put_state(f"job gpu0 {number}", document)
            listeners = Listeners(*[lambda *_: None] * 3)
            parts = JobParts(runs, Events(), self.ledger, self.clock, listeners)
            config = ProbeConfig(name=str(number), every=f"{every_s}s", when_busy="run")
            self.jobs.append(ProbeJob(config, ProbeTarget((GPU,)), [self.queue], parts))
            self.runs.append(runs)

    def passed_s(self):
        return self.clock.monotonic_ns() / 1e9 - self.began_s

    def run(self, hours):
        next_s = dict.fromkeys(range(len(self.jobs)), 0.0)
        while (at_s := min(next_s.values())) < hours * HOUR_S:
            number = min(next_s, key=next_s.get)
            self.clock.move(max(0.0, at_s - self.passed_s()))
            self.jobs[number]()
            every_s = self.every_s[number]
            next_s[number] = max(at_s + every_s, self.passed_s() // every_s * every_s)
        return self

    def minutes(self, number=0):
        return [round((at_s - self.began_s) / 60) for at_s, *_ in self.runs[number]]


def test_each_probe_keeps_the_interval_that_status_promises():
    """On hosts with random probes, also longer than an hour's budget, and budgets that are too small."""
    faults, draw = [], random.Random(1)
    for _ in range(20):
        share, hours = draw.choice([0.005, 0.01, 0.02, 0.05]), 24
        probes = [
            (draw.choice([60, 300, 900, 3600]), latency_s + 5.0, latency_s)
            for latency_s in (draw.lognormvariate(1.2, 1) for _ in range(draw.randrange(1, 8)))
        ]
        host = Host(*probes, share=share).run(hours)
        busy_s = 0.0
        for job, runs, (every_s, full_s, _) in zip(host.jobs, host.runs, probes, strict=True):
            allowed_s = job.status()["allowed_every_s"]
            began_s = [at_s for at_s, *_ in runs]
            gap_s = max((after - before for before, after in pairwise(began_s)), default=math.inf)
            # A run starts at a multiple of the interval, beside the runs of others.
            if gap_s > allowed_s + every_s + 300 and allowed_s < hours * HOUR_S / 3:
                faults.append((share, every_s, full_s, allowed_s, gap_s))
            busy_s += sum(busy_s for at_s, busy_s, _ in runs[1:])
        if busy_s > 1.02 * share * hours * HOUR_S + max(full_s for _, full_s, _ in probes):
            faults.append((share, probes, busy_s))
    assert faults == []


def test_runs_and_energy_windows_of_a_budget_in_minutes():
    """Of 36 s an hour, by hand: the first runs in minutes, those with energy, and the status of each probe."""

    def budget(text):
        case = json.loads(text)
        options = {name: case[name] for name in ("kind", "known") if name in case}
        host = Host(*map(tuple, case["probes"]), **options).run(case["hours"])
        found = []
        for number, (runs, job) in enumerate(zip(host.runs, host.jobs, strict=True)):
            minutes, status = host.minutes(number), job.status()
            with_energy = [at for at, run in zip(minutes, runs, strict=True) if run[2]]
            busy_s = sum(run[1] for run in runs)
            shares = [status["allowed_every_s"], status["budget_used_share"]]
            found.append([len(runs), busy_s, minutes[:20], with_energy[:20], *shares])
        return found

    check_outcomes("probe_minutes.json", budget)


def test_a_run_longer_than_the_budget_is_named_once_and_follows_after_hours(caplog):
    host = Host((300, 40.0, 40.0)).run(3)
    assert host.minutes() == [0, 65, 135]
    assert (host.jobs[0].status()["run_s"], host.jobs[0].status()["allowed_every_s"]) == (40, 4000)
    assert host.jobs[0].wait_s() > 0
    with caplog.at_level(logging.WARNING):
        host.jobs[0].warn_if_long()
        host.jobs[0].warn_if_long()
        (record,) = (one for one in caplog.records if one.levelno == logging.WARNING)
    assert "takes 40 s of the device, more than the 36 s an hour" in record.getMessage()
    assert "every 66.7 min. Raise duty" in record.getMessage()


def test_a_cheap_probe_runs_as_often_as_its_part_allows():
    """Of two probes, one that needs 20 times the budget takes at most half of it from the other."""
    queue = Host().queue
    for probe, every_s, run_s, expected_s in (
        ("expensive", 60.0, 12.0, 1200.0),
        ("cheap", 300.0, 1.5, 300.0),
        ("expensive", 60.0, 12.0, 2400.0),
        ("cheap", 300.0, 0.3, 300.0),
        ("expensive", 60.0, 12.0, 12 / 0.009),
    ):
        queue.expect(probe, Needed(every_s, run_s, run_s))
        assert queue.interval(probe).every_s == pytest.approx(expected_s), probe
    # One that never ran may need as much as the others.
    queue.expect("new", Needed(60.0, 0.0, 0.0))
    assert queue.interval("expensive").every_s == pytest.approx(12 / 0.0045)


def test_fault_of_a_run_is_in_the_status():
    """Of a probe whose run takes unknown time, and may take all of it."""
    failing = Host((300, 40.0, 40.0), kind="crashed", known=False).run(0.1)
    assert failing.jobs[0].status()["fault"]["title"] == "out of memory"
    assert Host((60, 1e3, 1e3), share=1.0, kind="crashed", known=False).jobs[0].wait_s() <= 0


def test_a_restart_keeps_fault_duty_and_interval():
    before = Host((300, 40.0, 40.0), kind="crashed").run(0.05)
    # Another boot: the monotonic clock starts again.
    clock = FakeClock(before.clock.time_ns() + 60 * 10**9)
    after = Host((300, 40.0, 40.0), ledger=before.ledger, clock=clock, known=False)
    status = after.jobs[0].status()
    assert status["fault"] == before.jobs[0].status()["fault"]
    assert status["budget_used_share"] == pytest.approx(40 / HOUR_S)
    assert after.jobs[0].wait_s() == pytest.approx(4000 - 150 - 60)
    after.run(2)
    # Planned after 4,000 s from the end of the run before the restart, to the nearest 5 minutes.
    assert after.minutes() == [65]
    clock.move(2 * HOUR_S)
    assert after.jobs[0].status()["budget_used_share"] == 0


def test_last_result_is_shown_after_a_restart_with_the_same_version():
    ledger = MemoryLedger()
    known = {"full_s": 9.0, "latency_only_s": 1.0, "last": {"batch": 4}, "fault": None}
    for version, last in ((__version__, {"batch": 4}), ("0.0.1", None)):
        ledger.put_state("job gpu0 0", {"version": version, **known})
        host = Host((300, 9.0, 1.0), ledger=ledger, known=False)
        assert host.jobs[0].status()["last"] == last


def test_stored_duty_of_a_clock_that_was_ahead_counts_as_of_now():
    ledger, clock = MemoryLedger(), FakeClock()
    DeviceQueue("gpu0", 0.01, ledger, clock).record("e", 10.0, energy=True)
    behind = FakeClock(clock.time_ns() - 86_400 * 10**9)
    queue = DeviceQueue("gpu0", 0.01, ledger, behind)
    assert queue.used_share() == pytest.approx(10 / HOUR_S)
    behind.move(HOUR_S + 1)
    assert queue.used_share() == 0
    ledger.put_state("duty gpu0", [["e", "never", 1.0, True]])
    assert DeviceQueue("gpu0", 0.01, ledger, clock).used_share() == 0


def test_cancelled_run_counts_in_the_budget_of_the_next_configuration():
    """Closing the probes waits until the job that runs has recorded its time."""
    ledger, clock, held = MemoryLedger(), FakeClock(), threading.Event()
    queue = DeviceQueue("gpu0", 0.01, ledger, clock)

    def job():
        with queue.lock:
            held.set()
            assert not queue.is_ended_within(0.0)
            queue.record("e", 10.0, energy=True)

    thread = threading.Thread(target=job)
    thread.start()
    assert held.wait(60)
    assert queue.is_ended_within(60)
    assert DeviceQueue("gpu0", 0.01, ledger, clock).used_share() == pytest.approx(10 / HOUR_S)
    thread.join()


def test_frequent_runs_take_bounded_memory():
    host = Host((1, 0.25, 0.25), share=0.5)
    for _ in range(10_000):
        host.clock.move(1)
        host.queue.record("0", 0.25, energy=False)
    assert len(host.ledger.state("duty gpu0")) <= HOUR_S / PART_S + 2
    assert host.queue.used_share() == pytest.approx(0.25, rel=0.02)
