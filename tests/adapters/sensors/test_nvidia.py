"""The sensors of NVIDIA GPUs: the real pynvml in this process, the fake library, simulated time."""

import pytest
from costprobe.adapters.sensors.child.nvidia import nvidia_sensors
from costprobe.adapters.sensors.messages import Reaction, SensorFault
from costprobe.pricing.book import PriceBook
from costprobe.pricing.plans import OnDemandPlan
from costprobe.savings.placements import slices_of
from fakes.worker import WorkerBench, context_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

S = 10**9
NOON_NS = 1_780_000_000 * S
NOT_SUPPORTED = 3
NO_PERMISSION = 4
FUNCTION_NOT_FOUND = 13


def opened(fake):
    """The sensor of the first GPU, and the faults that it reported."""
    (sensor, *_), faults = sensors_of(fake)
    sensor.discover()
    return sensor, faults


def sensors_of(fake):
    """The sensors of all GPUs, and the faults that they reported."""
    faults = []
    return nvidia_sensors(context_of(fake, faults)), faults


QUICK_FUNCTIONS = (
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetClockInfo",
)


def test_quick_sample_equals_a_full_one_in_its_metrics_with_three_calls(simulated):
    sensor, faults = opened(simulated)
    simulated.gpus[0].set(util_pct=73, mem_util_pct=12, sm_clock_mhz=1410)
    simulated.gpus[0].set_power(310.0)
    simulated.clock.move(0.5)  # the average of the last second lags behind the instantaneous power
    full = sensor.sample()
    assert full.power_w != full.power_instant_w
    before = [simulated.calls(function) for function in QUICK_FUNCTIONS]
    quick = sensor.sample(quick=True)
    assert [simulated.calls(function) for function in QUICK_FUNCTIONS] == [n + 1 for n in before]
    kept = ("t_ns", "power_w", "power_instant_w", "util_pct", "mem_util_pct", "sm_clock_mhz")
    assert quick == type(quick)(**{name: getattr(full, name) for name in kept}, is_quick=True)
    assert faults == []


def test_one_failing_call_leaves_the_other_metrics_and_recovers(simulated):
    sensor, _ = opened(simulated)
    simulated.gpus[0].set(util_pct=73, sm_clock_mhz=1410)
    full = sensor.sample()
    wrong = {}
    for function, known in {
        "nvmlDeviceGetFieldValues": (None, 73.0, 1410.0),
        "nvmlDeviceGetUtilizationRates": (60.0, None, 1410.0),
        "nvmlDeviceGetClockInfo": (60.0, 73.0, None),
        "field:185": (60.0, 73.0, 1410.0),  # the instantaneous power replaces the average
    }.items():
        failure = simulated.fail(function, 999)
        quick = sensor.sample(quick=True)
        failure.clear()
        if (quick.power_w, quick.util_pct, quick.sm_clock_mhz) != known or sensor.sample() != full:
            wrong[function] = quick
    assert wrong == {}


# The metrics that are in full samples only, and what a full sample has if its function fails.
SLOW_FUNCTIONS = {
    "nvmlDeviceGetMemoryInfo_v2": {"mem_used_bytes": None, "mem_total_bytes": None},
    "nvmlDeviceGetTemperatureV": {"temp_c": None},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_w": None},
    "nvmlDeviceGetViolationStatus": {"throttle_power_s": None, "throttle_thermal_s": None},
    "nvmlDeviceGetTotalEccErrors": {"ecc_uncorrected": None},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"pids": (12,)},
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": {"pids": tuple(range(20, 50))},
}


def test_full_sample_has_every_metric_and_loses_only_those_that_fail(simulated):
    sensor, _ = opened(simulated)
    gpu = simulated.gpus[0]
    gpu.set(util_pct=73, mem_util_pct=12, sm_clock_mhz=1410, mem_clock_mhz=2619, temp_c=64)
    gpu.set(mem_used_bytes=7 << 30)
    gpu.set_power(310.0)
    gpu.set_processes(range(20, 50), mps_pids=[12])
    gpu.throttle(power_share=0.25, thermal_share=0.11)
    simulated.clock.move(100.5)
    full = sensor.sample()
    assert [name for name, value in full._asdict().items() if value is None] == [
        "counter",
        "dram_j",
    ]
    assert full.pids == (12, *range(20, 50))
    assert full.throttle_power_s > full.throttle_thermal_s > 0
    wrong = {}
    for function, lacking in SLOW_FUNCTIONS.items():
        failure = simulated.fail(function, 999)
        found = sensor.sample()
        failure.clear()
        if found != full._replace(**lacking) or sensor.sample() != full:
            wrong[function] = found
    assert wrong == {}


