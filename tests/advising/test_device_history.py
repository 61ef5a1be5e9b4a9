"""Telemetry folded into hours."""

import pytest
from fakes.past import MONDAY, terms

from agent.advising.device_history import HOUR_NS, MINUTE_NS, DeviceHistory
from agent.model import Device

S = 10**9
START_NS = MONDAY * HOUR_NS
DEVICE = Device("gpu0", "gpu", "uuid", "NVIDIA A100-SXM4-40GB")


def history(hours=2, probe_ends_ns=()):
    return DeviceHistory(DEVICE, terms(), START_NS + hours * HOUR_NS, probe_ends_ns)


def minutes(count, first=0):
    """A row in the middle of each minute."""
    return [START_NS + (first + i) * MINUTE_NS + 30 * S for i in range(count)]


def test_an_hour_is_known_from_half_of_its_minutes():
    past = history()
    past.add_utilization(minutes(30), [40.0] * 30)
    past.add_utilization(minutes(29, first=60), [100.0] * 29)
    assert set(past.known_hours) == {MONDAY}
    assert (past.busy_share, past.up_share, past.span_hours) == (0.4, 0.5, 2)
    assert past.known_days == past.busy_days == pytest.approx(1 / 24)


def test_a_row_that_stands_for_an_hour_is_an_hour():
    past = history()
    past.add_utilization([START_NS, START_NS + HOUR_NS], [10.0, 30.0])
    assert (past.busy_share, past.up_share) == (0.2, 1.0)


def test_what_a_probe_does_is_not_the_devices_work():
    ends_ns = START_NS + 10 * MINUTE_NS + 30 * S
    past = history(1, [ends_ns])
    times = [ends_ns - 61 * S, ends_ns - 60 * S, ends_ns, ends_ns + 15 * S, ends_ns + 16 * S]
    past.add_utilization(times, [1.0, 100.0, 100.0, 100.0, 3.0])
    past.add_memory(times, [1.0, 9.0, 9.0, 9.0, 2.0])
    past.add_power(times, [50.0, 400.0, 400.0, 400.0, 70.0])
    past.add_utilization(minutes(40, first=20), [2.0] * 40)
    hour = past.hours[MONDAY]
    assert (hour.util_rows, hour.util_pct) == (42, 2.0)
    assert (hour.power_w_sum, hour.power_rows) == (120.0, 2)
    assert past.mem_used_bytes_max == 2.0
    assert past.util_pct_peak == 3


def test_the_peak_leaves_out_one_row_in_a_hundred():
    past = history(10)
    past.add_utilization(minutes(200), [20.0] * 150 + [33.2] * 48 + [100.0] * 2)
    assert past.util_pct_peak == 34
    assert history().util_pct_peak is None


def test_requests_count_in_every_hour_that_a_window_touches():
    past = history(3)
    past.add_service(START_NS + HOUR_NS // 2, START_NS + HOUR_NS, 5.0, is_complete=True)
    past.add_service(START_NS + HOUR_NS, START_NS + 2 * HOUR_NS + 1, None, is_complete=True)
    past.add_service(START_NS, START_NS + 1, 0.0, is_complete=False)
    asked = {n - MONDAY: (hour.requests, hour.is_doubtful) for n, hour in past.hours.items()}
    assert asked == {0: (5.0, True), 1: (0.0, True), 2: (0.0, True)}
    # No telemetry: these hours say nothing of the device.
    assert (past.known_hours, past.busy_share, past.up_share) == ({}, None, 0.0)
