import pytest

from agent.telemetry.activity import UNKNOWN, Activity, ActivityLog
from agent.telemetry.sample import Sample

S = 10**9


def log_of(*samples):
    log = ActivityLog()
    for sample in samples:
        log.add(sample)
    return log


def at(t_s, pids=None, power_s=None, thermal_s=None):
    return Sample(t_ns=t_s * S, pids=pids, throttle_power_s=power_s, throttle_thermal_s=thermal_s)


def test_own_processes_are_no_contention():
    log = log_of(at(1, (10,)), at(2, (10, 11)))
    assert log.between(S, 2 * S, [10, 11]).contended is False
    assert log.between(S, 2 * S, [10]).contended is True


def test_processes_that_cannot_be_told_from_ours_are_no_answer():
    log = log_of(at(1, (4001, 4002)), at(2, (4001,)))
    assert log.between(S, 2 * S, [10]).contended is None
    assert log.between(S, 2 * S, []).contended is True
    assert log_of(at(1, ())).between(S, 2 * S, [10]).contended is False


def test_a_neighbour_that_sits_idle_is_no_contention():
    log = log_of(at(1, (10, 99)), at(2, (10, 99)))
    assert log.between(S, 2 * S, [10], busy_pids=[10]).contended is False
    assert log.between(S, 2 * S, [10], busy_pids=[10, 99]).contended is True
    assert log.between(S, 2 * S, [4], busy_pids=[]).contended is False
    assert log.between(S, 2 * S, [4], busy_pids=[10]).contended is None


def test_a_process_outside_the_window_is_no_contention():
    log = log_of(at(1, (99,)), at(2, (10,)), at(3, (99,)))
    assert log.between(2 * S, 2 * S, [10]).contended is False


def test_throttled_time_is_power_and_heat_over_the_samples_inside():
    log = log_of(at(0, (), 0, 0), at(1, (), 5, 0), at(3, (), 5.1, 0.2), at(9, (), 9, 9))
    assert log.between(S, 4 * S, []).throttled_pct == pytest.approx(15)


def test_throttled_time_is_at_most_all_of_it():
    log = log_of(at(1, (), 0, 0), at(2, (), 1, 1))
    assert log.between(0, 9 * S, []).throttled_pct == 100


def test_a_throttle_counter_that_fell_back_says_nothing():
    log = log_of(at(1, (), 50, 0), at(2, (), 0, 0))
    assert log.between(0, 9 * S, []).throttled_pct is None


def test_what_cannot_be_told_is_none():
    assert ActivityLog().between(0, S, []) == UNKNOWN
    assert log_of(at(1), at(2)).between(0, 9 * S, []) == UNKNOWN
    assert log_of(at(1, (), 0, 0)).between(0, 9 * S, []) == Activity(False, None)
