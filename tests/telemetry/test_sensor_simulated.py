"""Days of a GPU in moments: the real pynvml in this process, on a simulated time."""

import pynvml
import pytest
from fakes.nvml import FakeNvml

from agent.clock import utc_ns
from agent.telemetry.activity import ActivityLog
from agent.telemetry.faults import Reaction, SensorFault
from agent.telemetry.gpu import GpuSensor
from agent.telemetry.nvml import Library
from agent.telemetry.sample import Noted

S = 10**9
NOON_NS = 1_780_000_000 * S


@pytest.fixture
def simulated(fake_nvml):
    fake = fake_nvml(gpus=2, simulated_utc_ns=NOON_NS)
    with fake.in_this_process():
        yield fake


def opened(fake):
    """The agent's own sensor of the first GPU, and what it told."""
    library, faults = Library(), []
    library.open()
    sensor = GpuSensor(0, library, fake.clock, faults.append)
    sensor.open()
    return sensor, faults


def test_time_stands_until_it_is_moved(simulated):
    sensor, _ = opened(simulated)
    first = sensor.sample()
    assert sensor.sample() == first
    assert sensor.read_counter() == sensor.read_counter()
    simulated.clock.move(300)
    assert sensor.sample().t_ns == first.t_ns + 300 * S
    assert utc_ns(simulated.clock, sensor.sample().t_ns) == NOON_NS + 300 * S


def test_energy_and_throttled_time_are_those_of_the_simulated_time(simulated):
    sensor, faults = opened(simulated)
    gpu = simulated.gpus[0]
    before, counter = sensor.sample(), sensor.read_counter()
    start_ns = before.t_ns
    gpu.throttle(thermal_share=0.11)
    gpu.set_power(310.0)
    simulated.clock.move(3600)
    gpu.throttle()
    gpu.set_power(60.0)
    simulated.clock.move(3600)
    after = sensor.sample()
    assert after.power_w == 60.0
    assert after.throttle_thermal_s - before.throttle_thermal_s == pytest.approx(396)
    assert after.throttle_power_s == before.throttle_power_s
    used_j = sensor.read_counter().energy_j - counter.energy_j
    assert used_j == pytest.approx(370 * 3600)
    assert used_j == pytest.approx(gpu.energy_j(start_ns, after.t_ns))
    assert faults == []


def test_two_days_of_windows_each_show_the_conditions_of_their_hour(simulated):
    sensor, _ = opened(simulated)
    gpu = simulated.gpus[0]
    gpu.set_processes([10])
    hot = range(200, 400)
    activities = []
    for i in range(2 * 288):
        gpu.throttle(thermal_share=0.11 if i in hot else 0.0)
        gpu.set(sm_clock_mhz=1815 if i in hot else 1980, temp_c=88 if i in hot else 64)
        log = ActivityLog()
        log.add(sensor.sample())
        gpu.set_power(300.0)
        simulated.clock.move(5)
        log.add(sensor.sample())
        gpu.set_power(60.0)
        now_ns = simulated.clock.monotonic_ns()
        activities.append(log.between(now_ns - 5 * S, now_ns, [10], sensor.busy_pids(0)))
        simulated.clock.move(295)
    for i, activity in enumerate(activities):
        assert activity.sm_clock_mhz == (1815 if i in hot else 1980)
        assert activity.temp_max_c == (88 if i in hot else 64)
        assert activity.throttled_thermal_pct == pytest.approx(11 if i in hot else 0)
        assert activity.contended is False
    assert simulated.calls("nvmlDeviceGetViolationStatus", gpu=0) == 4 * 2 * 288


