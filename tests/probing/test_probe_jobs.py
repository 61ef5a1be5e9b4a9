"""When probes run: each within its part of the duty budget, also after a restart or a reload."""

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
    """Of 36 s an hour; by hand."""
    each_5_min = [0, 5, 10, 15, 20, 25, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 95, 100]
    cases = {
        # Two probes of 6 s a minute fit each 20 minutes: no hour begins with a burst.
        "even": ([(60, 6.0, 6.0)] * 2, [0, 20, 40, 60, 80, 100], None),
        # Half of the time for runs with an energy window: a mean of 3.27 s each 327 s.
        "half": ([(300, 9.0, 2.0)], each_5_min, [0, 35, 65, 95]),
        # All runs fit, and some of them with energy: one each 7 / (0.01 - 2 / 600) s = 17.5 min.
        "some": ([(600, 9.0, 2.0)], list(range(0, 101, 10)), [0, 20, 30, 50, 70, 90, 100]),
        # One energy run needs more than the budget of an hour: the next one follows after 200 minutes.
        "long": ([(300, 60.0, 3.0)], [0, 10, 20, 30, 40, 50, 55, 65, 75, 85, 95], [0]),
        "beside each minute": ([(3600, 6.0, 6.0), (60, 6.0, 6.0)], [0, 60], None),
    }
    for name, (probes, minutes, energy) in cases.items():
        host = Host(*probes).run(101 / 60)
        with_energy = [at for at, run in zip(host.minutes(), host.runs[0], strict=True) if run[2]]
        found = (host.minutes(), with_energy)
        assert found == (minutes, minutes if energy is None else energy), name


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


def test_runs_of_unknown_length_stop_at_the_budget():
    """A probe that searches its batch, or fails: what it takes is known only after the run."""
    failing = Host((300, 40.0, 40.0), kind="crashed", known=False).run(3)
    assert failing.minutes() == [0, 65, 135]
    assert failing.jobs[0].status()["fault"]["title"] == "out of memory"
    first = Host(*[(300, 15.0, 15.0)] * 6, known=False)
    first.run(0.05)
    assert [len(runs) for runs in first.runs] == [1, 1, 1, 0, 0, 0]
    # Beside another probe it takes its part only: 30 s an hour.
    both = Host((60, 2.0, 2.0), (3600, 6.0, 6.0), kind="crashed", known=False).run(0.9)
    assert [len(runs) for runs in both.runs] == [14, 1]
    assert Host((60, 1e3, 1e3), share=1.0, kind="crashed", known=False).jobs[0].wait_s() <= 0


def test_a_probe_that_fails_at_its_deadline_stays_within_the_budget():
    """Of 36 s an hour, beside one that would use all of it; half is for each."""
    both = Host((300, 180.0, 180.0), (60, 6.0, 6.0), kind="crashed", known=False).run(40)
    assert both.minutes(0) == [0, 600, 1200, 1800]
    assert both.jobs[0].status()["allowed_every_s"] == 36_000
    assert sum(run[1] for run in both.runs[1]) == pytest.approx(40 * 18, rel=0.1)


def test_waiting_for_a_command_on_the_device_is_not_in_the_budget():
    host = Host((300, 9.0, 9.0), kind="busy").run(0.4)
    assert (len(host.runs[0]), host.jobs[0].status()["budget_used_share"]) == (2, 0)
    assert host.jobs[0].status()["allowed_every_s"] == 900


def test_a_daily_probe_has_its_first_run_when_others_have_used_up_the_budget():
    host = Host((60, 40.0, 40.0), (86_400, 5.0, 5.0), known=False).run(0.1)
    assert [len(runs) for runs in host.runs] == [1, 1]


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
