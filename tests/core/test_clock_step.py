"""Steps of the wall clock are detected once, and remembered times move or stay."""

import pytest
from costprobe.core.clock import NS_PER_MS, row_ns, utc_ns
from costprobe.core.clock_step import LEAP_NS, ClockMonitor, ClockStep
from costprobe.core.records import NS_PER_S
from fakes.cases import check_all
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


def suspended(_, clock):
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


# What happens, the steps in s that each listener is notified of, once, and the gaps.
HAPPENINGS = (
    (lambda _, clock: clock.move(3600), [], []),
    (lambda _, clock: clock.step(1.9), [], []),
    (lambda _, clock: clock.step(-3600), [-3600], []),
    # No duration includes the time of a suspended host or a stopped process.
    (suspended, [3600], [(3600, True)]),
    (stopped, [3600], [(3600, False)]),
    (in_time, [], []),
    (busy, [], []),
)


def test_steps_and_gaps_are_detected_once():
    def check(happen, steps_s, gaps):
        clock, seen, others = FakeClock(), [], []
        monitor = ClockMonitor(clock)
        monitor.subscribe(seen.append)
        monitor.subscribe(others.append)
        clock.move(60)
        monitor.check()
        happen(monitor, clock)
        for _ in range(2):
            monitor.check()
            monitor.woke()
        assert [(step.by_ns / NS_PER_S, step.now_ns) for step in seen] == [
            (step_s, clock.time_ns()) for step_s in steps_s
        ]
        assert others == seen
        assert [(gap.length_s, gap.is_suspension) for gap in monitor.gaps()] == gaps
        assert monitor.gaps() == []
        monitor.unsubscribe(others.append)
        clock.step(5)
        monitor.check()
        assert len(seen) == len(others) + 1

    check_all(check, HAPPENINGS)


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
