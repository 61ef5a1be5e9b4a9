"""Every error code of NVML from every function that is called.

Expected: no code ends the worker of a device or is reported under another name. An absent metric is
omitted, a transient error costs values while it lasts, a lost GPU is quarantined and resumed, and a
library that is not initialized or does not match its driver requests a restart of the process.
Readings continue once the error is gone.
"""

import zlib
from contextlib import contextmanager

import pytest
from costprobe.adapters.sensors.child.nvidia import (
    MIG_BY_NUMBER,
    NO_MIG_DEVICE,
    MigSensor,
    NvidiaSensor,
)
from costprobe.adapters.sensors.child.nvml import NAMES, REACTIONS, open_driver
from costprobe.adapters.sensors.messages import Reaction, SensorFault
from costprobe.core.records import NS_PER_S
from fakes.cases import check_all
from fakes.nvml import FakeNvml
from fakes.sizes import SHARE
from fakes.worker import WorkerBench

NOON_NS = 1_780_000_000 * NS_PER_S
NOT_SUPPORTED = 3
OF_THE_LIBRARY = ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2")
WHEN_FOUND = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
)
# The functions of a running GPU, each with those that must be unsupported for it to be called.
VIOLATIONS = "nvmlDeviceGetViolationStatus"
EVENT_REASONS = "nvmlDeviceGetCurrentClocksEventReasons"
COUNTER = "nvmlDeviceGetTotalEnergyConsumption"
AT_WORK = {
    "nvmlDeviceGetFieldValues": (),
    "nvmlDeviceGetPowerUsage": ("nvmlDeviceGetFieldValues",),
    "nvmlDeviceGetUtilizationRates": (),
    "nvmlDeviceGetMemoryInfo_v2": (),
    "nvmlDeviceGetMemoryInfo": ("nvmlDeviceGetMemoryInfo_v2",),
    "nvmlDeviceGetTemperatureV": (),
    "nvmlDeviceGetTemperature": ("nvmlDeviceGetTemperatureV",),
    "nvmlDeviceGetClockInfo": (),
    VIOLATIONS: (),
    EVENT_REASONS: (VIOLATIONS,),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (VIOLATIONS, EVENT_REASONS),
    "nvmlDeviceGetTotalEccErrors": (),
    "nvmlDeviceGetComputeRunningProcesses_v3": (),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": (),
    COUNTER: (),
    "nvmlDeviceGetSamples": (COUNTER,),
    "nvmlDeviceGetProcessUtilization": (),
    "nvmlDeviceGetMigMode": (),
}
OF_A_DIVIDED_BOARD = ("nvmlDeviceGetMaxMigDeviceCount", MIG_BY_NUMBER)
OF_A_PART = (
    *OF_A_DIVIDED_BOARD,
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetMemoryInfo_v2",
)
FINDS_A_PART = (MIG_BY_NUMBER, "nvmlDeviceGetUUID")
CODES = {
    code: (name, REACTIONS.get(name, Reaction.TRANSIENT))
    for code, name in NAMES.items()
    if name != "SUCCESS"
}
PASSING = (Reaction.ABSENT, Reaction.TRANSIENT)


class Bench(WorkerBench):
    """A device's worker in simulated time, whose every metric is read."""

    def __init__(self, fake, number=None):
        open_driver()
        parts = (0, fake.clock, lambda *_: None)
        sensor = NvidiaSensor(*parts) if number is None else MigSensor(*parts, number)
        super().__init__(fake, sensor, every_s=5.0, aggregate_s=10.0, quarantine_first_s=30.0)

    def run(self, seconds):
        """Advance simulated time with edges of windows; return the messages of that time."""
        begun = len(self.messages)
        for _ in range(0, seconds, 10):
            self.mark_edge()
            super().run(10)
        return self.messages[begun:]

    def reads_again(self):
        """Whether a reading arrives within ten simulated minutes."""
        return any(is_reading(self.run(20)) for _ in range(30))


def of(messages, kind):
    return [message for message in messages if message["type"] == kind]


def is_reading(messages):
    return bool(of(messages, "reading"))


@contextmanager
def simulated(folder):
    """A fake driver in this process, with simulated time and one GPU."""
    folder.mkdir()
    fake = FakeNvml(folder, simulated_utc_ns=NOON_NS)
    fake.gpus[0].buffer_samples()
    fake.gpus[0].set_processes([7])
    with fake.in_this_process():
        yield fake


