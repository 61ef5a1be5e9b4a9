"""Steps of the wall clock are detected once, and remembered times move or stay."""

import pytest
from costprobe.core.clock import NS_PER_MS, row_ns, utc_ns
from costprobe.core.clock_step import LEAP_NS, ClockMonitor, ClockStep
from costprobe.core.records import NS_PER_S
from fakes.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000 * NS_PER_S
HOUR = 3600 * NS_PER_S


def test_remembered_time_is_shifted_or_kept():
    table = [
        # Back: a time in the future moves, one in the past stays with the rows of its time.
        (-HOUR, NOW + HOUR - 5, NOW - 5),
        (-HOUR, NOW - 5, NOW - 5),
        (-HOUR, NOW, NOW),
        # Ahead by no more than a host may have been suspended for.
        (HOUR, NOW - HOUR - 5, NOW - HOUR - 5),
        (LEAP_NS, NOW - LEAP_NS, NOW - LEAP_NS),
        # Ahead by more.
        (2 * LEAP_NS, NOW - 2 * LEAP_NS - 5, NOW - 5),
    ]
    for by_ns, before_ns, after_ns in table:
        step = ClockStep(by_ns, NOW)
        assert step.of_ns(before_ns) == after_ns, by_ns
        after_s = pytest.approx(after_ns / NS_PER_S, abs=1e-6)
        assert step.of_s(before_ns / NS_PER_S) == after_s, by_ns


def test_only_timestamps_of_a_document_are_shifted():
    ahead_ns = NOW + HOUR
    document = {
        "labels": {"device": "gpu0"},
        "period_end_ns": ahead_ns,
        "since_at_ns": ahead_ns,
        "never_at_ns": None,
        "series": [{"rows_at_ns": [NOW - 5, ahead_ns], "costs": [1.5, 2.5]}],
        "found_at_ns": {"a": ahead_ns, "b": NOW - 5},
    }
    moved = ClockStep(-HOUR, NOW).of_document(document)
    assert moved == {
        **document,
        "since_at_ns": NOW,
        "series": [{"rows_at_ns": [NOW - 5, NOW], "costs": [1.5, 2.5]}],
        "found_at_ns": {"a": NOW, "b": NOW - 5},
    }


def test_every_listener_is_notified_of_a_step_once():
    clock, seen, others = FakeClock(), [], []
    monitor = ClockMonitor(clock)
    monitor.subscribe(seen.append)
    monitor.subscribe(others.append)
    clock.move(3600)
    monitor.check()
    clock.step(1.9)
    monitor.check()
    assert seen == []
    clock.step(-3600)
    clock.move(1)
    for _ in range(2):
        monitor.check()
    assert [(step.by_ns, step.now_ns) for step in seen] == [
        (round(-3598.1 * NS_PER_S), clock.time_ns())
    ]
    assert others == seen
    monitor.unsubscribe(others.append)
    clock.step(5)
    monitor.check()
    assert len(seen) == 2


def test_gap_is_detected_once_and_is_a_step_for_the_listeners():
    """A suspended host and a stopped process: no duration includes the time."""

    def suspended(monitor, clock):
        clock.suspend(3600)

    def stopped(monitor, clock):
        monitor.expect(10)
        clock.move(3600)

    def in_time(monitor, clock):
        monitor.expect(10)
        clock.move(12)

    def busy(monitor, clock):
        monitor.expect(10)
        clock.move(10)
        monitor.woke()
        clock.move(3600)

    table = [(suspended, [(3600, True)]), (stopped, [(3600, False)]), (in_time, []), (busy, [])]
    wrong = []
    for happen, expected in table:
        clock, steps = FakeClock(), []
        monitor = ClockMonitor(clock)
        monitor.subscribe(steps.append)
        clock.move(60)
        monitor.check()
        happen(monitor, clock)
        monitor.check()
        monitor.woke()
        gaps = [(gap.length_s, gap.is_suspension) for gap in monitor.gaps()]
        steps_s = [step.by_ns / NS_PER_S for step in steps]
        if gaps != expected or monitor.gaps() or steps_s != [length_s for length_s, _ in expected]:
            wrong.append((happen.__name__, gaps, steps_s))
    assert wrong == []


def test_step_during_a_suspension_is_told_apart(caplog):
    clock = FakeClock()
    monitor = ClockMonitor(clock)
    clock.suspend(3600)
    clock.step(-100)
    monitor.check()
    assert "suspended for 3600 s" in caplog.text
    assert "stepped by -100.0 s" in caplog.text


@given(st.integers(0, 2**62), st.integers(0, 2**50))
def test_row_time_is_rounded_down_to_a_millisecond(time_ns, ago_ns):
    clock = FakeClock(time_ns)
    read_ns = clock.monotonic_ns() - ago_ns
    at_ns, exact_ns = row_ns(clock, read_ns), utc_ns(clock, read_ns)
    assert at_ns % NS_PER_MS == 0
    assert 0 <= exact_ns - at_ns < NS_PER_MS
