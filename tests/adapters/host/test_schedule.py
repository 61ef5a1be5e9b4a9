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


def test_five_minute_job_runs_on_five_minute_boundaries():
    trigger = AlignedTrigger(300)
    first = trigger.get_next_fire_time(None, NOON)
    assert first == datetime(2026, 3, 29, 12, 5, tzinfo=UTC)
    assert trigger.get_next_fire_time(first, NOON) == first + timedelta(minutes=5)


def test_offset_delays_every_run():
    trigger = AlignedTrigger(300, offset_s=20)
    assert trigger.get_next_fire_time(None, NOON) == datetime(2026, 3, 29, 12, 5, 20, tzinfo=UTC)


def test_run_after_an_unaligned_one_is_aligned():
    trigger = AlignedTrigger(60)
    assert trigger.get_next_fire_time(NOON, NOON) == datetime(2026, 3, 29, 12, 4, tzinfo=UTC)


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


def test_immediate_job_runs_at_once(schedule):
    ran = threading.Event()
    schedule.add("a", 3600, ran.set, at_once=True)
    schedule.start()
    assert ran.wait(60)


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


def test_one_of_the_runs_skipped_by_a_clock_step_is_run():
    trigger = AlignedTrigger(1)
    later = NOON + timedelta(days=3650, milliseconds=500)
    due = trigger.get_next_fire_time(NOON, later)
    assert due == NOON + timedelta(days=3650)
    assert trigger.get_next_fire_time(due, later) == due + timedelta(seconds=1)


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


def test_jobs_are_realigned_after_a_step(schedule):
    schedule.add("a", 3600, lambda: None)
    schedule.start()
    schedule.realign()
    assert schedule.records["a"].late == 0
