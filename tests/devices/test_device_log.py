"""Sums of readings between two instants, and values that a gap makes unknown."""

from itertools import pairwise

import pytest
from costprobe.core.records import NS_PER_S, Reading
from costprobe.devices.use import DeviceLog
from hypothesis import given
from hypothesis import strategies as st

S = NS_PER_S


def reading(start_s, end_s, device="gpu0", by_pid=None, **fields):
    return Reading(device, int(start_s * S), int(end_s * S), fields, by_pid)


def log_of(*readings):
    log = DeviceLog(300)
    for each in readings:
        log.record(each)
    return log


@given(
    st.lists(st.floats(1, 20), min_size=1, max_size=20),
    st.lists(st.floats(0, 1), max_size=6),
)
def test_contiguous_windows_sum_to_the_whole(lengths_s, cuts):
    log, t_ns = DeviceLog(1000), 10 * S
    for i, length_s in enumerate(lengths_s):
        end_ns = t_ns + int(length_s * S)
        log.record(Reading("gpu0", t_ns, end_ns, {"energy_j": 10.0 * (i + 1)}))
        t_ns = end_ns
    edges = sorted({10 * S, t_ns, *(10 * S + int(cut * (t_ns - 10 * S)) for cut in cuts)})
    parts = [log.energy_j("gpu0", a, b) for a, b in pairwise(edges)]
    assert sum(parts) == pytest.approx(log.energy_j("gpu0", 10 * S, t_ns))
    assert sum(parts) == pytest.approx(sum(10.0 * (i + 1) for i in range(len(lengths_s))))


def test_short_gap_is_bridged_and_a_long_one_is_unknown():
    short = log_of(reading(100, 110, energy_j=1000.0), reading(112, 122, energy_j=2000.0))
    # One second at 100 W and one at 200 W in the gap.
    assert short.energy_j("gpu0", 100 * S, 122 * S) == pytest.approx(3300.0)
    # At the first and the last edge, too.
    assert short.energy_j("gpu0", 98 * S, 124 * S) == pytest.approx(3300.0 + 200 + 400)
    assert short.energy_j("gpu0", 96 * S, 122 * S) is short.energy_j("gpu0", 100 * S, 126 * S)
    long = log_of(reading(100, 110, energy_j=1000.0), reading(114, 124, energy_j=2000.0))
    assert long.energy_j("gpu0", 100 * S, 124 * S) is None
    assert long.energy_j("gpu0", 100 * S, 110 * S) == pytest.approx(1000.0)
    assert long.energy_j("gpu0", 114 * S, 124 * S) == pytest.approx(2000.0)


def test_value_missing_in_one_reading_is_unknown_for_the_window():
    log = log_of(
        reading(100, 110, energy_j=1000.0, util_pct=50.0, by_pid={7: 4.0}),
        reading(110, 120, by_pid={7: 2.0, 8: 1.0}),
        reading(120, 130, energy_j=1000.0),
    )
    assert log.energy_j("gpu0", 100 * S, 120 * S) is None
    assert log.energy_j("gpu0", 105 * S, 110 * S) == 500.0
    assert log.energy_j("gpu1", 105 * S, 110 * S) is None
    assert log.busy_s("gpu0", 105 * S, 110 * S) == pytest.approx(2.5)
    assert log.busy_s("gpu0", 105 * S, 115 * S) is None
    assert log.busy_by_pid_s("gpu0", 105 * S, 120 * S) == pytest.approx({7: 4.0, 8: 1.0})
    assert log.busy_by_pid_s("gpu0", 105 * S, 125 * S) is None


def test_old_readings_are_dropped_and_none_counts_twice():
    log = DeviceLog(10)
    for start_s in range(0, 5000, 10):
        log.record(reading(start_s, start_s + 10, energy_j=100.0))
    log.record(reading(4990, 5000, energy_j=100.0))
    assert log.energy_j("gpu0", 0, 10 * S) is None
    assert log.energy_j("gpu0", 4900 * S, 5000 * S) == pytest.approx(1000.0)


def test_idle_power_is_estimated_from_idle_readings():
    log = log_of(*(reading(t, t + 10, util_pct=0.0, power_w=60.0) for t in range(0, 90, 10)))
    assert log.idle_power_w("gpu0") is None
    log.record(reading(90, 100, util_pct=80.0, power_w=400.0))
    assert log.idle_power_w("gpu0") is None
    log.record(reading(100, 110, util_pct=0.0, power_w=60.0))
    assert log.idle_power_w("gpu0") == 60.0
