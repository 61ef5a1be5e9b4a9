"""What is known of a probe survives a restart and a reload: result, fault, duty, next run."""

from itertools import pairwise

import pytest
from costprobe import __version__
from costprobe.adapters.probe_child.results import ProbeFault
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.core.records import Device
from costprobe.probing.jobs import DeviceQueue, JobParts, ProbeJob
from costprobe.probing.run import Listeners, ProbeTarget
from costprobe.probing.settings import ProbeConfig
from fakes.clock import FakeClock

GPU = Device("gpu0", "gpu", "GPU-1", "a GPU")


class Failing:
    """Runs that take device time and fail."""

    def __init__(self, clock, run_s):
        self.clock, self.run_s = clock, run_s

    def load(self, _):
        return None

    def run(self, *_, **__):
        self.clock.move(self.run_s)
        return ProbeFault("crashed", "out of memory", ["line"])


class Events(list):
    take_event = list.append


@pytest.fixture
def clock():
    return FakeClock()


def job_of(ledger, clock, *, share=0.01, run_s=40.0, name="e", every="5m", queue=None):
    """The job of a daemon that has just started."""
    return ProbeJob(
        ProbeConfig(name=name, every=every, when_busy="run"),
        ProbeTarget((GPU,)),
        [queue or DeviceQueue("gpu0", share, ledger, clock)],
        JobParts(Failing(clock, run_s), Events(), ledger, clock, Listeners(*[lambda *_: None] * 3)),
    )


def test_fault_and_duty_of_the_last_hour_survive_a_restart(clock):
    ledger = MemoryLedger()
    job = job_of(ledger, clock)
    assert job.wait_s() == 0.0
    job()
    before = job.status()
    assert before["fault"]["title"] == "out of memory"
    # Another boot: the monotonic clock starts again.
    rebooted = FakeClock(clock.time_ns())
    rebooted.move(60)
    again = job_of(ledger, rebooted)
    assert again.status()["fault"] == before["fault"]
    assert again.status()["budget_used_share"] == pytest.approx(40 / 3600)
    again()
    assert again.status()["skipped_for_budget"] == 1
    rebooted.move(3600)
    assert again.status()["budget_used_share"] == 0


def test_last_result_is_shown_after_a_restart_with_the_same_version(clock):
    ledger = MemoryLedger()
    known = {"full_s": 9.0, "latency_only_s": 1.0, "last": {"batch": 4}, "fault": None}
    ledger.put_state("job gpu0 e", {"version": __version__, **known})
    assert job_of(ledger, clock).status()["last"] == {"batch": 4}
    ledger.put_state("job gpu0 e", {"version": "0.0.1", "last": {"of": "another"}})
    assert job_of(ledger, clock).status()["last"] is None


def test_next_run_waits_for_the_budget(clock):
    job = job_of(MemoryLedger(), clock, share=0.01, run_s=40.0)
    job()
    assert job.wait_s() == pytest.approx(3600)
    clock.move(600)
    assert job.wait_s() == pytest.approx(3000)
    assert job_of(MemoryLedger(), clock, share=1.0).wait_s() == 0.0


def test_a_budget_for_fewer_runs_spreads_them_evenly(clock):
    """Two probes of 6 s a minute fit into 1 % of the time each 20 minutes: no hour begins with a burst."""
    ledger = MemoryLedger()
    for name in "ab":
        known = {"full_s": 6.0, "latency_only_s": 6.0}
        ledger.put_state(f"job gpu0 {name}", {"version": __version__, **known})
    queue = DeviceQueue("gpu0", 0.01, ledger, clock)
    jobs = {
        name: job_of(ledger, clock, run_s=6.0, name=name, every="1m", queue=queue) for name in "ab"
    }
    assert [job.status()["allowed_every_s"] for job in jobs.values()] == [1200.0, 1200.0]
    ran_min = {"a": [], "b": []}
    began_s = clock.monotonic_ns() / 1e9
    for minute in range(121):
        clock.move(began_s + minute * 60 - clock.monotonic_ns() / 1e9)
        for name, job in jobs.items():
            before = job.status()["skipped_for_budget"]
            job()
            if job.status()["skipped_for_budget"] == before:
                ran_min[name].append(minute)
    # A run counts until an hour after its end: the first of the second hour is a minute later.
    assert ran_min == {name: [0, 20, 40, 61, 81, 101] for name in "ab"}


@pytest.mark.parametrize(("run_s", "longest_min"), [(0.78, 3), (0.93, 3), (1.44, 4)])
def test_an_interval_that_is_no_multiple_leaves_no_gap(clock, run_s, longest_min):
    """1.3, 1.55 and 2.4 minutes: runs of a minute would use up the budget before the hour ends."""
    job = job_of(MemoryLedger(), clock, run_s=run_s, every="1m")
    began_s, ran_min = clock.monotonic_ns() / 1e9, [0]
    for minute in range(180):
        clock.move(began_s + minute * 60 - clock.monotonic_ns() / 1e9)
        before = job.status()["skipped_for_budget"]
        job()
        if job.status()["skipped_for_budget"] == before:
            ran_min.append(minute)
    assert max(after - before for before, after in pairwise(ran_min)) <= longest_min
    assert len(ran_min) >= 0.95 * 3 * 36 / run_s


def test_a_cheap_probe_runs_as_often_as_its_part_allows(clock):
    """Of two probes, one that needs 20 times the budget takes at most half of it from the other."""
    queue = DeviceQueue("gpu0", 0.01, MemoryLedger(), clock)
    queue.expect("expensive", 60.0, 12.0, 12.0)
    queue.expect("cheap", 300.0, 1.5, 1.5)
    assert (queue.stretch("expensive"), queue.stretch("cheap")) == (pytest.approx(40.0), 1.0)
    queue.expect("cheap", 300.0, 0.3, 0.3)
    assert queue.stretch("expensive") == pytest.approx(0.2 / 0.009)
    queue.expect("too-long", 300.0, 40.0, 4.0)
    assert queue.stretch("too-long") == pytest.approx(4 / 300 / 0.0045)


def test_a_restart_keeps_the_interval(clock):
    ledger = MemoryLedger()
    known = {"full_s": 6.0, "latency_only_s": 6.0}
    ledger.put_state("job gpu0 e", {"version": __version__, **known})
    job_of(ledger, clock, run_s=6.0, every="1m")()
    clock.move(60)
    again = job_of(ledger, clock, run_s=6.0, every="1m")
    again()
    assert again.status()["skipped_for_budget"] == 1
    assert again.wait_s() == pytest.approx(600 - 60 - 30)


def test_stored_duty_of_a_clock_that_was_ahead_counts_as_of_now(clock):
    ledger = MemoryLedger()
    DeviceQueue("gpu0", 0.01, ledger, clock).record("e", 10.0, energy=True)
    behind = FakeClock(clock.time_ns() - 86_400 * 10**9)
    queue = DeviceQueue("gpu0", 0.01, ledger, behind)
    now_s = behind.monotonic_ns() / 1e9
    assert queue.budget.used_share(now_s) == pytest.approx(10 / 3600)
    assert queue.budget.used_share(now_s + 3601) == 0
    ledger.put_state("duty gpu0", [["e", "never", 1.0, True]])
    assert DeviceQueue("gpu0", 0.01, ledger, clock).budget.used_share(now_s) == 0
