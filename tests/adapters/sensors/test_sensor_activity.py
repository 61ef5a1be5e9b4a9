import pytest
from costprobe.adapters.sensors.messages import UNKNOWN, Activity, Sample, activity_between
from hypothesis import given
from hypothesis import strategies as st

S = 10**9


def log_of(*samples):
    return samples


def at(t_s, pids=None, power_s=None, thermal_s=None, **metrics):
    throttled = {"throttle_power_s": power_s, "throttle_thermal_s": thermal_s}
    return Sample(t_ns=int(t_s * S), pids=pids, **throttled, **metrics)


def running(t_s, clock_mhz, temp_c=60.0, used_bytes=None, pids=(10,), **metrics):
    memory = {"mem_used_bytes": used_bytes, "mem_total_bytes": 80}
    return at(t_s, pids, sm_clock_mhz=clock_mhz, temp_c=temp_c, **memory, **metrics)


def test_own_processes_are_not_contention():
    log = log_of(at(1, (10,)), at(2, (10, 11)))
    assert activity_between(log, S, 2 * S, [10, 11]).contended is False
    assert activity_between(log, S, 2 * S, [10]).contended is True


def test_contention_is_unknown_if_own_processes_are_not_recognized():
    log = log_of(at(1, (4001, 4002)), at(2, (4001,)))
    assert activity_between(log, S, 2 * S, [10]).contended is None
    assert activity_between(log, S, 2 * S, []).contended is True
    assert activity_between([at(1, ())], S, 2 * S, [10]).contended is False


def test_idle_process_of_others_is_no_contention():
    log = log_of(at(1, (10, 99)), at(2, (10, 99)))
    assert activity_between(log, S, 2 * S, [10], util_pct={10: 90.0}).contended is False
    # A desktop beside the probe is no contention; several small neighbours together are.
    busy = {10: 90.0, 99: 2.0, 98: 2.0}
    assert activity_between(log, S, 2 * S, [10], util_pct=busy).contended is False
    assert activity_between(log, S, 2 * S, [10], util_pct={**busy, 97: 1.0}).contended is True
    assert activity_between(log, S, 2 * S, [4], util_pct={}).contended is False
    assert activity_between(log, S, 2 * S, [4], util_pct={10: 90.0}).contended is None


def test_quick_samples_count_for_utilization_only():
    def quick(t_s, util_pct):
        return Sample(t_ns=int(t_s * S), util_pct=util_pct, sm_clock_mhz=1000.0, is_quick=True)

    log = log_of(quick(8, 20.0), quick(9, 40.0), at(10, (99,), util_pct=40.0))
    activity = activity_between(log, 8 * S, int(9.5 * S), [])
    assert activity.util_pct == pytest.approx(35, abs=3)
    # The only sample with processes was taken just after the window.
    assert activity.contended is True
    assert activity_between(log, 8 * S, 8 * S, []).contended is None


def test_device_is_open_if_another_process_has_it_at_the_end_though_idle():
    log = log_of(at(1, (99,)), at(2, (10,)), at(3, (10, 99)))
    assert activity_between(log, S, 2 * S, [10]).is_open is False
    assert activity_between(log, S, 3 * S, [10], {}).is_open is True


def test_throttled_share_is_that_of_power_and_temperature():
    # Totals at 0, 1, 3 and 9 s, and the shares from 1 s to 4 s: of both, power, temperature.
    for power_s, thermal_s, expected in (
        ((0, 5, 5.1, 9), (0, 0, 0.2, 9), (15, 5, 10)),
        ((0, 0, 2, 2), (0, 0, 2, 2), (100, 100, 100)),
        ((None,) * 4, (0, 0, 0.5, 9), (None, None, 25)),
        ((0, 50, 0, 0), (0, 0, 0, 0), (None, None, 0)),
    ):
        times_s = (0, 1, 3, 9)
        log = [at(t, (), *totals) for t, *totals in zip(times_s, power_s, thermal_s, strict=True)]
        activity = activity_between(log, S, 4 * S, [])
        shares = activity.throttled_power_pct, activity.throttled_thermal_pct
        assert (activity.throttled_pct, *shares) == pytest.approx(expected)


def test_unknown_conditions_are_none():
    assert activity_between([], 0, S, []) == UNKNOWN
    assert activity_between([at(1), at(2)], 0, 9 * S, []) == UNKNOWN
    assert activity_between([at(1, (), 0, 0)], 0, 9 * S, []) == Activity(False, is_open=False)


