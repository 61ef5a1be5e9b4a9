"""What readings add up to between any two instants, and what a hole makes unknown."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.daemon.device_log import DeviceLog
from agent.model import NS_PER_S, Reading

S = NS_PER_S


def reading(start_s, end_s, device="gpu0", by_pid=None, **fields):
    return Reading(device, int(start_s * S), int(end_s * S), fields, by_pid)


def log_of(*readings):
    log = DeviceLog(300)
    for each in readings:
        log.take(each)
    return log


def test_a_window_takes_its_part_of_the_readings_at_its_edges():
    log = log_of(
        reading(100, 110, energy_j=1000.0, util_pct=50.0),
        reading(110, 120, energy_j=3000.0, util_pct=100.0),
    )
    assert log.energy_j("gpu0", 105 * S, 115 * S) == pytest.approx(500 + 1500)
    assert log.busy_s("gpu0", 105 * S, 115 * S) == pytest.approx(2.5 + 5)
    assert log.seen_ns("gpu0") == 120 * S
    assert log.energy_j("gpu0", 115 * S, 115 * S) == 0


@given(
    st.lists(st.floats(1, 20), min_size=1, max_size=20),
    st.lists(st.floats(0, 1), max_size=6),
)
def test_windows_that_follow_each_other_add_up(lengths_s, cuts):
    log, t_ns = DeviceLog(1000), 10 * S
    for i, length_s in enumerate(lengths_s):
        end_ns = t_ns + int(length_s * S)
        log.take(Reading("gpu0", t_ns, end_ns, {"energy_j": 10.0 * (i + 1)}))
        t_ns = end_ns
    edges = sorted({10 * S, t_ns, *(10 * S + int(cut * (t_ns - 10 * S)) for cut in cuts)})
    parts = [log.energy_j("gpu0", a, b) for a, b in pairwise(edges)]
    assert sum(parts) == pytest.approx(log.energy_j("gpu0", 10 * S, t_ns))
    assert sum(parts) == pytest.approx(sum(10.0 * (i + 1) for i in range(len(lengths_s))))


def test_a_short_hole_is_bridged_and_a_long_one_is_not_known():
    short = log_of(reading(100, 110, energy_j=1000.0), reading(112, 122, energy_j=2000.0))
    # A second at 100 W and one at 200 W in the hole.
    assert short.energy_j("gpu0", 100 * S, 122 * S) == pytest.approx(3300.0)
    long = log_of(reading(100, 110, energy_j=1000.0), reading(114, 124, energy_j=2000.0))
    assert long.energy_j("gpu0", 100 * S, 124 * S) is None
    assert long.energy_j("gpu0", 100 * S, 110 * S) == pytest.approx(1000.0)
    assert long.energy_j("gpu0", 114 * S, 124 * S) == pytest.approx(2000.0)


def test_the_edges_reach_a_little_beyond_the_readings_and_no_further():
    log = log_of(reading(100, 110, energy_j=1000.0))
    assert log.energy_j("gpu0", 98 * S, 110 * S) == pytest.approx(1200.0)
    assert log.energy_j("gpu0", 96 * S, 110 * S) is None
    assert log.energy_j("gpu0", 100 * S, 114 * S) is None
    assert log.energy_j("gpu1", 100 * S, 110 * S) is None


def test_what_one_reading_does_not_tell_is_not_known_of_a_window_that_holds_it():
    log = log_of(
        reading(100, 110, energy_j=1000.0, by_pid={7: 4.0}),
        reading(110, 120, by_pid={7: 2.0, 8: 1.0}),
        reading(120, 130, energy_j=1000.0),
    )
    assert log.energy_j("gpu0", 100 * S, 120 * S) is None
    assert log.energy_j("gpu0", 100 * S, 110 * S) == 1000.0
    assert log.busy_s("gpu0", 100 * S, 110 * S) is None
    assert log.busy_by_pid_s("gpu0", 105 * S, 120 * S) == pytest.approx({7: 4.0, 8: 1.0})
    assert log.busy_by_pid_s("gpu0", 105 * S, 125 * S) is None


def test_old_readings_go_and_none_counts_twice():
    log = DeviceLog(10)
    for start_s in range(0, 5000, 10):
        log.take(reading(start_s, start_s + 10, energy_j=100.0))
    log.take(reading(4990, 5000, energy_j=100.0))
    assert log.energy_j("gpu0", 0, 10 * S) is None
    assert log.energy_j("gpu0", 4900 * S, 5000 * S) == pytest.approx(1000.0)


def test_idle_power_is_learnt_from_readings_in_which_nothing_ran():
    log = log_of(*(reading(t, t + 10, util_pct=0.0, power_w=60.0) for t in range(0, 90, 10)))
    assert log.idle_power_w("gpu0") is None
    log.take(reading(90, 100, util_pct=80.0, power_w=400.0))
    assert log.idle_power_w("gpu0") is None
    log.take(reading(100, 110, util_pct=0.0, power_w=60.0))
    assert log.idle_power_w("gpu0") == 60.0
