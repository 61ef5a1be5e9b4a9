"""The conditions of a device in a window, by hand, from samples of the seconds around it."""

from dataclasses import asdict

import pytest
from costprobe.adapters.sensors.messages import UNKNOWN, Activity, Sample, activity_between

S = 10**9


def at(t_s, pids=None, power_s=None, thermal_s=None, **metrics):
    throttled = {"throttle_power_s": power_s, "throttle_thermal_s": thermal_s}
    return Sample(t_ns=int(t_s * S), pids=pids, **throttled, **metrics)


def running(t_s, clock_mhz, temp_c=60.0, used_bytes=None, pids=(10,), **metrics):
    memory = {"mem_used_bytes": used_bytes, "mem_total_bytes": 80}
    return at(t_s, pids, sm_clock_mhz=clock_mhz, temp_c=temp_c, **memory, **metrics)


def between(log, start_s, end_s, own_pids=(10,), **more):
    return activity_between(log, int(start_s * S), int(end_s * S), own_pids, **more)


def test_other_processes_contend_if_they_take_time_or_may():
    own_and_other, foreign = [(10,), (10, 99)], [(4001, 4002), (4001,)]
    busy = {10: 90.0, 99: 2.0, 98: 2.0}
    wrong = []
    for pids, own, util_pct, expected in (
        (own_and_other, [10, 99], None, False),
        (own_and_other, [10], None, True),
        # Without a process that is known as its own, in a container with numbers of its own.
        (foreign, [10], None, None),
        (foreign, [], None, True),
        ([()], [10], None, False),
        # A desktop beside the probe is no contention; several small neighbours together are.
        (own_and_other, [10], {10: 90.0}, False),
        (own_and_other, [10], busy, False),
        (own_and_other, [10], {**busy, 97: 1.0}, True),
        (own_and_other, [4], {}, False),
        (own_and_other, [4], {10: 90.0}, None),
    ):
        log = [at(second, seen) for second, seen in enumerate(pids, 1)]
        found = between(log, 1, 2, own, util_pct=util_pct).contended
        if found is not expected:
            wrong.append((pids, own, util_pct, found))
    assert wrong == []
    log = [at(1, (99,)), at(2, (10,)), at(3, (10, 99))]
    assert (between(log, 1, 2).is_open, between(log, 1, 3, util_pct={}).is_open) == (False, True)


def test_quick_samples_count_for_utilization_only():
    quick = [
        Sample(t_s * S, util_pct=util_pct, sm_clock_mhz=1000.0, is_quick=True)
        for t_s, util_pct in ((8, 20.0), (9, 40.0))
    ]
    log = [*quick, at(10, (99,), util_pct=40.0)]
    activity = between(log, 8, 9.5, [])
    assert activity.util_pct == pytest.approx(35, abs=3)
    # The only sample with processes was taken just after the window.
    assert activity.contended is True
    assert between(log, 8, 8, []).contended is None


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
        activity = between(log, 1, 4, [])
        shares = activity.throttled_power_pct, activity.throttled_thermal_pct
        assert (activity.throttled_pct, *shares) == pytest.approx(expected)


def test_unknown_conditions_are_none():
    assert between([], 0, 1, []) == UNKNOWN
    assert between([at(1), at(2)], 0, 9, []) == UNKNOWN
    assert between([at(1, (), 0, 0)], 0, 9, []) == Activity(False, is_open=False)


def test_conditions_are_those_of_the_time_of_the_window():
    hot = running(2, 1400, temp_c=80.0, thermal_s=10.5, ecc_uncorrected=2)
    ended = running(2, 300, temp_c=90.0, used_bytes=4, pids=(), thermal_s=0.2)
    cases = {
        # 1 s at 1000 MHz before the first sample inside and at it, then a line to 2000 MHz in 3 s.
        "mean clock": (
            [running(0, 9000), running(2, 1000), running(5, 2000), running(9, 9000)],
            (1, 5),
            {"sm_clock_mhz": (1 * 1000 + 3 * 1500) / 4},
        ),
        "highest temperature, mean memory, last errors": (
            [
                running(1, 1500, temp_c=95.0, used_bytes=80, ecc_uncorrected=0),
                running(2, 1500, temp_c=60.0, used_bytes=20, ecc_uncorrected=1),
                running(3, 1500, temp_c=71.0, used_bytes=40, ecc_uncorrected=4),
                running(4, 1500, temp_c=90.0, used_bytes=80, ecc_uncorrected=9),
            ],
            (2, 3),
            {"temp_max_c": 71.0, "mem_used_pct": (25 + 50) / 2, "ecc_uncorrected": 4},
        ),
        "no sample inside: those around it": (
            [
                running(0, 1000, thermal_s=0.0),
                running(1, 1000, thermal_s=10.0),
                hot,
                running(3, 9000, temp_c=99.0, thermal_s=11.5),
            ],
            (1.25, 1.75),
            {"throttled_thermal_pct": 50, "sm_clock_mhz": 1200, "temp_max_c": 80.0}
            | {"ecc_uncorrected": 2, "contended": False},
        ),
        "one sample inside: with the two around it": (
            [running(t, mhz, thermal_s=t / 2) for t, mhz in ((1, 1000), (2, 2000), (3, 1000))],
            (1.5, 2.5),
            {"throttled_thermal_pct": 50, "sm_clock_mhz": 1750},
        ),
        "samples too far away": ([running(1, 1000), running(5, 1000)], (2.9, 3.1), asdict(UNKNOWN)),
        # Memory and clock after the probe ended are no conditions of its window.
        "sample after the probe": (
            [running(1, 1900, used_bytes=60, thermal_s=0.0), ended],
            (1.4, 1.6),
            {"sm_clock_mhz": 1900, "temp_max_c": 60.0, "mem_used_pct": 75}
            | {"throttled_thermal_pct": 20},
        ),
    }
    wrong = {}
    for name, (log, window, expected) in cases.items():
        activity = between(log, *window)
        found = {field: getattr(activity, field) for field in expected}
        if found != pytest.approx(expected):
            wrong[name] = found
    assert wrong == {}
    assert between([running(1, 1000)], 2.9, 3.1, every_ns=2 * S).sm_clock_mhz == 1000
    # In a container the driver's numbers are not ours: every sample counts.
    log, window, _ = cases["sample after the probe"]
    assert between(log, *window, [77]).sm_clock_mhz == pytest.approx(1100)
