"""Which load of other processes a probe waits for."""

import pytest
from costprobe.adapters.probe_child.runner import DeviceLoad, is_busy


@pytest.mark.parametrize(
    ("load", "above", "busy"),
    [
        (DeviceLoad(0.0, has_processes=False), 0.1, False),
        (DeviceLoad(80.0, has_processes=True), 0.1, True),
        (DeviceLoad(10.0, has_processes=True), 0.1, False),
        (DeviceLoad(10.1, has_processes=True), 0.1, True),
        # An idle server that holds memory may stay for months: a probe does not wait for it.
        (DeviceLoad(0.0, has_processes=True), 0.1, False),
        # A MIG device: the driver reports its processes, but no utilization.
        (DeviceLoad(None, has_processes=True), 0.1, True),
        (DeviceLoad(None, has_processes=False), 0.1, False),
        (DeviceLoad(None, has_processes=None), 0.1, False),
        (DeviceLoad(40.0, has_processes=None), 0.5, False),
        (DeviceLoad(60.0, has_processes=None), 0.5, True),
    ],
)
def test_busy_follows_utilization_or_else_processes(load, above, busy):
    assert is_busy(load, above) is busy