def test_older_drivers_are_read_by_older_calls(simulated):
    simulated.gpus[0].set_processes([7])
    wrong = {}
    for missing, expected in (
        (["field:185"], {"power_w": 60.0}),
        (["field:186"], {"power_w": 60.0}),
        (["field:185", "field:186"], {"power_w": 60.0}),
        (["nvmlDeviceGetFieldValues"], {"power_w": 60.0}),
        (["nvmlDeviceGetMemoryInfo_v2"], {"mem_used_bytes": (1 << 30) + (1 << 29)}),
        (["nvmlDeviceGetTemperatureV"], {"temp_c": 35.0}),
        (["nvmlDeviceGetComputeRunningProcesses_v3"], {"pids": (7,)}),
    ):
        for function in missing:
            simulated.fail(function, FUNCTION_NOT_FOUND)
        sensor, _ = opened(simulated)
        found = sensor.sample()._asdict()
        if not found.items() >= expected.items():
            wrong[tuple(missing)] = found
        simulated.clear()
    assert wrong == {}


def test_throttled_time_is_summed_from_reasons_where_the_driver_does_not_count(simulated):
    for refused in ((), ("nvmlDeviceGetCurrentClocksEventReasons",)):
        for function in ("nvmlDeviceGetViolationStatus", *refused):
            simulated.fail(function, NOT_SUPPORTED)
        sensor, _ = opened(simulated)
        simulated.gpus[0].set(event_reasons=0x04)
        samples = [sensor.sample()]
        for reasons in (0x08, 0x00):
            simulated.clock.move(1)
            samples.append(sensor.sample(quick=True))
            simulated.gpus[0].set(event_reasons=reasons)
        simulated.clock.move(1)
        samples.append(sensor.sample(quick=True))
        simulated.clear()
        assert [(s.throttle_power_s, s.throttle_thermal_s) for s in samples] == [
            (0.0, 0.0),
            (1.0, 0.0),
            (1.0, 1.0),
            (1.0, 1.0),
        ]


def test_metric_that_a_board_lacks_is_not_read_again_and_a_denied_one_is_reported(simulated):
    for code, reported in ((NOT_SUPPORTED, []), (NO_PERMISSION, ["NO_PERMISSION"])):
        functions = (
            "nvmlDeviceGetTotalEccErrors",
            "nvmlDeviceGetTotalEnergyConsumption",
            "nvmlDeviceGetProcessUtilization",
        )
        begun = [simulated.calls(function, gpu=0) for function in functions]
        for function in functions:
            simulated.fail(function, code, gpu=0)
        sensor, faults = opened(simulated)
        found = {
            (sensor.sample().ecc_uncorrected, sensor.read_energy(), sensor.util_by_pid_pct(0))
            for _ in range(5)
        }
        assert found == {(None, None, None)}
        calls = [simulated.calls(function, gpu=0) for function in functions]
        assert calls == [before + 1 for before in begun]
        metrics = {fault.code for fault in faults}
        assert sorted(metrics) == reported
        assert all("/dev/nvidia" in fault.detail for fault in faults)
        simulated.clear()


def test_gpus_are_found_without_the_versions_of_their_driver(simulated):
    names = ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion")
    failures = [simulated.fail(name, code) for name, code in zip(names, (999, 15), strict=True)]
    sensors, faults = sensors_of(simulated)
    assert [sensor.discover().name for sensor in sensors] == ["gpu0", "gpu1"]
    assert [fault.code for fault in faults] == ["UNKNOWN", "GPU_IS_LOST"]
    for failure in failures:
        failure.clear()
    assert sensors_of(simulated)[1] == []


def test_transient_error_is_reported_after_three_samples_until_it_passes(simulated):
    sensor, faults = opened(simulated)
    for code in (10, 999):
        failure = simulated.fail("nvmlDeviceGetUtilizationRates", code)
        reported = []
        for _ in range(5):
            assert sensor.sample().util_pct is None
            reported.append(len(faults))
        failure.clear()
        assert reported == [0, 0, 1, 1, 1]
        assert faults.pop().reaction is Reaction.TRANSIENT
        assert sensor.sample().util_pct == 0.0


def test_host_without_a_driver_has_no_sensors(simulated):
    for code in (9, 12):
        absent = simulated.fail("nvmlInitWithFlags", code)
        assert sensors_of(simulated) == ([], [])
        absent.clear()


@pytest.fixture
def board(simulated):
    """A board that is partitioned into MIG devices of 3 and 2 slices."""
    simulated.gpus[0].split(3, 2)
    sensor, _ = opened(simulated)
    return sensor


def test_mig_devices_are_found_on_their_board(simulated, board):
    first, second = board.slices()
    device = first.discover()
    assert (device.name, device.kind, device.parent) == ("gpu0.mig0", "mig", "gpu0")
    assert (device.slices, device.slices_of, device.memory_bytes) == (3, 7, 30 << 30)
    assert device.uuid.startswith("MIG-")
    assert device.model == "NVIDIA Fake 80GB MIG 3g.30gb"
    assert second.name == "gpu0.mig1"
    assert first.slices() == []
    whole = sensors_of(simulated)[0][1]
    whole.discover()
    assert whole.slices() == []


