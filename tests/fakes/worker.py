"""The worker of a sensor, in the simulated time of a fake driver."""

from costprobe.adapters.sensors.child.device_thread import DeviceWorker
from costprobe.adapters.sensors.child.sensor import SensorContext
from fakes.sensing import sensor_settings

S = 10**9


def context_of(fake, faults=None):
    """What a factory of sensors is given; faults are appended to a list."""
    report = (lambda *_: None) if faults is None else (lambda _, fault: faults.append(fault))
    return SensorContext(sensor_settings(), fake.clock, report)


class WorkerBench:
    """The worker of a sensor, in simulated time.

    Attributes:
        messages: What the worker emitted.
    """

    def __init__(self, fake, sensor, **settings):
        self.messages = []
        self._clock = fake.clock
        self._worker = DeviceWorker(
            sensor,
            sensor_settings(**settings),
            fake.clock,
            self.messages.append,
            fake.clock.monotonic_ns(),
        )

    def run(self, seconds):
        """Advance simulated time with all wake-ups of the worker."""
        end_ns = self._clock.monotonic_ns() + round(seconds * S)
        while (wake_ns := self._worker.work()) <= end_ns:
            self._clock.move(max(0, wake_ns - self._clock.monotonic_ns()) / S)
        self._clock.move((end_ns - self._clock.monotonic_ns()) / S)

    def of(self, kind):
        """The messages of a type."""
        return [message for message in self.messages if message["type"] == kind]

    def command(self, message):
        """Give the worker a command."""
        self._worker.command(message)

    def energy_of_a_window(self, seconds, start_ns=None):
        """The answer about the energy of a window that begins now, or at an instant before."""
        start_ns = start_ns or self._clock.monotonic_ns()
        self._worker.command({"cmd": "mark"})
        self.run(seconds)
        end_ns = self._clock.monotonic_ns()
        self._worker.command({"cmd": "mark"})
        self.run(1)
        times = {"start_ns": start_ns, "end_ns": end_ns}
        steady = {"steady_start_ns": start_ns - S, "steady_end_ns": end_ns}
        self._worker.command({"cmd": "energy", "id": 1, **times, **steady})
        self.run(12)
        return self.of("energy")[-1]
