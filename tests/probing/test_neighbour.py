"""Which load of other processes a probe waits for."""

from costprobe.adapters.sensors.messages import Activity
from costprobe.probing.run import is_busy


def test_busy_follows_utilization_or_else_processes():
    wrong = []
    for contended, util_pct, above, busy in (
        (False, 0.0, 0.1, False),
        (True, 80.0, 0.1, True),
        (True, 10.0, 0.1, False),
        (True, 10.1, 0.1, True),
        # An idle server that holds memory may stay for months: a probe does not wait for it.
        (True, 0.0, 0.1, False),
        # A MIG device: the driver reports its processes, but no utilization.
        (True, None, 0.1, True),
        (False, None, 0.1, False),
        (None, None, 0.1, False),
        (None, 40.0, 0.5, False),
        (None, 60.0, 0.5, True),
    ):
        load = Activity(contended=contended, util_pct=util_pct)
        wrong += [] if is_busy(load, above) is busy else [(load, above)]
    assert wrong == []