# The slices of GPU instances, each divided into those of its compute instances.
MIXES = st.lists(
    st.integers(1, 7).flatmap(
        lambda slices: (
            st.lists(st.integers(1, slices), min_size=1, max_size=slices)
            .filter(lambda counts: sum(counts) <= slices)
            .map(lambda counts: (slices, *counts))
        )
    ),
    max_size=7,
).filter(lambda mix: sum(slices for slices, *_ in mix) <= 7)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mix=MIXES)
@example(mix=[(3, 1, 1, 1), (4, 4)])  # by the slices of the GPU instances: 3 + 3 + 3 + 4 of 7
def test_prices_of_compute_instances_and_the_idle_rest_add_up_to_the_board(simulated, mix):
    simulated.gpus[0].split(*mix)
    whole, _ = opened(simulated)
    devices = [whole.discover(), *(part.discover() for part in whole.slices())]
    plan = OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": 7})
    book = PriceBook([plan], None, devices)
    prices = [book.terms(device.name, NOON_NS).rate.per_hour for device in devices]
    counts = [count for _, *counts in mix for count in counts]
    assert [float(price) for price in prices] == [7 - sum(counts), *counts]
    assert [slices_of(device.model) for device in devices[1:]] == counts


def test_mig_device_has_memory_and_processes_of_its_own_and_no_power(simulated, board):
    simulated.gpus[0].set_mig(1, pids=[77, 78], mem_used_bytes=5 << 30)
    _, mig = board.slices()
    mig.discover()
    sample = mig.sample()
    assert (sample.mem_used_bytes, sample.mem_total_bytes) == (5 << 30, 20 << 30)
    assert (sample.pids, sample.sm_clock_mhz) == ((77, 78), 1980)
    assert (sample.power_w, sample.util_pct) == (None, None)
    # The driver has no utilization of a divided board.
    assert (board.sample().power_w, board.sample().util_pct) == (60.0, None)


def test_mig_device_that_was_destroyed_is_gone_and_not_faulty(simulated, board):
    for change in (lambda gpu: gpu.split(3, 2), lambda gpu: gpu.unsplit()):
        mig, _ = board.slices()
        mig.discover()
        change(simulated.gpus[0])
        with pytest.raises(SensorFault) as caught:
            mig.sample()
        assert caught.value.reaction is Reaction.GONE
    with pytest.raises(SensorFault) as caught:
        mig.discover()
    assert caught.value.reaction is Reaction.GONE


def test_slices_are_unknown_while_the_driver_does_not_list_them(simulated, board):
    for function in ("nvmlDeviceGetMigMode", "nvmlDeviceGetMigDeviceHandleByIndex"):
        for code in (10, 999, NO_PERMISSION):
            failure = simulated.fail(function, code)
            assert board.slices() is None
            failure.clear()
    assert len(board.slices()) == 2


def test_board_has_utilization_again_when_mig_mode_is_off(simulated, board):
    simulated.gpus[0].set(util_pct=64)
    simulated.gpus[0].set_processes([7])
    assert (board.sample().util_pct, board.util_by_pid_pct(0)) == (None, None)
    assert len(board.slices()) == 2
    simulated.gpus[0].unsplit()
    assert board.slices() == []
    assert (board.sample().util_pct, board.util_by_pid_pct(0)) == (64.0, {7: 50.0})


def test_energy_of_a_mig_device_is_its_boards_and_not_in_its_row(simulated, board):
    worker = WorkerBench(simulated, board.slices()[0], selftest_s=0.0)
    worker.run(3)
    simulated.gpus[0].set_power(420.0)
    worker.run(2)
    answer = worker.energy_of_a_window(6)
    assert (answer["method"], answer["scope"]) == ("counter", "parent")
    assert answer["energy_j"] == pytest.approx(420 * 6, rel=0.02)
    for reading in worker.of("reading"):
        assert reading["fields"].keys().isdisjoint({"power_w", "energy_j", "energy_method"})


def test_text_of_a_driver_may_be_any_bytes(simulated):
    """Its boards are found and sampled, with printable text, and keep their identity."""
    simulated.set_versions(b"580\xff.1", b"")
    first, second = simulated.gpus
    first.set(name=b"NVIDIA \xc3\x28 80GB\n", uuid=b"")
    second.set(name=b"")
    second.split(3, 2)
    second.set_mig(0, name=b"MIG \xff 3g", uuid=b"")
    second.set_mig(1, name=b"", uuid=b"MIG-\xff")
    context = context_of(simulated)
    sensors = nvidia_sensors(context)
    assert context.versions == {"driver_version": "580\ufffd.1", "nvml_version": ""}
    boards = [each.discover() for each in sensors]
    sensors += sensors[1].slices()
    devices = [*boards, *(each.discover() for each in sensors[2:])]
    assert [(device.uuid, device.model) for device in devices] == [
        ("gpu0", "NVIDIA \ufffd( 80GB"),
        ("GPU-00000001-fake-4000-8000-000000000000", "NVIDIA GPU"),
        ("gpu1.mig0", "MIG \ufffd 3g"),
        ("MIG-\ufffd", "NVIDIA GPU"),
    ]
    assert [each.sample().mem_total_bytes >> 30 for each in sensors] == [80, 80, 30, 20]
    assert [each.discover() for each in sensors] == devices
