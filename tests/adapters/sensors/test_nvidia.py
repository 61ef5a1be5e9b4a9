"""The sensors of NVIDIA GPUs: the real pynvml in this process, the fake library, simulated time."""

import pytest
from costprobe.adapters.sensors.child.device_thread import MAX_PROCESSES, busy_by_pid_s
from costprobe.adapters.sensors.child.nvidia import nvidia_sensors
from costprobe.adapters.sensors.child.nvml import RECORD_BYTES, fault_of, nvml_call
from costprobe.adapters.sensors.messages import (
    Reaction,
    SensorFault,
    Shares,
    decode,
    encode,
    parse_reading,
)
from costprobe.savings.placements import slices_of
from fakes.worker import context_of, worker_of
from record.record_files import check_outcomes

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


FAST = ("t_ns", "power_w", "power_instant_w", "util_pct", "mem_util_pct", "sm_clock_mhz")


def test_full_sample_has_every_metric_a_quick_one_the_fast_and_both_lose_only_those_that_fail(
    simulated,
):
    sensor, faults = opened(simulated)
    gpu = simulated.gpus[0]
    gpu.set(util_pct=73, mem_util_pct=12, sm_clock_mhz=1410, mem_clock_mhz=2619, temp_c=64)
    gpu.set_processes(range(20, 50), mps_pids=[12])
    gpu.throttle(power_share=0.25, thermal_share=0.11)
    simulated.clock.move(100)
    gpu.set_power(310.0)
    simulated.clock.move(0.5)  # the average of the last second lags behind the instantaneous power
    full = sensor.sample()
    assert {name for name, value in full._asdict().items() if value is None} == {
        "counter",
        "dram_j",
    }
    assert full.pids == (12, *range(20, 50))
    assert full.throttle_power_s > full.throttle_thermal_s > 0
    assert full.power_w < full.power_instant_w == 310.0
    quick = sensor.sample(quick=True)
    assert quick == type(quick)(**{name: getattr(full, name) for name in FAST}, is_quick=True)

    def lost(function):
        failure = simulated.fail(function, 999)
        found = sensor.sample()
        failure.clear()
        assert sensor.sample() == full
        return differences(found, full)

    check_outcomes("nvml_failures.json", lost)
    assert faults == []


def differences(sample, other):
    """What a sample has where another has something else."""
    before = other._asdict()
    return {name: value for name, value in sample._asdict().items() if value != before[name]}


def test_older_drivers_are_read_by_older_calls(simulated):
    simulated.gpus[0].set_processes([7])
    current = opened(simulated)[0].sample()

    def older(functions):
        for function in functions.split():
            simulated.fail(function, FUNCTION_NOT_FOUND)
        found = opened(simulated)[0].sample()
        simulated.clear()
        return differences(found, current)

    check_outcomes("nvml_older.json", older)


def test_throttled_time_is_summed_from_reasons_where_the_driver_does_not_count(simulated):
    gpu = simulated.gpus[0]
    for refused in ("nvmlDeviceGetViolationStatus", "nvmlDeviceGetCurrentClocksEventReasons"):
        simulated.fail(refused, NOT_SUPPORTED)
        gpu.set(event_reasons=0x04)
        sensor, _ = opened(simulated)
        samples = [sensor.sample()]
        for reasons in (0x08, 0x00, 0x00):
            simulated.clock.move(1)
            samples.append(sensor.sample(quick=True))
            gpu.set(event_reasons=reasons)
        throttled_s = [(one.throttle_power_s, one.throttle_thermal_s) for one in samples]
        assert throttled_s == [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (1.0, 1.0)], refused


def test_metric_that_a_board_lacks_is_not_read_again_and_a_denied_one_is_reported(simulated):
    functions = (
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetProcessUtilization",
    )
    for code, reported in ((NOT_SUPPORTED, set()), (NO_PERMISSION, {"NO_PERMISSION"})):
        begun = [simulated.calls(function, gpu=0) for function in functions]
        for function in functions:
            simulated.fail(function, code, gpu=0)
        sensor, faults = opened(simulated)
        for _ in range(5):
            found = sensor.sample().ecc_uncorrected, sensor.read_energy(), sensor.util_by_pid_pct(0)
            assert found == (None, None, None)
        calls = [simulated.calls(function, gpu=0) for function in functions]
        assert calls == [before + 1 for before in begun]
        assert {fault.code for fault in faults} == reported
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
    assert device.memory_bytes == 30 << 30
    assert device.uuid.startswith("MIG-")
    assert second.name == "gpu0.mig1"
    assert first.slices() == []
    whole = sensors_of(simulated)[0][1]
    whole.discover()
    assert whole.slices() == []
    # By the slices of the GPU instances they would be 3 + 3 + 3 + 4 of 7.
    simulated.gpus[0].split((3, 1, 1, 1), (4, 4))
    found = [part.discover() for part in board.slices()]
    assert [(part.slices, part.slices_of) for part in found] == [(1, 7), (1, 7), (1, 7), (4, 7)]
    assert [slices_of(part.model) for part in found] == [1, 1, 1, 4]
    assert found[0].model == "NVIDIA Fake 80GB MIG 1c.3g.30gb"


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


def test_slices_are_unknown_while_the_driver_does_not_list_them(simulated, board):
    for function in ("nvmlDeviceGetMigMode", "nvmlDeviceGetMigDeviceHandleByIndex"):
        for code in (10, 999, NO_PERMISSION):
            failure = simulated.fail(function, code)
            assert board.slices() is None
            failure.clear()
    assert len(board.slices()) == 2


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


def test_processes_are_read_whatever_the_size_of_the_drivers_records(simulated):
    for record_bytes in RECORD_BYTES:
        simulated.set_process_record(record_bytes)
        sensor, _ = opened(simulated)
        for count in (0, 1, 2, 7, 31):
            simulated.gpus[0].set_processes(range(100, 100 + count), mps_pids=[5])
            assert sensor.sample().pids == (5, *range(100, 100 + count)), record_bytes


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


def test_rows_have_the_time_of_processes_only_if_configured(simulated):
    simulated.gpus[0].keep_busy({7: 30, 8: 10})
    for is_configured in (False, True):
        bench = worker_of(simulated, aggregate_s=5.0, selftest_s=0.0, processes=is_configured)
        bench.run(13)
        assert (simulated.calls("nvmlDeviceGetProcessUtilization") > 0) is is_configured
        readings = [parse_reading(decode(encode(message))) for message in bench.of("reading")]
        assert len(readings) >= 2
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


def test_codes_have_their_names_reactions_and_hints():
    def fault(code):
        found = fault_of("nvmlX", int(code))
        return [found.code, found.reaction.value, str(found)]

    check_outcomes("nvml_codes.json", fault)
    # No driver's library is initialized in this process.
    for call, *outcome in (
        (("nvmlDeviceGetCount",), "UNINITIALIZED", Reaction.RESTART),
        (("nvmlDeviceGetSomethingOfTheFuture",), "FUNCTION_NOT_FOUND", Reaction.ABSENT),
        (("nvmlDeviceGetHandleByIndex", "no number"), "FAILED", Reaction.TRANSIENT),
    ):
        with pytest.raises(SensorFault) as caught:
            nvml_call(*call)
        assert [caught.value.code, caught.value.reaction] == outcome, call
