"""The worker of a device with the real pynvml and the fake library, in simulated time."""

from costprobe.adapters.sensors.child.device_thread import DeviceWorker
from costprobe.adapters.sensors.child.nvidia import MigSensor, NvidiaSensor
from costprobe.adapters.sensors.child.nvml import open_driver
from costprobe.core.records import NS_PER_S
from fakes.sensing import sensor_settings

SETTINGS = sensor_settings(every_s=5.0, aggregate_s=10.0, quarantine_first_s=30.0)
STEP_S, REQUEST_EVERY_S = 2, 10


class Bench:
    """A device's worker with pynvml and the fake library, in simulated time, with all metrics."""

    def __init__(self, fake, number=None):
        self.clock = fake.clock
        self.messages = []
        open_driver()
        parts = (0, fake.clock, self._report)
        sensor = NvidiaSensor(*parts) if number is None else MigSensor(*parts, number)
        now_ns = self.clock.monotonic_ns()
        self.worker = DeviceWorker(sensor, SETTINGS, fake.clock, self.messages.append, now_ns)

    def _report(self, _, fault):
        self.messages.append({"type": "reported", "code": fault.code})

    def run(self, seconds):
        """Advance simulated time; return the messages of that time."""
        begun = len(self.messages)
        for second in range(0, seconds, STEP_S):
            if second % REQUEST_EVERY_S == 0:
                self._request(self.clock.monotonic_ns())
            self.worker.step()
            self.clock.move(STEP_S)
        return self.messages[begun:]

    def reads_again(self):
        """Whether a reading arrives within ten simulated minutes."""
        return any(is_reading(self.run(20)) for _ in range(30))

    def _request(self, now_ns):
        # All metrics, the processes, and an edge of a window.
        self.worker.command({"cmd": "watch", "until_ns": now_ns + REQUEST_EVERY_S * NS_PER_S})
        self.worker.command({"cmd": "mark"})


def of(messages, kind):
    return [message for message in messages if message["type"] == kind]


def is_reading(messages):
    return bool(of(messages, "reading"))