def test_one_script_follows_another_in_this_process(tmp_path):
    temperatures = []
    for i, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        fake = FakeNvml(tmp_path / folder, simulated_utc_ns=NOON_NS)
        fake.gpus[0].set(temp_c=50 + i)
        with fake.in_this_process():
            sensor, _ = opened(fake)
            temperatures.append(sensor.sample().temp_c)
    assert temperatures == [50.0, 51.0]
    # Afterwards this process is one without a driver, for whatever else runs in it.
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_a_driver_upgrade_is_met_as_by_a_process_that_holds_the_old_library(simulated):
    sensor, _ = opened(simulated)
    simulated.upgrade_driver("590.11")
    with pytest.raises(SensorFault) as caught:
        sensor.sample()
    assert caught.value.reaction is Reaction.RESTART
    with simulated.in_this_process():
        assert Library().open().driver_version == "590.11"


def test_a_library_that_lost_its_state_is_initialized_again_in_a_standing_time(simulated):
    sensor, _ = opened(simulated)
    simulated.uninitialize()
    with pytest.raises(SensorFault) as caught:
        sensor.sample()
    assert caught.value.reaction is Reaction.REINIT
    sensor.open()
    assert sensor.sample().temp_c == 35.0


READ_QUICKLY = (
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetClockInfo",
)


def understood(sample):
    """A sample, as it is or as it was noted."""
    return sample.sample() if isinstance(sample, Noted) else sample


def test_a_quick_sample_says_the_same_as_a_whole_one_by_three_calls(simulated):
    sensor, faults = opened(simulated)
    simulated.gpus[0].set(util_pct=73, mem_util_pct=12, sm_clock_mhz=1410)
    simulated.gpus[0].set_power(310.0)
    simulated.clock.move(0.5)  # the average of the last second lies behind the moment
    whole = sensor.sample()
    assert whole.power_w != whole.power_instant_w
    before = [simulated.calls(function) for function in READ_QUICKLY]
    quick = sensor.quick_sample().sample()
    assert [simulated.calls(function) for function in READ_QUICKLY] == [n + 1 for n in before]
    kept = ("t_ns", "power_w", "power_instant_w", "util_pct", "mem_util_pct", "sm_clock_mhz")
    assert quick == type(quick)(
        **{name: getattr(whole, name) for name in kept}, is_quick=True, is_averaged=True
    )
    assert faults == []


@pytest.mark.parametrize("function", [*READ_QUICKLY, "field:185"])
def test_where_one_of_the_three_fails_the_others_are_read_and_all_again_later(simulated, function):
    sensor, _ = opened(simulated)
    simulated.gpus[0].set(util_pct=73, sm_clock_mhz=1410)
    whole = sensor.sample()
    trouble = simulated.fail(function, 999)
    found = [understood(sensor.quick_sample()) for _ in range(3)][-1]
    known = {
        "nvmlDeviceGetFieldValues": (None, 73.0, 1410.0),
        "nvmlDeviceGetUtilizationRates": (60.0, None, 1410.0),
        "nvmlDeviceGetClockInfo": (60.0, 73.0, None),
        "field:185": (60.0, 73.0, 1410.0),  # the power of the moment stands in
    }[function]
    assert (found.power_w, found.util_pct, found.sm_clock_mhz) == known
    assert found.is_averaged is (function.startswith("nvml") and known[0] is not None)
    trouble.clear()
    assert sensor.sample() == whole
    calls = simulated.calls("nvmlDeviceGetFieldValues")
    assert sensor.quick_sample().sample().is_averaged
    assert simulated.calls("nvmlDeviceGetFieldValues") == calls + 1


# What a whole sample reads besides, and what it lacks without.
READ_RARELY = {
    "nvmlDeviceGetMemoryInfo_v2": {"mem_used_bytes": None, "mem_total_bytes": None},
    "nvmlDeviceGetTemperatureV": {"temp_c": None},
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz": None, "mem_clock_mhz": None},
    "nvmlDeviceGetViolationStatus": {"throttle_power_s": None, "throttle_thermal_s": None},
    "nvmlDeviceGetTotalEccErrors": {"ecc_uncorrected": None},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"pids": (12,)},
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": {"pids": (10, 11)},
}
COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
# pynvml asks how many there are before it asks which.
BY_ITS_WAY, BY_THE_LIBRARY = 2, 1


