"""A device's worker on the real pynvml and the fake library, in simulated time."""

from agent.model import NS_PER_S
from agent.telemetry.gpu import GpuSensor
from agent.telemetry.nvml import Library
from agent.telemetry.wire import SensorSettings
from agent.telemetry.worker import DeviceWorker

SETTINGS = SensorSettings(sample_every_s=5.0, aggregate_every_s=10.0, quarantine_first_s=30.0)
STEP_S, ASK_EVERY_S = 2, 10


class Bench:
    """A device's worker on the real pynvml, in simulated time, asked for all that it can tell."""

    def __init__(self, fake, number=None):
        self.clock = fake.clock
        self.messages = []
        library = Library()
        library.open()
        sensor = GpuSensor(0, library, fake.clock, self._tell, number)
        now_ns = self.clock.monotonic_ns()
        self.worker = DeviceWorker(sensor, SETTINGS, fake.clock, self.messages.append, now_ns)

    def _tell(self, fault):
        self.messages.append({"type": "told", "code": fault.code})

    def run(self, seconds):
        """Lets time pass; what came of it."""
        begun = len(self.messages)
        for second in range(0, seconds, STEP_S):
            if second % ASK_EVERY_S == 0:
                self._ask(self.clock.monotonic_ns())
            self.worker.step()
            self.clock.move(STEP_S)
        return self.messages[begun:]

    def reads_again(self):
        """Lets time pass until there is a reading, within ten minutes."""
        return any(is_reading(self.run(20)) for _ in range(30))

    def _ask(self, now_ns):
        window = {"start_ns": now_ns - 6 * NS_PER_S, "end_ns": now_ns}
        steady = {"steady_start_ns": window["start_ns"], "steady_end_ns": now_ns}
        self.worker.command({"cmd": "mark"})
        self.worker.command({"cmd": "energy", "id": 1, **window, **steady})
        self.worker.command({"cmd": "activity", "id": 2, "own_pids": [], **window})


def of(messages, kind):
    return [message for message in messages if message["type"] == kind]


def is_reading(messages):
    return bool(of(messages, "reading"))
