"""The sensor child by itself: its commands, its packages, and whether it reads the processors."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from costprobe.adapters.sensors.child.cpu import CpuSensor, cpu_sensors
from costprobe.adapters.sensors.child.device_thread import DriverVisit
from costprobe.adapters.sensors.child.main import HangWatch
from costprobe.adapters.sensors.child.sensor import SensorContext
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S
from fakes.clock import FakeClock
from fakes.sensing import sensor_settings


def test_processors_are_read_beside_gpus_only_if_configured():
    cpu_sensor = CpuSensor(Path("/"), SystemClock(), lambda *_: None)
    for cpu, others, expected in (
        ("auto", [], 1),
        ("auto", [cpu_sensor], 0),
        (True, [cpu_sensor], 1),
        (False, [], 0),
    ):
        context = SensorContext(sensor_settings(cpu=cpu), SystemClock(), lambda *_: None, others)
        assert len(cpu_sensors(context)) == expected, (cpu, len(others))


def test_child_loads_no_large_package(request):
    code = (
        "import sys, costprobe.adapters.sensors.child.main\n"
        "big = {'torch', 'numpy', 'pydantic', 'apscheduler', 'asyncio', 'sqlite3', 'click'}\n"
        "print(sorted(big & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", code]
    root = request.config.rootpath
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


EVERY_S, DEADLINE_S = 1.25, 5


def looks(clock, watch, worker, seconds):
    """What the looks of this time find."""
    found = []
    for _ in range(int(seconds / EVERY_S)):
        clock.move(EVERY_S)
        found += watch.hung([worker])
    return found


def in_a_call(clock, call="nvmlDeviceGetName"):
    visit = DriverVisit(clock.monotonic_ns(), DEADLINE_S * NS_PER_S)
    return SimpleNamespace(visit=visit, sensor=SimpleNamespace(name="gpu0", call=call))


def test_call_beyond_its_deadline_hangs():
    clock = FakeClock()
    watch, worker = HangWatch(clock, EVERY_S), in_a_call(clock)
    assert looks(clock, watch, worker, DEADLINE_S) == []
    (device, fault), *_ = looks(clock, watch, worker, 5)
    assert (device, fault.code, fault.call) == ("gpu0", "DEADLINE", "nvmlDeviceGetName")
    assert fault.detail.endswith("`dmesg` may show why (Xid messages)")
    _, other = looks(clock, watch, in_a_call(clock, call="amdsmi_get_power_info"), 10)[-1]
    assert other.detail.endswith("`dmesg` may show why")


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