def busy(fake):
    """A GPU of which every metric has a value of its own."""
    gpu = fake.gpus[0]
    gpu.set(util_pct=73, mem_util_pct=12, sm_clock_mhz=1410, mem_clock_mhz=2619, temp_c=64)
    gpu.set(mem_used_bytes=7 << 30)
    gpu.set_power(310.0)
    gpu.set_processes([10, 11], mps_pids=[12])
    gpu.throttle(power_share=0.25, thermal_share=0.11)
    fake.clock.move(100.5)


def sampled(fake, sensor):
    """A whole sample, and how often it asked for processes."""
    before = fake.calls(COMPUTE)
    return sensor.sample(), fake.calls(COMPUTE) - before


@pytest.mark.parametrize(
    "lacking", ["", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTotalEccErrors"]
)
def test_whole_samples_read_by_the_librarys_own_functions_say_the_same(simulated, lacking):
    if lacking:
        simulated.fail(lacking, 3)
    sensor, faults = opened(simulated)
    busy(simulated)
    by_its_way, asked = sampled(simulated, sensor)
    assert asked == BY_ITS_WAY
    assert None not in (by_its_way.temp_c, by_its_way.mem_used_bytes, by_its_way.mem_clock_mhz)
    assert by_its_way.pids == (10, 11, 12)
    assert by_its_way.throttle_power_s > by_its_way.throttle_thermal_s > 0
    assert sampled(simulated, sensor) == (by_its_way, BY_THE_LIBRARY)
    simulated.clock.move(10)
    simulated.gpus[0].set_processes([])
    assert sensor.sample().pids == ()
    assert faults == []


@pytest.mark.parametrize("function", READ_RARELY)
def test_where_one_fails_in_a_whole_sample_all_are_read_by_their_ways(simulated, function):
    sensor, _ = opened(simulated)
    busy(simulated)
    good = [sensor.sample() for _ in range(2)][-1]
    trouble = simulated.fail(function, 999)
    lacking = good._replace(**READ_RARELY[function])
    assert [sensor.sample() for _ in range(2)] == [lacking] * 2
    assert understood(sensor.quick_sample()).sm_clock_mhz == lacking.sm_clock_mhz
    trouble.clear()
    assert sensor.sample() == good
    assert sampled(simulated, sensor) == (good, BY_THE_LIBRARY)


def test_more_processes_than_there_is_room_for_are_all_found(simulated):
    sensor, _ = opened(simulated)
    sensor.sample()
    simulated.gpus[0].set_processes(range(1, 31))
    assert sensor.sample().pids == tuple(range(1, 31))


def test_power_that_its_fields_no_longer_tell_is_read_otherwise_from_the_next_whole_sample_on(
    simulated,
):
    sensor, _ = opened(simulated)
    sensor.sample()
    for field in ("field:185", "field:186"):
        simulated.fail(field, 3)
    quick = sensor.quick_sample().sample()
    assert (quick.power_w, quick.power_instant_w, quick.is_averaged) == (None, None, False)
    assert sensor.sample().power_w == 60.0
    assert understood(sensor.quick_sample()).power_w == 60.0


def test_a_quick_sample_of_a_gpu_that_is_lost_or_of_an_old_library_is_a_fault(simulated):
    sensor, _ = opened(simulated)
    sensor.sample()
    simulated.fail("*", 15, gpu=0)
    with pytest.raises(SensorFault) as lost:
        sensor.quick_sample()
    assert (lost.value.call, lost.value.code) == ("nvmlDeviceGetFieldValues", "GPU_IS_LOST")
    simulated.clear()
    sensor.open()
    sensor.sample()
    simulated.uninitialize()
    with pytest.raises(SensorFault) as stale:
        sensor.quick_sample()
    assert stale.value.reaction is Reaction.REINIT
