"""Steps of the wall clock, changes of summer time, and a suspended daemon or host.

Outcome: measuring never stops; jobs are aligned again and run at once, also after a step back; rows
have the wall clock's time at which they were measured; durations and energies come from
CLOCK_MONOTONIC; a resumed host continues by itself.
"""

import os
import re
import signal
import time
import urllib.request
from contextlib import closing
from datetime import UTC, datetime

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.core.records import NS_PER_S
from fakes.nvml import FakeNvml
from fakes.processes import children_of
from fakes.scenes import QUICK_STATUS
from fakes.servers import free_port
from fakes.shifted_clock import ShiftedClock
from fakes.worker import worker_of

FAST = QUICK_STATUS.replace('"500ms"', '"200ms"')
HOUR_S = 3600
TEN_YEARS_S = 3650 * 86_400
STEPS_S = (-HOUR_S, 2 * HOUR_S, TEN_YEARS_S, -TEN_YEARS_S)
SUSPENDED_S = 6  # longer than any deadline
POWER_W = 300.0
CHANGES = (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC))


def http(port):
    return f'[http]\nlisten = "127.0.0.1:{port}"\n'


@pytest.fixture
def calendar(tmp_path):
    return ShiftedClock(tmp_path)


def rows_between(daemon, since_ns, until_ns):
    return [
        row for row in daemon.points("device", device="gpu0") if since_ns < row.time_ns < until_ns
    ]


def runs_of(port, job):
    """The number of runs of a job, from `/metrics`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return float(
        re.search(rf'^costprobe_job_runs_total{{job="{job}"}} (\S+)$', text, re.MULTILINE)[1]
    )


def resumes(daemon, calendar, port, rows=3):
    """Wait for rows with the current time, and for jobs that run."""
    since_ns, runs = calendar.time_ns(), runs_of(port, "alerting")
    daemon.wait_for(lambda: len(rows_between(daemon, since_ns, since_ns + 60 * NS_PER_S)) >= rows)
    daemon.wait_for(lambda: runs_of(port, "alerting") > runs)


def steps_logged(daemon):
    """The steps of the wall clock in s, from the log."""
    output = daemon.output.read_text()
    return [float(s) for s in re.findall(r"the wall clock was stepped by ([+-][\d.]+) s", output)]


@pytest.fixture
def port():
    return free_port()


def test_wall_clock_steps_and_summer_time_do_not_interrupt_measuring(
    daemon_in, gpus_of, calendar, port
):
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env(), TZ="Europe/Berlin")
    calendar.set(int(CHANGES[0].timestamp()) * NS_PER_S - 60 * NS_PER_S)
    daemon.start(FAST + http(port))
    resumes(daemon, calendar, port)
    for change in CHANGES:
        change_ns = int(change.timestamp()) * NS_PER_S
        calendar.set(change_ns - NS_PER_S)
        until_ns = change_ns + 60 * NS_PER_S
        daemon.wait_for(
            lambda since=change_ns, until=until_ns: len(rows_between(daemon, since, until)) > 2
        )
    resumes(daemon, calendar, port)
    for step_s in STEPS_S:
        calendar.step(step_s)
        resumes(daemon, calendar, port)
        running_s = (calendar.time_ns() - daemon.status()["started_ns"]) / NS_PER_S
        assert 0 < running_s < HOUR_S
    # The log collapses later repetitions. A change of summer time is no step.
    assert len(steps_logged(daemon)) <= len(CHANGES) + len(STEPS_S)
    assert pytest.approx(STEPS_S[0], abs=5) in steps_logged(daemon)
    daemon.stop()
    status = daemon.state("status")
    assert status["sensor"]["child_restarts"] == 0
    assert status["sensor"]["devices"]["gpu0"]["state"] == "good"
    rows = daemon.points("device", device="gpu0")
    with closing(StoreReader.open(daemon.store)) as reader:
        (counted,) = [each.value for each in reader.totals() if each.name == "energy_joules_total"]
    # No row replaced one of the same time.
    assert sum(row.fields["energy_j"] for row in rows) == pytest.approx(float(counted), rel=1e-9)
    for row in rows:
        assert 0 < row.fields["power_w"] <= POWER_W * 1.001
        # An hour that the wall clock skipped or repeated is not counted as device time.
        assert row.fields["energy_j"] < POWER_W * 60
    assert "Traceback" not in daemon.output.read_text()


def test_suspended_daemon_and_suspended_host_resume(daemon_in, gpus_of, calendar, port):
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env())
    daemon.start(FAST + http(port))
    resumes(daemon, calendar, port)
    since_ns = calendar.time_ns()
    daemon.signal(signal.SIGSTOP)
    time.sleep(SUSPENDED_S)
    until_ns = calendar.time_ns()
    daemon.signal(signal.SIGCONT)
    resumes(daemon, calendar, port)
    # Readings of that time waited in the pipe.
    assert rows_between(daemon, since_ns, until_ns)

    family = [daemon.pid, *children_of(daemon.pid)]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(SUSPENDED_S)
    calendar.suspend(HOUR_S)
    for pid in reversed(family):
        os.kill(pid, signal.SIGCONT)
    resumes(daemon, calendar, port)
    gaps = daemon.wait_for(
        lambda: [row for row in daemon.points("event") if row.fields.get("cause") == "gap"]
    )
    titles = [row.fields["title"] for row in gaps]
    # A stop of the daemon alone may be a gap as well.
    assert [title for title in titles if "host" in title] == [
        "the host was suspended for 1 h",
    ]
    daemon.stop()
    sensor = daemon.state("status")["sensor"]
    assert (sensor["child_restarts"], sensor["devices"]["gpu0"]["state"]) == (0, "good")
    # Whatever a GPU drew in that hour is in no row.
    for row in daemon.points("device", device="gpu0"):
        assert row.fields.get("energy_j", 0.0) < POWER_W * 60
    assert daemon.points("alert") == []
    assert "Traceback" not in daemon.output.read_text()


@pytest.fixture
def bench(tmp_path):
    """A GPU's worker after a minute in simulated time."""
    fake = FakeNvml(tmp_path, simulated_utc_ns=1_780_000_000 * NS_PER_S)
    fake.gpus[0].set_power(POWER_W)
    with fake.in_this_process():
        bench = worker_of(fake)
        bench.fake = fake
        bench.run(60)
        yield bench


