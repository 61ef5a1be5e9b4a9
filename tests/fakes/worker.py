"""The worker of a sensor, in the simulated time of a fake driver."""

from dataclasses import asdict

from costprobe.adapters.sensors.child.device_thread import DeviceWorker
from costprobe.adapters.sensors.child.nvidia import nvidia_sensors
from costprobe.adapters.sensors.child.sensor import SensorContext
from costprobe.adapters.sensors.messages import decode, encode
from costprobe.devices.use import DeviceWindows
from fakes.sensing import sensor_settings

S = 10**9


def context_of(fake, faults=None):
    """What a factory of sensors is given; faults are appended to a list."""
    report = (lambda *_: None) if faults is None else (lambda _, fault: faults.append(fault))
    return SensorContext(sensor_settings(), fake.clock, report)


def worker_of(fake, **settings):
    """The worker of the first GPU."""
    return WorkerBench(fake, nvidia_sensors(context_of(fake))[0], **settings)


class WorkerBench:
    """The worker of a sensor, in simulated time, in the place of a sensor child with one device.

    Attributes:
        messages: What the worker emitted.
        windows: Answers from the samples that crossed the wire.
        worker: The worker.
    """

    every_s = 1.0

    def __init__(self, fake, sensor, *, late_s=0.0, retry_after_s=None, **settings):
        self.messages = []
        self.clock = fake.clock
        self.windows = DeviceWindows(self, self.clock)
        start_ns = self.clock.monotonic_ns() - round(late_s * S)
        changed = sensor_settings(**settings)
        parts = (changed, self.clock, self._emit, start_ns, retry_after_s)
        self.worker = DeviceWorker(sensor, *parts)
        self.name = sensor.name

    def _emit(self, message):
        self.messages.append(message)
        if message["type"] == "samples":
            self._consumer(decode(encode(message)))

    def stream_to(self, consumer):
        self._consumer = consumer

    def is_available(self, _name):
        """False, so that nothing is waited for: time is simulated."""
        return False

    def watch(self, name, until_ns):
        self.worker.command({"cmd": "watch", "device": name, "until_ns": until_ns})
        return True

    def mark(self, name):
        self.worker.command({"cmd": "mark", "device": name})
        return True

    def until(self, end_ns):
        """Advance simulated time to an instant with all wake-ups of the worker."""
        while (wake_ns := self.worker.work()) <= end_ns:
            self.clock.move(max(0, wake_ns - self.clock.monotonic_ns()) / S)
        self.clock.move((end_ns - self.clock.monotonic_ns()) / S)

    def run(self, seconds):
        """Advance simulated time with all wake-ups of the worker."""
        self.until(self.clock.monotonic_ns() + round(seconds * S))

    def of(self, kind):
        """The messages of a type."""
        return [message for message in self.messages if message["type"] == kind]

    def command(self, message):
        """Give the worker a command."""
        self.worker.command(message)

    def mark_edge(self):
        """Watch the device from now on, and read an edge of a window."""
        self.windows.watch(self.name, self.clock.monotonic_ns() + 600 * S)
        self.windows.mark(self.name)

    def energy_of_a_window(self, seconds, start_ns=None):
        """The energy of a window that begins now, or at an instant before, as a dictionary."""
        start_ns = start_ns or self.clock.monotonic_ns()
        self.mark_edge()
        self.run(seconds)
        end_ns = self.clock.monotonic_ns()
        self.mark_edge()
        self.run(1.5)
        return asdict(self.windows.energy(self.name, start_ns, end_ns, start_ns - S, end_ns))
