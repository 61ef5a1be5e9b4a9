"""A driver call that hangs is found; one that was stopped with its process is not taken for it."""

from types import SimpleNamespace

from costprobe.adapters.sensors.child.device_thread import DriverVisit
from costprobe.adapters.sensors.child.main import HangWatch
from costprobe.core.records import NS_PER_S
from fakes.clock import FakeClock

EVERY_S = 1.25
DEADLINE_S = 5


def looks(clock, watch, worker, seconds):
    """What the looks of this time find."""
    found = []
    for _ in range(int(seconds / EVERY_S)):
        clock.move(EVERY_S)
        found.append(watch.hung([worker]))
    return [hung for several in found for hung in several]


def in_a_call(clock, deadline_s=DEADLINE_S):
    now_ns = clock.monotonic_ns()
    sensor = SimpleNamespace(name="gpu0", call="nvmlDeviceGetName")
    return SimpleNamespace(visit=DriverVisit(now_ns, deadline_s * NS_PER_S), sensor=sensor)


def test_call_beyond_its_deadline_hangs():
    clock = FakeClock()
    watch, worker = HangWatch(clock, EVERY_S), in_a_call(clock)
    assert looks(clock, watch, worker, DEADLINE_S) == []
    (device, fault), *_ = looks(clock, watch, worker, 5)
    assert (device, fault.code, fault.call) == ("gpu0", "DEADLINE", "nvmlDeviceGetName")


def test_stop_of_the_process_is_no_hang_of_its_calls():
    clock = FakeClock()
    watch, worker = HangWatch(clock, EVERY_S), in_a_call(clock)
    assert looks(clock, watch, worker, 2.5) == []
    clock.move(3600)
    assert looks(clock, watch, worker, 2.5) == []
    # The same call hangs, if it does not return within its time from then on.
    assert looks(clock, watch, worker, 5) != []
    later = in_a_call(clock)
    assert looks(clock, watch, later, DEADLINE_S) == []
    assert looks(clock, watch, later, 5) != []
