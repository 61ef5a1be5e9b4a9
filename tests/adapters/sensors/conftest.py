"""A supervisor of the sensor child with the real child, and a fake driver in simulated time."""

import os
import sys
import time

import pytest
from costprobe.adapters.sensors.supervisor import CHILD_COMMAND, SensorSupervisor
from costprobe.core.clock import SystemClock
from fakes.nvml import FakeNvml
from fakes.sensing import sensor_settings

NO_DRIVER = {"LD_LIBRARY_PATH": "/nonexistent"}
QUICK = {
    "every_s": 0.05,
    "aggregate_s": 0.25,
    "deadline_s": 10.0,
    "startup_s": 5.0,
    "cpu": False,
    "quarantine_first_s": 0.5,
}


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - gone between two calls is fine
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class JumpingClock(SystemClock):
    """The host's clocks after a time in which this process was stopped."""

    stopped_ns = 0

    def monotonic_ns(self):
        return time.monotonic_ns() + self.stopped_ns


class Watched:
    """A supervisor, with the readings and events that it delivered."""

    def __init__(self, command, settings, wait_until, margin_s):
        self.clock, self.wait_until = JumpingClock(), wait_until
        self.readings, self.events = [], []
        self.supervisor = SensorSupervisor(
            command,
            sensor_settings(**{**QUICK, **settings}),
            self.events.append,
            self.clock,
            restart_first_s=0.05,
            margin_s=margin_s,
        )
        self.supervisor.deliver_to(self._record)
        self.supervisor.start()

    def _record(self, readings):
        self.readings += [reading for reading, _ in readings]

    @property
    def status(self):
        return self.supervisor.status()

    def wait_for_event(self, text):
        self.wait_until(lambda: any(text in event.title for event in self.events))
        return next(event for event in self.events if text in event.title)

    def wait_for_reading(self, device):
        seen = len(self.readings)
        self.wait_until(lambda: any(r.device == device for r in self.readings[seen:]))


@pytest.fixture
def watch(wait_until, request):
    """Starts supervisors over the real child, or over a script; nothing may outlive the test."""

    def start(fake=None, script=None, margin_s=12.0, env=NO_DRIVER, **settings):
        env = env if fake is None else fake.env()
        command = CHILD_COMMAND if script is None else (sys.executable, "-c", script)
        root = os.fspath(request.config.rootpath)
        variables = [f"{name}={value}" for name, value in {**env, "PYTHONPATH": root}.items()]
        watched = Watched(["env", *variables, *command], settings, wait_until, margin_s)
        watches.append(watched)
        return watched

    watches = []
    yield start
    for watched in watches:
        pid = watched.status["pid"]
        watched.supervisor.stop()
        assert watched.status["state"] == "stopped"
        assert pid is None or not is_running(pid)


@pytest.fixture
def simulated(fake_nvml):
    """Two GPUs of a fake driver in this process, in simulated time."""
    fake = fake_nvml(gpus=2, simulated_utc_ns=1_780_000_000 * 10**9)
    with fake.in_this_process():
        yield fake


@pytest.fixture
def fake_nvml(tmp_path):
    def build(gpus=1, **options):
        return FakeNvml(tmp_path, gpus, **options)

    return build
