"""Which load of other processes a probe waits for."""

import pytest
from costprobe.adapters.sensors.messages import Activity
from costprobe.probing.run import is_busy


@pytest.mark.parametrize(
    ("load", "above", "busy"),
    [
        (Activity(contended=False, util_pct=0.0), 0.1, False),
        (Activity(contended=True, util_pct=80.0), 0.1, True),
        (Activity(contended=True, util_pct=10.0), 0.1, False),
        (Activity(contended=True, util_pct=10.1), 0.1, True),
        # An idle server that holds memory may stay for months: a probe does not wait for it.
        (Activity(contended=True, util_pct=0.0), 0.1, False),
        # A MIG device: the driver reports its processes, but no utilization.
        (Activity(contended=True, util_pct=None), 0.1, True),
        (Activity(contended=False, util_pct=None), 0.1, False),
        (Activity(contended=None, util_pct=None), 0.1, False),
        (Activity(contended=None, util_pct=40.0), 0.5, False),
        (Activity(contended=None, util_pct=60.0), 0.5, True),
    ],
)
def test_busy_follows_utilization_or_else_processes(load, above, busy):
    assert is_busy(load, above) is busy
