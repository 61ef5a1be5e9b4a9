"""A calendar that is stepped, changes to summer time and back, and a host that is suspended.

Outcome: measuring never stops, whatever the calendar does; jobs are aligned anew and go on at
once, also after a step back; rows carry the calendar's time of when they were measured, durations
and energies come from the clock that is never set; a resumed host goes on by itself.
"""

import os
import re
import signal
import time
from datetime import UTC, datetime, timedelta

import pytest
from fakes.processes import children_of
from fakes.scenes import QUICK
from fakes.shifted_clock import ShiftedClock

from agent.daemon.schedule import AlignedTrigger
from agent.model import NS_PER_S

ALERTING = '[alerting]\nevaluate_every = "500ms"\n'
HOUR_S = 3600
POWER_W = 300.0


@pytest.fixture
def calendar(tmp_path):
    return ShiftedClock(tmp_path)


def rows_between(daemon, since_ns, until_ns):
    return [
        row for row in daemon.points("device", device="gpu0") if since_ns < row.time_ns < until_ns
    ]


def goes_on(daemon, calendar, rows=4):
    """Waits for rows of now, by the calendar of now, and for jobs that run."""
    since_ns = calendar.time_ns()
    daemon.wait_for(
        lambda: len(rows_between(daemon, since_ns, since_ns + 60 * NS_PER_S)) >= rows
    )
    runs = daemon.state("status")["jobs"]["alerting"]["runs"]
    daemon.wait_for(lambda: daemon.state("status")["jobs"]["alerting"]["runs"] > runs)


@pytest.mark.parametrize("steps_s", [(-HOUR_S, HOUR_S), (HOUR_S, -HOUR_S), (8 * HOUR_S, -86_400)])
def test_a_stepped_calendar_stops_nothing(daemon_in, gpus_of, calendar, steps_s):
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env())
    daemon.start(QUICK + ALERTING)
    goes_on(daemon, calendar)
    for count, step_s in enumerate(steps_s, 1):
        calendar.step(step_s)
        pattern = r"the wall clock was stepped by ([+-][\d.]+) s"
        daemon.wait_for(
            lambda wanted=count: len(re.findall(pattern, daemon.output.read_text())) == wanted
        )
        told_s = float(re.findall(pattern, daemon.output.read_text())[-1])
        assert told_s == pytest.approx(step_s, abs=5)
        goes_on(daemon, calendar)
    status = daemon.state("status")
    assert status["sensor"]["restarts"] == 0
    assert status["sensor"]["devices"]["gpu0"]["state"] == "good"
    for row in daemon.points("device", device="gpu0"):
        assert row.fields["power_w"] == pytest.approx(POWER_W)
        # An hour that the calendar skipped or went through twice was no hour of a device.
        assert row.fields["energy_j"] < POWER_W * 60
    assert "Traceback" not in daemon.output.read_text()


@pytest.mark.parametrize(
    "change",
    [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)],
    ids=["to summer time", "to winter time"],
)
def test_a_daemon_lives_through_the_change_of_summer_time(daemon_in, gpus_of, calendar, change):
    change_ns = int(change.timestamp()) * NS_PER_S
    calendar.set(change_ns - 30 * NS_PER_S)
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env(), TZ="Europe/Berlin")
    daemon.start(QUICK + ALERTING)
    daemon.wait_for(lambda: len(daemon.points("device")) > 2)
    calendar.set(change_ns - NS_PER_S)
    daemon.wait_for(lambda: len(rows_between(daemon, change_ns, change_ns + 60 * NS_PER_S)) > 3)
    goes_on(daemon, calendar)
    assert "stepped" in daemon.output.read_text()  # by the test, and by nothing else
    assert daemon.output.read_text().count("stepped") == 1
    assert "Traceback" not in daemon.output.read_text()


@pytest.mark.parametrize("day", [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)])
def test_runs_are_one_period_apart_through_the_change_of_summer_time(day):
    trigger, runs = AlignedTrigger(300.0), [day]
    while runs[-1] < day + timedelta(days=1):
        runs.append(trigger.get_next_fire_time(runs[-1], runs[-1]))
    assert runs == [day + timedelta(minutes=5 * n) for n in range(289)]


def test_a_suspended_host_goes_on_where_it_was(daemon_in, gpus_of, calendar):
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env())
    daemon.start(f'{QUICK}deadline = "1s"\n{ALERTING}')
    goes_on(daemon, calendar)
    family = [daemon.pid, *children_of(daemon.pid)]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)  # longer than any deadline; nothing of it can be waited for
    calendar.step(HOUR_S)  # what the calendar did meanwhile, and CLOCK_MONOTONIC does not
    for pid in reversed(family):
        os.kill(pid, signal.SIGCONT)
    goes_on(daemon, calendar)
    status = daemon.wait_for(
        lambda: (found := daemon.state("status"))["sensor"]["state"] == "running" and found
    )
    # A child that was found late may have been replaced, once.
    assert status["sensor"]["restarts"] <= 1
    assert "Traceback" not in daemon.output.read_text()


def test_a_daemon_that_was_held_alone_catches_up_with_its_sensors(daemon_in, gpus_of, calendar):
    daemon = daemon_in(**gpus_of(1).env(), **calendar.env())
    daemon.start(QUICK + ALERTING)
    goes_on(daemon, calendar)
    since_ns = calendar.time_ns()
    daemon.signal(signal.SIGSTOP)
    time.sleep(3)
    until_ns = calendar.time_ns()
    daemon.signal(signal.SIGCONT)
    goes_on(daemon, calendar)
    # What the child measured meanwhile waited in the pipe.
    assert rows_between(daemon, since_ns, until_ns)
    assert "Traceback" not in daemon.output.read_text()
