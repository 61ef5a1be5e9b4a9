"""A calendar that is stepped, changes to summer time and back, and a host that is suspended.

Outcome: measuring never stops, whatever the calendar does; jobs are aligned anew and go on at
once, also after a step back; rows carry the calendar's time of when they were measured, durations
and energies come from the clock that is never set; a resumed host goes on by itself.
"""

import os
import re
import signal
import time
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from fakes.processes import children_of
from fakes.scenes import QUICK
from fakes.servers import free_port
from fakes.shifted_clock import ShiftedClock

from agent.daemon.schedule import AlignedTrigger
from agent.model import NS_PER_S

ALERTING = '[alerting]\nevaluate_every = "500ms"\n'
HOUR_S = 3600
TEN_YEARS_S = 3650 * 86_400
HELD_S = 3  # longer than any deadline; there is nothing that it could wait for
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
    """How often a job ran, as `/metrics` has it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return float(
        re.search(rf'^infercost_job_runs_total{{job="{job}"}} (\S+)$', text, re.MULTILINE)[1]
    )


def goes_on(daemon, calendar, port, rows=3):
    """Waits for rows of now, by the calendar of now, and for jobs that run."""
    since_ns, runs = calendar.time_ns(), runs_of(port, "alerting")
    daemon.wait_for(lambda: len(rows_between(daemon, since_ns, since_ns + 60 * NS_PER_S)) >= rows)
    daemon.wait_for(lambda: runs_of(port, "alerting") > runs)


def steps_told(daemon):
    """By how many seconds the calendar was stepped, as the log has it."""
    said = daemon.output.read_text()
    return [float(s) for s in re.findall(r"the wall clock was stepped by ([+-][\d.]+) s", said)]


@pytest.fixture
def port():
    return free_port()


def test_a_stepped_calendar_stops_nothing(daemon_in, gpus_of, calendar, port):
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env())
    daemon.start(QUICK + ALERTING + http(port))
    goes_on(daemon, calendar, port)
    steps_s = (-HOUR_S, 2 * HOUR_S, TEN_YEARS_S, -TEN_YEARS_S)
    for count, step_s in enumerate(steps_s, 1):
        calendar.step(step_s)
        daemon.wait_for(lambda wanted=count: len(steps_told(daemon)) == wanted)
        goes_on(daemon, calendar, port)
    assert steps_told(daemon) == [pytest.approx(step_s, abs=5) for step_s in steps_s]
    daemon.stop()
    status = daemon.state("status")
    assert status["sensor"]["restarts"] == 0
    assert status["sensor"]["devices"]["gpu0"]["state"] == "good"
    for row in daemon.points("device", device="gpu0"):
        assert 0 < row.fields["power_w"] <= POWER_W * 1.001
        # An hour that the calendar skipped or went through twice was no hour of a device.
        assert row.fields["energy_j"] < POWER_W * 60
    assert "Traceback" not in daemon.output.read_text()


def test_a_daemon_lives_through_the_changes_of_summer_time(daemon_in, gpus_of, calendar, port):
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env(), TZ="Europe/Berlin")
    calendar.set(int(CHANGES[0].timestamp()) * NS_PER_S - 60 * NS_PER_S)
    daemon.start(QUICK + ALERTING + http(port))
    for count, change in enumerate(CHANGES, 1):
        change_ns = int(change.timestamp()) * NS_PER_S
        calendar.set(change_ns - NS_PER_S)
        daemon.wait_for(lambda wanted=count: len(steps_told(daemon)) == wanted)
        until_ns = change_ns + 60 * NS_PER_S
        daemon.wait_for(
            lambda since=change_ns, until=until_ns: len(rows_between(daemon, since, until)) > 2
        )
        goes_on(daemon, calendar, port)
    # The test stepped it, and nothing else did.
    assert len(steps_told(daemon)) == len(CHANGES)
    assert "Traceback" not in daemon.output.read_text()


@pytest.mark.parametrize("day", [change.replace(hour=0) for change in CHANGES])
def test_runs_are_one_period_apart_through_the_change_of_summer_time(day):
    trigger, runs = AlignedTrigger(300.0), [day]
    while runs[-1] < day + timedelta(days=1):
        runs.append(trigger.get_next_fire_time(runs[-1], runs[-1]))
    assert runs == [day + timedelta(minutes=5 * n) for n in range(289)]


def test_a_daemon_that_was_held_alone_and_a_suspended_host_go_on(
    daemon_in, gpus_of, calendar, port
):
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env())
    daemon.start(f'{QUICK}deadline = "1s"\n{ALERTING}{http(port)}')
    goes_on(daemon, calendar, port)
    since_ns = calendar.time_ns()
    daemon.signal(signal.SIGSTOP)
    time.sleep(HELD_S)
    until_ns = calendar.time_ns()
    daemon.signal(signal.SIGCONT)
    goes_on(daemon, calendar, port)
    # What the sensors measured meanwhile waited in the pipe.
    assert rows_between(daemon, since_ns, until_ns)

    family = [daemon.pid, *children_of(daemon.pid)]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(HELD_S)
    calendar.step(HOUR_S)  # what the calendar did meanwhile, and CLOCK_MONOTONIC does not
    for pid in reversed(family):
        os.kill(pid, signal.SIGCONT)
    goes_on(daemon, calendar, port)
    daemon.stop()
    # A child that was found late may have been replaced, once each time.
    assert daemon.state("status")["sensor"]["restarts"] <= 2
    assert "Traceback" not in daemon.output.read_text()