def codes_of(test):
    """Return one code of each reaction, others for each test; every code in a long run."""
    if SHARE:
        return sorted(CODES)
    alike = {}
    for code, (name, reaction) in sorted(CODES.items()):
        alike.setdefault((reaction, name in NO_MIG_DEVICE), []).append(code)
    place = zlib.crc32(test.encode())
    return [codes[place % len(codes)] for codes in alike.values()]


def for_each(codes, folder, check):
    """Run a check with a fresh fake for each code."""

    def run(code):
        with simulated(folder / str(code)) as fake:
            check(fake, code)

    check_all(run, codes)


def reaction_of(function, code, number):
    """The reaction that a code requires; a MIG device that cannot be found any more is gone."""
    name, reaction = CODES[code]
    if number is None or function not in FINDS_A_PART or reaction is not Reaction.ABSENT:
        return reaction
    is_gone = function == MIG_BY_NUMBER and name in NO_MIG_DEVICE
    return Reaction.GONE if is_gone else Reaction.QUARANTINE


def fails(fake, function, code, number, *, at_work):
    """An error that ends after a while, of a running device or during its discovery."""
    name, reaction = CODES[code][0], reaction_of(function, code, number)
    bench = Bench(fake, number)
    assert not at_work or is_reading(bench.run(20))
    called = fake.calls(function)
    rule = fake.fail(function, code)
    during = bench.run(70 if at_work else 30)
    rule.clear()
    was_called = fake.calls(function) > called
    faults, requested_restart = of(during, "fault"), bool(of(during, "restart"))
    assert {fault["code"] for fault in faults} <= {name}
    if reaction is Reaction.GONE:
        # Its board ends its worker, if nothing takes its place.
        assert (faults, requested_restart) == ([], False)
    elif not at_work:
        assert not (requested_restart and reaction in {*PASSING, Reaction.QUARANTINE})
        quarantined = not bench.worker.opened and not requested_restart
        assert quarantined or requested_restart or is_reading(during)
    elif reaction in PASSING or not was_called:
        assert (faults, requested_restart) == ([], False)
        assert is_reading(during)
    elif reaction is Reaction.QUARANTINE:
        assert {fault["reaction"] for fault in faults} == {"quarantine"}
        assert not requested_restart
    else:
        assert requested_restart
    if not requested_restart:
        assert bench.reads_again()
        assert bench.worker.opened or not at_work or reaction is Reaction.GONE


WHOLE, BOARD, PART = ((), None), ((3, 4), None), ((3, 4), 1)
CASES = [
    *((WHOLE, function) for function in (*AT_WORK, *WHEN_FOUND)),
    *((BOARD, function) for function in OF_A_DIVIDED_BOARD),
    *((PART, function) for function in OF_A_PART),
]


@pytest.mark.parametrize(("device", "function"), CASES)
def test_device_recovers_as_the_error_code_requires(tmp_path, request, device, function):
    """A GPU, one that is partitioned, or one of its MIG devices."""
    layout, number = device

    def check(fake, code):
        if layout:
            fake.gpus[0].split(*layout)
        for unsupported in () if layout else AT_WORK.get(function, ()):
            fake.fail(unsupported, NOT_SUPPORTED)
        fails(fake, function, code, number, at_work=True)
        fails(fake, function, code, number, at_work=False)

    for_each(codes_of(request.node.name), tmp_path, check)


def test_gpu_whose_every_call_fails_recovers_as_the_error_code_requires(tmp_path):
    """A GPU that fell off the bus, or a driver that was unloaded."""

    def check(fake, code):
        name, reaction = CODES[code]
        bench = Bench(fake)
        assert is_reading(bench.run(20))
        rule = fake.fail("*", code)
        during = bench.run(70)
        assert {fault["code"] for fault in of(during, "fault")} <= {name, "NOT_SUPPORTED"}
        requested_restart = bool(of(during, "restart"))
        assert requested_restart == (reaction is Reaction.RESTART)
        rule.clear()
        if not requested_restart:
            assert bench.reads_again()

    for_each(CODES, tmp_path, check)


@pytest.mark.parametrize("function", OF_THE_LIBRARY)
def test_library_that_fails_to_initialize_is_reported_and_retried(tmp_path, request, function):
    def check(fake, code):
        rule = fake.fail(function, code)
        with pytest.raises(SensorFault) as caught:
            open_driver()
        assert (caught.value.code, caught.value.reaction) == CODES[code]
        rule.clear()
        assert open_driver().gpu_count == 1

    for_each(codes_of(request.node.name), tmp_path, check)
