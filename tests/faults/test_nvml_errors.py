"""Every error code of NVML from every function that is called, and what a board can do to us.

Outcome: no code ends a device's thread or becomes an error of another name. An absent metric is
left out, a passing error costs values until it passes, a GPU that is lost is left alone and comes
back by itself, a library that forgot us is initialized again, and one that no longer fits its
driver asks for a new process. When the cause is gone, readings go on.
"""

import pytest
from fakes.nvml import FakeNvml
from nvml_bench import Bench, is_reading, of

from agent.model import NS_PER_S
from agent.telemetry.faults import Reaction, SensorFault
from agent.telemetry.nvml import CODES, Library

NOON_NS = 1_780_000_000 * NS_PER_S
NOT_SUPPORTED = 3
OF_THE_LIBRARY = (
    "nvmlInitWithFlags",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlDeviceGetCount_v2",
)
WHEN_FOUND = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
)
# The functions of a board at work, each with those that must be refused for it to be asked.
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
OF_A_DIVIDED_BOARD = ("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex")
OF_A_PART = (
    *OF_A_DIVIDED_BOARD,
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetMemoryInfo_v2",
)
FINDS_A_PART = ("nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetUUID")
PASSING = (Reaction.ABSENT, Reaction.TRANSIENT)

every_code = pytest.mark.parametrize("code", sorted(CODES))


@pytest.fixture
def simulated(tmp_path):
    fake = FakeNvml(tmp_path, simulated_utc_ns=NOON_NS)
    fake.gpus[0].buffer_samples()
    fake.gpus[0].set_processes([7])
    with fake.in_this_process():
        yield fake


def reaction_of(function, code, number):
    """What a code asks of a device: a MIG device that cannot be found is gone."""
    reaction = CODES[code][1]
    is_gone = number is not None and function in FINDS_A_PART and reaction is Reaction.ABSENT
    return Reaction.QUARANTINE if is_gone else reaction


def fails_and_passes(fake, function, code, number=None):
    """A device at work that meets an error, which passes after a while."""
    name, reaction = CODES[code][0], reaction_of(function, code, number)
    bench = Bench(fake, number)
    assert is_reading(bench.run(20))
    called, begun = fake.calls(function), fake.calls("nvmlInitWithFlags")
    rule = fake.fail(function, code)
    while_it_lasts = bench.run(70)
    was_called = fake.calls(function) > called
    faults = of(while_it_lasts, "fault")
    assert {fault["code"] for fault in faults} <= {name}
    asked_for_a_process = bool(of(while_it_lasts, "restart"))
    if reaction in PASSING or not was_called:
        assert (faults, asked_for_a_process) == ([], False)
        assert is_reading(while_it_lasts)
    elif reaction is Reaction.QUARANTINE:
        assert {fault["reaction"] for fault in faults} == {"quarantine"}
        assert not asked_for_a_process
    elif reaction is Reaction.RESTART:
        assert asked_for_a_process
    else:
        assert fake.calls("nvmlInitWithFlags") > begun
    rule.clear()
    if not asked_for_a_process:
        assert bench.reads_again()
        assert bench.worker.opened


def fails_from_the_start(fake, function, code, number=None):
    """A device that meets an error when it is first looked at, which passes after a while."""
    name, reaction = CODES[code]
    bench = Bench(fake, number)
    rule = fake.fail(function, code)
    while_it_lasts = bench.run(30)
    assert {fault["code"] for fault in of(while_it_lasts, "fault")} <= {name}
    asked_for_a_process = bool(of(while_it_lasts, "restart"))
    assert not (asked_for_a_process and reaction in {*PASSING, Reaction.QUARANTINE})
    set_aside = not bench.worker.opened and not asked_for_a_process
    assert set_aside or asked_for_a_process or is_reading(while_it_lasts)
    rule.clear()
    if not asked_for_a_process:
        assert bench.reads_again()


@every_code
@pytest.mark.parametrize("function", [*AT_WORK, *WHEN_FOUND])
def test_a_gpu_goes_on_as_the_code_asks(simulated, function, code):
    for refused in AT_WORK.get(function, ()):
        simulated.fail(refused, NOT_SUPPORTED)
    fails_and_passes(simulated, function, code)
    fails_from_the_start(simulated, function, code)


@every_code
@pytest.mark.parametrize("function", OF_A_DIVIDED_BOARD)
def test_a_divided_board_goes_on_as_the_code_asks(simulated, function, code):
    simulated.gpus[0].split(3, 4)
    fails_and_passes(simulated, function, code)
    fails_from_the_start(simulated, function, code)


@every_code
@pytest.mark.parametrize("function", OF_A_PART)
def test_a_mig_device_goes_on_as_the_code_asks(simulated, function, code):
    simulated.gpus[0].split(3, 4)
    fails_and_passes(simulated, function, code, number=1)
    fails_from_the_start(simulated, function, code, number=1)


@every_code
def test_one_field_of_power_stands_in_for_the_other_and_without_both_there_is_a_fault(
    simulated, code
):
    bench = Bench(simulated)
    bench.run(20)
    for field in ("field:185", "field:186"):
        rule = simulated.fail(field, code)
        while_it_lasts = bench.run(20)
        assert all(reading["fields"]["power_w"] > 0 for reading in of(while_it_lasts, "reading"))
        assert is_reading(while_it_lasts)
        assert of(while_it_lasts, "fault") == []
        rule.clear()
    rules = [simulated.fail(field, code) for field in ("field:185", "field:186")]
    while_it_lasts = bench.run(40)
    assert {fault["code"] for fault in of(while_it_lasts, "fault")} == (
        set() if CODES[code][1] in PASSING else {CODES[code][0]}
    )
    for rule in rules:
        rule.clear()
    assert bench.reads_again() or of(bench.messages, "restart")


@every_code
def test_a_gpu_of_which_every_call_fails_goes_on_as_the_code_asks(simulated, code):
    """As a board answers that fell off the bus, or a driver that was taken away."""
    name, reaction = CODES[code]
    bench = Bench(simulated)
    assert is_reading(bench.run(20))
    rule = simulated.fail("*", code)
    while_it_lasts = bench.run(70)
    assert {fault["code"] for fault in of(while_it_lasts, "fault")} <= {name, "NOT_SUPPORTED"}
    asked_for_a_process = bool(of(while_it_lasts, "restart"))
    assert asked_for_a_process == (reaction in {Reaction.REINIT, Reaction.RESTART})
    rule.clear()
    if not asked_for_a_process:
        assert bench.reads_again()


@every_code
@pytest.mark.parametrize("function", OF_THE_LIBRARY)
def test_a_library_that_does_not_open_says_why_and_opens_later(simulated, function, code):
    name, reaction = CODES[code]
    rule = simulated.fail(function, code)
    with pytest.raises(SensorFault) as caught:
        Library().open()
    assert (caught.value.code, caught.value.reaction) == (name, reaction)
    rule.clear()
    assert Library().open().gpu_count == 1
