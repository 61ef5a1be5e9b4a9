"""The sensors of NVIDIA GPUs: the real pynvml in this process, the fake library, simulated time."""

import pynvml
import pytest
from costprobe.adapters.sensors.child.device_thread import MAX_PROCESSES, busy_by_pid_s
from costprobe.adapters.sensors.child.nvidia import nvidia_sensors
from costprobe.adapters.sensors.child.nvml import (
    HINTS,
    NO_DRIVER,
    REACTIONS,
    RECORD_BYTES,
    fault_of,
    nvml_call,
)
from costprobe.adapters.sensors.messages import (
    Reaction,
    SensorFault,
    Shares,
    decode,
    encode,
    parse_reading,
)
from costprobe.pricing.book import PriceBook
from costprobe.pricing.plans import OnDemandPlan
from costprobe.savings.placements import slices_of
from fakes.worker import WorkerBench, context_of, worker_of
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


# What a full sample has if a function fails; those of the first are in quick samples, too.
FUNCTIONS = {
    "nvmlDeviceGetFieldValues": {"power_w": None, "power_instant_w": None},
    "nvmlDeviceGetUtilizationRates": {"util_pct": None, "mem_util_pct": None},
    "field:185": {"power_w": 310.0},  # the instantaneous power replaces the average
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
    for function, lacking in FUNCTIONS.items():
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


@pytest.mark.parametrize("record_bytes", RECORD_BYTES)
def test_processes_are_read_whatever_the_size_of_the_drivers_records(simulated, record_bytes):
    simulated.set_process_record(record_bytes)
    sensor = opened(simulated)[0]
    for count in (0, 1, 2, 7, 31):
        simulated.gpus[0].set_processes(range(100, 100 + count), mps_pids=[5])
        assert sensor.sample().pids == (5, *range(100, 100 + count))


def test_rows_of_utilization_that_the_driver_never_filled_are_discarded(simulated):
    gpu = simulated.gpus[0]
    gpu.keep_busy({10: 90, 11: 7})
    gpu.set(unfilled_count=96)
    assert opened(simulated)[0].util_by_pid_pct(0) == {10: 90.0, 11: 7.0}
    gpu.keep_busy({10: 90})
    assert opened(simulated)[0].util_by_pid_pct(0) == {10: 90.0}


def test_ended_process_and_graphics_process_are_identified(simulated):
    gpu, sensor = simulated.gpus[0], opened(simulated)[0]
    gpu.set_processes([10, 11])
    sensor.sample()
    gpu.set_processes([10], busy_pids=[10, 11, 12])
    gpu.set_graphics([12])
    simulated.clock.move(5)
    assert sensor.util_by_pid_pct(0) == {10: 50.0, 11: 50.0, 12: 50.0}
    simulated.clock.move(601)
    sensor.sample()
    assert sensor.util_by_pid_pct(0) == {10: 50.0, 12: 50.0}


def test_shares_of_time_are_summed_to_seconds():
    shares = [Shares(10 * S, 11 * S, [(7, 50.0)]), Shares(11 * S, 13 * S, [(7, 25.0), (8, 100.0)])]
    assert busy_by_pid_s(shares) == pytest.approx({7: 1.0, 8: 2.0})
    assert busy_by_pid_s([]) == {}
    # One sample without shares, or too many processes, make the interval unknown.
    assert busy_by_pid_s([*shares, Shares(13 * S, 14 * S, None)]) is None
    many = [(pid, 1.0) for pid in range(MAX_PROCESSES + 1)]
    assert busy_by_pid_s([Shares(0, S, many)]) is None


@pytest.mark.parametrize("is_configured", [True, False])
def test_rows_have_the_time_of_processes_only_if_configured(simulated, is_configured):
    simulated.gpus[0].keep_busy({7: 30, 8: 10})
    bench = worker_of(simulated, aggregate_s=5.0, selftest_s=0.0, processes=is_configured)
    bench.run(13)
    readings = [parse_reading(decode(encode(message))) for message in bench.of("reading")]
    assert len(readings) >= 2
    calls = simulated.calls("nvmlDeviceGetProcessUtilization")
    assert (calls > 0) is is_configured
    for reading in readings:
        length_s = (reading.end_ns - reading.start_ns) / S
        expected = {7: pytest.approx(0.3 * length_s), 8: pytest.approx(0.1 * length_s)}
        assert reading.busy_by_pid_s == (expected if is_configured else None)


GPU_W, MORE_W = 300.0, 150.0
MODULE = {"module_extra_w": MORE_W, "counter_extra_w": MORE_W}
# What the driver offers, and the scope that power and energy must have.
BOARDS = {
    "no module": ({}, "device"),
    "no module, and a driver that ignores the scope": ({"ignores_scope": 1}, "device"),
    "GH200: the counter is the module's": (MODULE, "module"),
    "module without power of the GPU": ({**MODULE, "has_no_gpu_power": 1}, "module"),
    "a counter of each scope": ({**MODULE, "counts_by_scope": 1}, "device"),
    "module whose counter is the GPU's": ({"module_extra_w": MORE_W}, "device"),
}


@pytest.fixture
def fake(simulated):
    simulated.gpus[0].set_power(GPU_W)
    simulated.clock.move(20)
    return simulated


@pytest.mark.parametrize("board", BOARDS)
def test_power_and_energy_of_a_board_have_one_scope(fake, board):
    values, scope = BOARDS[board]
    fake.gpus[0].set(**values)
    bench = worker_of(fake)
    bench.run(40)
    # Whatever was assumed first, no result of the self-test calls the board suspect.
    assert [message["suspect"] for message in bench.of("selftest")] == [False]
    watts = GPU_W + (MORE_W if scope == "module" else 0)
    last = bench.of("reading")[-1]
    assert last["fields"]["power_w"] == pytest.approx(watts)
    spanned_s = (last["end_ns"] - last["start_ns"]) / 1e9
    assert last["fields"]["energy_j"] == pytest.approx(watts * spanned_s, rel=0.02)
    assert last["fields"].get("energy_scope", "device") == scope
    energy = bench.energy_of_a_window(6)
    assert (energy["method"], energy["scope"]) == ("counter", scope)
    assert energy["energy_j"] == pytest.approx(watts * 6, rel=0.02)


def test_energy_of_every_instant_is_counted_once_while_the_scope_is_corrected(fake):
    fake.gpus[0].set(module_extra_w=MORE_W)
    bench = worker_of(fake)
    bench.run(60)
    readings = bench.of("reading")
    # One sample interval passes between the two scopes.
    spanned_s = (readings[-1]["end_ns"] - readings[0]["start_ns"]) / 1e9
    counted_j = sum(reading["fields"]["energy_j"] for reading in readings)
    assert counted_j == pytest.approx(GPU_W * spanned_s, abs=1.1 * GPU_W)


def test_power_without_a_counter_is_that_of_the_module(fake):
    fake.gpus[0].set(**MODULE)
    fake.fail("nvmlDeviceGetTotalEnergyConsumption", 3)
    fake.gpus[0].buffer_samples()
    bench = worker_of(fake)
    bench.run(30)
    energy = bench.energy_of_a_window(6)
    assert (energy["method"], energy["scope"]) == ("samples", "module")
    assert energy["energy_j"] == pytest.approx((GPU_W + MORE_W) * 6, rel=0.02)


ERRORS = {
    name.removeprefix("NVML_ERROR_"): value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}


def test_codes_have_their_names_and_reactions():
    expected = {
        "UNINITIALIZED": Reaction.RESTART,
        "NOT_SUPPORTED": Reaction.ABSENT,
        "FUNCTION_NOT_FOUND": Reaction.ABSENT,
        "NO_PERMISSION": Reaction.ABSENT,
        "TIMEOUT": Reaction.TRANSIENT,
        "UNKNOWN": Reaction.TRANSIENT,
        "GPU_IS_LOST": Reaction.QUARANTINE,
        "RESET_REQUIRED": Reaction.QUARANTINE,
        "LIB_RM_VERSION_MISMATCH": Reaction.RESTART,
        "DRIVER_NOT_LOADED": Reaction.RESTART,
    }
    faults = {name: fault_of("nvmlX", ERRORS[name]) for name in expected}
    assert {fault.code: fault.reaction for fault in faults.values()} == expected
    unknown = fault_of("nvmlX", 4242)
    assert (unknown.code, unknown.reaction) == ("CODE_4242", Reaction.TRANSIENT)
    assert set(HINTS) | NO_DRIVER | set(REACTIONS) <= set(ERRORS)
    lost = fault_of("nvmlDeviceGetPowerUsage", 15, "GPU is lost.")
    assert str(lost).startswith("nvmlDeviceGetPowerUsage: GPU_IS_LOST: GPU is lost; it has fallen")


def test_errors_of_pynvml_are_translated():
    # No driver's library is initialized in this process.
    cases = {
        ("nvmlDeviceGetCount",): ("UNINITIALIZED", Reaction.RESTART),
        ("nvmlDeviceGetSomethingOfTheFuture",): ("FUNCTION_NOT_FOUND", Reaction.ABSENT),
        ("nvmlDeviceGetHandleByIndex", "no number"): ("FAILED", Reaction.TRANSIENT),
    }
    for call, expected in cases.items():
        with pytest.raises(SensorFault) as caught:
            nvml_call(*call)
        assert (caught.value.code, caught.value.reaction) == expected, call