def suspend(fake):
    """CLOCK_MONOTONIC stands still while a host is suspended; the GPU's counter may not."""
    fake.clock.suspend(HOUR_S)
    fake.gpus[0].set(counter_base_mj=1_000_000_000 + int(POWER_W * HOUR_S * 1000))


def test_energy_of_a_suspension_is_in_no_row_and_no_window(bench):
    start_ns = bench.fake.clock.monotonic_ns()
    bench.mark_edge()
    bench.run(30)
    suspend(bench.fake)
    energy = bench.energy_of_a_window(30, start_ns)
    readings = bench.of("reading")
    assert len(readings) > 8
    # It is no impossible reading either.
    assert bench.of("fault") == []
    for reading in readings:
        length_s = (reading["end_ns"] - reading["start_ns"]) / NS_PER_S
        assert reading["fields"].get("energy_j", 0.0) <= POWER_W * length_s * 1.05
    assert energy.get("energy_j", 0.0) <= POWER_W * 60 * 1.05


def test_energy_of_a_suspension_while_a_device_is_lost_is_no_impossible_reading(bench):
    gpu = bench.fake.gpus[0]
    gpu.vanish()
    bench.run(15)
    suspend(bench.fake)
    gpu.come_back()
    bench.run(30)
    assert [fault["code"] for fault in bench.of("fault")] == ["GPU_IS_LOST"]
    assert bench.of("reading")[-1]["fields"]["energy_j"] == pytest.approx(POWER_W * 10, rel=0.01)
