"""What a probe waits for: load of other processes, and other probes of the device."""

import threading

from costprobe.adapters.probe_child.runner import device_lock
from costprobe.adapters.sensors.messages import Activity
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.core.records import Device
from costprobe.probing.run import Measurer, ProbeTarget, is_busy
from costprobe.probing.settings import ProbeConfig
from fakes.clock import FakeClock


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


def test_a_run_that_is_ended_while_another_uses_the_device_has_no_fault(tmp_path):
    stop, target = threading.Event(), ProbeTarget((Device("gpu0", "gpu", "GPU-1", "a GPU"),))
    measurer = Measurer(None, MemoryLedger(), tmp_path, stop, FakeClock().monotonic_ns)
    for is_ended, kind in ((False, "busy"), (True, "cancelled")):
        probe = ProbeConfig(name="e", every="30s" if is_ended else "1s")
        threading.Timer(0.1, stop.set if is_ended else int).start()
        with device_lock(tmp_path, "gpu0", threading.Event(), 1.0):
            outcome = measurer.run(probe, target, energy=False, on_progress=print)
        assert outcome.kind == kind
