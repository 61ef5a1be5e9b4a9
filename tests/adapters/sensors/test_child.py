"""The sensor child by itself: its commands, its packages, and whether it reads the processors."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

from adapters.sensors.conftest import NO_DRIVER
from costprobe.adapters.sensors.child.cpu import CpuSensor, cpu_sensors
from costprobe.adapters.sensors.child.device_thread import DriverVisit
from costprobe.adapters.sensors.child.main import HangWatch
from costprobe.adapters.sensors.child.sensor import SensorContext
from costprobe.adapters.sensors.supervisor import CHILD_COMMAND
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S
from fakes.clock import FakeClock
from fakes.sensing import sensor_settings


def test_processors_are_read_beside_gpus_only_if_configured():
    found = [CpuSensor(Path("/"), SystemClock(), lambda *_: None)]
    wrong = []
    for cpu, others, expected in (
        ("auto", [], 1),
        ("auto", found, 0),
        (True, found, 1),
        (False, [], 0),
    ):
        context = SensorContext(sensor_settings(cpu=cpu), SystemClock(), lambda *_: None, others)
        if len(cpu_sensors(context)) != expected:
            wrong.append((cpu, len(others)))
    assert wrong == []


def test_malformed_commands_are_ignored():
    settings = asdict(sensor_settings(cpu=True, gpus=False))
    lines = [
        json.dumps({"settings": settings, "quarantined_s": {}}),
        "nonsense",
        "x" * 100_000,
        '{"cmd":"energy"}',
        '{"cmd":"dance"}',
        '{"cmd":"mark","device":"gpu9"}',
        '{"cmd":"stop"}\n',
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        CHILD_COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=NO_DRIVER
    ) as child:
        child.stdin.write("\n".join(lines))
        child.stdin.flush()
        last = json.loads(child.stdout.read().splitlines()[-1])
        assert (last["type"], last["reason"], child.stderr.read()) == ("exit", "stop", "")


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


EVERY_S = 1.25
DEADLINE_S = 5


def looks(clock, watch, worker, seconds):
    """What the looks of this time find."""
    found = []
    for _ in range(int(seconds / EVERY_S)):
        clock.move(EVERY_S)
        found.append(watch.hung([worker]))
    return [hung for several in found for hung in several]


def in_a_call(clock, deadline_s=DEADLINE_S, call="nvmlDeviceGetName"):
    now_ns = clock.monotonic_ns()
    sensor = SimpleNamespace(name="gpu0", call=call)
    return SimpleNamespace(visit=DriverVisit(now_ns, deadline_s * NS_PER_S), sensor=sensor)


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
