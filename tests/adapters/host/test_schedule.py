"""Jobs run aligned to the wall clock, never overlap themselves, and late runs are counted."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from costprobe.adapters.host.schedule import AlignedTrigger, Schedule
from costprobe.core.clock import SystemClock
from fakes.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

NOON = datetime(2026, 3, 29, 12, 3, 7, tzinfo=UTC)


def test_runs_are_on_multiples_of_the_period():
    later = NOON + timedelta(days=3650, milliseconds=500)
    wrong = [
        (every_s, before, found)
        for every_s, offset_s, before, now, expected in (
            (300, 0, None, NOON, NOON.replace(minute=5, second=0)),
            (300, 20, None, NOON, NOON.replace(minute=5, second=20)),
            # After one that was not aligned.
            (60, 0, NOON, NOON, NOON.replace(minute=4, second=0)),
            # One of the runs that a step of the wall clock skipped.
            (1, 0, NOON, later, NOON + timedelta(days=3650)),
        )
        if (found := AlignedTrigger(every_s, offset_s).get_next_fire_time(before, now)) != expected
    ]
    assert wrong == []


@given(
    st.sampled_from([1, 10, 60, 90, 300, 3600, 86_400]),
    st.floats(0, 0.99),
    st.integers(1_577_836_800, 2_208_988_800),
)
def test_runs_follow_each_other_by_exactly_one_period(every_s, share, when):
    trigger = AlignedTrigger(every_s, offset_s=share * every_s)
    now = datetime.fromtimestamp(when, tz=UTC)
    first = trigger.get_next_fire_time(None, now)
    second = trigger.get_next_fire_time(first, now)
    assert timedelta(0) < first - now <= timedelta(seconds=every_s, microseconds=1)
    assert abs((second - first).total_seconds() - every_s) < 1e-5


@pytest.fixture
def schedule():
    made = Schedule(4, SystemClock())
    yield made
    made.stop()


def test_failing_job_is_recorded_and_does_not_stop_others(schedule):
    def boom():
        raise OSError("the disk is on fire")

    done = threading.Semaphore(0)
    schedule.add("boom", 0.2, boom)
    schedule.add("fine", 0.2, done.release)
    schedule.start()
    for _ in range(3):
        assert done.acquire(timeout=60)
    assert schedule.records["boom"].errors >= 1
    assert "the disk is on fire" in schedule.records["boom"].last_error
    assert schedule.records["fine"].errors == 0


def test_next_run_is_the_first_planned_one_after_a_wait():
    clock = FakeClock(int(NOON.timestamp()) * 10**9)
    made = Schedule(4, clock)
    made.add("a", 300, lambda: None)
    assert made.next_run_ns("unknown") is None
    expected = {0.0: 5, 60.0: 5, 115.0: 10, 3600.0: 65}
    for wait_s, minute in expected.items():
        next_run = datetime.fromtimestamp(made.next_run_ns("a", wait_s) / 1e9, tz=UTC)
        assert next_run - NOON.replace(minute=0, second=0) == timedelta(minutes=minute)


def test_job_never_overlaps_itself_and_the_skipped_run_is_counted(schedule):
    running, most, release = [], [], threading.Event()

    def slow():
        running.append(1)
        most.append(len(running))
        release.wait(30)
        running.pop()

    beats = threading.Semaphore(0)
    schedule.add("slow", 0.2, slow)
    schedule.add("beat", 0.2, beats.release)
    schedule.start()
    for _ in range(5):
        assert beats.acquire(timeout=60)
    assert schedule.late_jobs >= 1
    release.set()
    assert max(most) == 1


def test_run_missed_by_a_clock_step_is_not_late(schedule):
    ran = threading.Event()
    schedule.add("a", 3600, ran.set, at_once=True)
    schedule.start()
    assert ran.wait(60)
    # As after a forward step: a job due in one hour is now one hour overdue.
    past = datetime.now(tz=UTC) - timedelta(hours=1)
    schedule._scheduler.modify_job("a", next_run_time=past)  # noqa: SLF001 - a test must not step the host's clock
    schedule.add("beat", 1, ran.set)
    ran.clear()
    assert ran.wait(60)
    assert schedule.late_jobs == 0