def test_sm_clock_is_the_time_weighted_mean_of_the_window():
    # 1 s at 1000 MHz before the first sample inside and at it, then a line to 2000 MHz in 3 s.
    log = log_of(running(0, 9000), running(2, 1000), running(5, 2000), running(9, 9000))
    activity = activity_between(log, S, 5 * S, [10])
    assert activity.sm_clock_mhz == pytest.approx((1 * 1000 + 3 * 1500) / 4)


def test_window_has_highest_temperature_mean_memory_and_last_error_count():
    log = log_of(
        running(1, 1500, temp_c=95.0, used_bytes=80, ecc_uncorrected=0),
        running(2, 1500, temp_c=60.0, used_bytes=20, ecc_uncorrected=1),
        running(3, 1500, temp_c=71.0, used_bytes=40, ecc_uncorrected=4),
        running(4, 1500, temp_c=90.0, used_bytes=80, ecc_uncorrected=9),
    )
    activity = activity_between(log, 2 * S, 3 * S, [10])
    assert activity.temp_max_c == 71.0
    assert activity.mem_used_pct == pytest.approx((25 + 50) / 2)
    assert activity.ecc_uncorrected == 4


def test_short_window_uses_the_samples_around_it():
    log = log_of(
        running(0, 1000, thermal_s=0.0),
        running(1, 1000, thermal_s=10.0),
        running(2, 1400, temp_c=80.0, thermal_s=10.5, ecc_uncorrected=2),
        running(3, 9000, temp_c=99.0, thermal_s=11.5),
    )
    activity = activity_between(log, int(1.25 * S), int(1.75 * S), [10])
    assert activity.throttled_thermal_pct == pytest.approx(50)
    assert activity.sm_clock_mhz == pytest.approx(1200)
    assert (activity.temp_max_c, activity.ecc_uncorrected) == (80.0, 2)
    assert activity.contended is False


def test_window_with_one_sample_uses_it_and_the_two_around_it():
    log = log_of(
        running(1, 1000, thermal_s=0.0),
        running(2, 2000, thermal_s=0.5),
        running(3, 1000, thermal_s=1.0),
    )
    activity = activity_between(log, int(1.5 * S), int(2.5 * S), [10])
    assert activity.throttled_thermal_pct == pytest.approx(50)
    assert activity.sm_clock_mhz == pytest.approx(1750)


def test_samples_too_far_from_a_short_window_are_ignored():
    log = log_of(running(1, 1000), running(5, 1000))
    assert activity_between(log, int(2.9 * S), int(3.1 * S), [10]) == UNKNOWN
    slower = activity_between(log[:1], int(2.9 * S), int(3.1 * S), [10], every_ns=2 * S)
    assert slower.sm_clock_mhz == 1000


def test_sample_after_the_probe_ended_is_ignored_for_clock_and_memory():
    log = log_of(
        running(1, 1900, used_bytes=60, thermal_s=0.0),
        running(2, 300, temp_c=90.0, used_bytes=4, pids=(), thermal_s=0.2),
    )
    activity = activity_between(log, int(1.4 * S), int(1.6 * S), [10])
    assert (activity.sm_clock_mhz, activity.temp_max_c) == (1900, 60.0)
    assert activity.mem_used_pct == pytest.approx(75)
    assert activity.throttled_thermal_pct == pytest.approx(20)
    # In a container the driver's numbers are not ours: every sample counts.
    assert activity_between(log, int(1.4 * S), int(1.6 * S), [77]).sm_clock_mhz == pytest.approx(
        1100
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.floats(1, 3000)), max_size=20, unique_by=lambda p: p[0]
    ),
    st.integers(0, 60),
    st.integers(0, 20),
)
def test_mean_clock_is_within_the_range_of_the_samples(points, start_s, length_s):
    log = log_of(*(running(t_s, clock_mhz) for t_s, clock_mhz in sorted(points)))
    mean_mhz = activity_between(log, start_s * S, (start_s + length_s) * S, [10]).sm_clock_mhz
    if mean_mhz is not None:
        clocks = [clock_mhz for _, clock_mhz in points]
        assert min(clocks) * (1 - 1e-9) <= mean_mhz <= max(clocks) * (1 + 1e-9)
