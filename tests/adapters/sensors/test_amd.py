"""The sensors of AMD's boards, and the fake AMD SMI library in simulated time."""

import ctypes
import os
from contextlib import ExitStack
from dataclasses import replace

import pytest
from costprobe.adapters.sensors.child import amd
from costprobe.adapters.sensors.child.amd import amd_sensors
from costprobe.adapters.sensors.messages import Reaction, SensorFault
from fakes.amdsmi import COUNTER_STEP_UJ, MI210, MI250X, RADEON, UNKNOWN, FakeAmdsmi
from fakes.cases import check_all
from fakes.worker import WorkerBench, context_of
from record.record_files import check_outcomes

NOON_NS = 1_780_000_000 * 10**9
INIT_ERROR, DRIVER_NOT_LOADED = 18, 34
NO_NUMBER = 0xFFFFFFFF
GIB = 1 << 30
SERIAL = "GPU-49c8d7c4a2d3b100"


@pytest.fixture
def host(tmp_path):
    """A function that makes a host with boards in this process, in simulated time."""
    with ExitStack() as stack:

        def make(gpus=1):
            fake = FakeAmdsmi(tmp_path, gpus, simulated_utc_ns=NOON_NS)
            stack.enter_context(fake.in_this_process())
            return fake

        yield make


def context(fake, root="/nonexistent", known_models=(), faults=None):
    found = context_of(fake, faults)
    settings = replace(found.settings, sysfs_root=str(root), known_models=known_models)
    return replace(found, settings=settings)


def opened(fake, number=0, **given):
    """The sensor of a board, its device, and the faults that it reported."""
    faults = []
    sensor = amd_sensors(context(fake, faults=faults, **given))[number]
    return sensor, sensor.discover(), faults


def test_board_has_every_metric_and_loses_only_those_that_fail(host):
    fake = host()
    gpu = fake.gpus[0]
    gpu.set(util_pct=73, mem_util_pct=12, hotspot_c=64, ecc_uncorrected=2)
    gpu.set_partition(pids=range(20, 50))
    gpu.set_power(610.0)
    sensor, device, faults = opened(fake)
    assert (device.name, device.kind, device.uuid) == ("amd0", "gpu", SERIAL)
    assert (device.model, device.memory_bytes) == ("AMD Instinct MI300X", 192 * GIB)
    assert device.selector == f"ROCR_VISIBLE_DEVICES={SERIAL} HIP_VISIBLE_DEVICES=0"
    sensor.sample()
    gpu.throttle(power_share=0.25, thermal_share=0.11)
    fake.clock.move(100)
    full = sensor.sample()
    assert {name for name, value in full._asdict().items() if value is None} == {
        "counter",
        "dram_j",
    }
    assert full[1:11] == (610.0, 610.0, 73.0, 12.0, GIB, 192 * GIB, 64.0, 2100.0, 1300.0, 750.0)
    assert (full.throttle_power_s, full.throttle_thermal_s) == (25.0, 11.0)
    assert (full.ecc_uncorrected, full.pids) == (2, tuple(range(20, 50)))

    def lost(function):
        failure = fake.fail(function, 999)
        found = sensor.sample()._asdict()
        failure.clear()
        assert sensor.sample() == full
        return {name: value for name, value in found.items() if value != getattr(full, name)}

    check_outcomes("amdsmi_failures.json", lost)
    assert faults == []


def test_what_the_library_does_not_have_is_absent_and_never_a_figure(host):
    """The largest numbers of 16 and 32 bits, no serial number, no counter: a Radeon."""
    fake = host(gpus=2)
    for gpu in fake.gpus:
        gpu.set(
            name="", product_name="Radeon RX 7900 XTX", serial="N/A", device_id=RADEON,
            averages_power=1, counter_step_uj=0.0, util_pct=UNKNOWN, mem_util_pct=NO_NUMBER,
            hotspot_c=UNKNOWN, edge_c=UNKNOWN, sm_clock_mhz=UNKNOWN, mem_clock_mhz=NO_NUMBER,
            power_limit=303,  # in W
            power_limit_max=(1 << 64) - 1, counts_violations=0, throttlers=(1 << 64) - 1,
            compute_mode="", memory_mode="",
        )  # fmt: skip
        gpu.set_partition(mem_total_bytes=24 * GIB)
    sensor, device, faults = opened(fake, 1)
    assert (device.uuid, device.model) == ("AMD-0000-0d-00-0", "AMD Radeon RX 7900 XTX")
    assert device.selector == "ROCR_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=0"
    sensor.sample()
    fake.clock.move(5)
    values = {name: v for name, v in sensor.sample()._asdict().items() if v is not None}
    assert values.keys() - {"t_ns", "is_quick", "pids", "mem_used_bytes"} == {
        *("power_w", "power_instant_w", "mem_total_bytes", "power_limit_w", "ecc_uncorrected"),
    }
    assert (values["power_w"], values["power_limit_w"]) == (140.0, 303.0)
    assert sensor.read_energy() is None
    assert faults == []
    # Without a counter, energy is integrated from the power.
    bench = WorkerBench(fake, sensor, selftest_s=0.0)
    bench.run(31)
    fields = bench.of("reading")[-1]["fields"]
    assert (fields["energy_method"], fields["energy_j"]) == ("poll", pytest.approx(1400, rel=0.01))


def test_throttled_time_is_summed_from_the_state_where_the_firmware_does_not_count(host):
    fake = host()
    for numbers in ((25, 5, 1, 0), (26, 1, 0), (27, 0, 0)):
        fake.set_version(*numbers)
        # A power limit (PPT1) and the temperature of the memory; then an electric current.
        fake.gpus[0].set(counts_violations=0, throttlers=1 << 1 | 1 << 34)
        sensor, _, faults = opened(fake)
        sensor.sample()
        fake.clock.move(1.5)
        found = sensor.sample(quick=True)
        assert (found.throttle_power_s, found.throttle_thermal_s) == (1.5, 1.5)
        fake.gpus[0].set(throttlers=1 << 16)
        fake.clock.move(1)
        assert sensor.sample(quick=True).throttle_power_s == 1.5
        assert faults == []


def test_energy_counts_by_the_told_step_and_starts_anew_after_a_reset(host):
    fake = host()
    fake.gpus[0].set(device_id=MI210, name="AMD Instinct MI210", averages_power=1)
    sensor, _, _ = opened(fake)
    bench = WorkerBench(fake, sensor, selftest_s=0.0)
    first = sensor.read_energy().energy_j
    assert first == pytest.approx(10**9 * COUNTER_STEP_UJ / 1e6, rel=1e-6)
    bench.run(20.5)
    fake.gpus[0].count_more(-first / 2)
    bench.run(30)
    rows = [message["fields"] for message in bench.of("reading")]
    assert [round(row["energy_j"], -1) for row in rows] == [1400] * len(rows)
    assert {row["energy_method"] for row in rows[-2:]} == {"counter"}


def test_a_module_of_two_dies_has_power_and_energy_on_one_of_them(host):
    fake = host(gpus=2)
    for number, gpu in enumerate(fake.gpus):
        gpu.set(name="AMD Instinct MI250X", device_id=MI250X, averages_power=1)
        gpu.set(is_second_die=number, compute_mode="", serial="0x49C8D7C4A2D3B100")
        gpu.set_power(500.0)
    sensors = amd_sensors(context(fake))
    assert [sensor.discover().uuid for sensor in sensors] == [SERIAL, "AMD-0000-0d-00-0"]
    rows = []
    for sensor in sensors:
        bench = WorkerBench(fake, sensor, selftest_s=0.0)
        bench.run(21)
        rows.append(bench.of("reading")[-1]["fields"])
    first, second = rows
    assert (first["power_w"], first["energy_scope"]) == (500.0, "module")
    assert first["energy_j"] == pytest.approx(5000, rel=0.01)
    assert not second.keys() & {"power_w", "power_max_w", "energy_j"}
    assert second["util_pct"] == 0


def test_partitions_have_memory_and_processes_of_their_own_and_the_board_the_energy(host):
    """The library has the memory of the whole board for its first partition, or of the partition."""
    fake = host()
    gpu = fake.gpus[0]
    gpu.divide(8, "CPX", "NPS4")
    for number in range(1, 8):
        gpu.set_partition(number, pids=[100 + number], mem_used_bytes=number * GIB)
    for first_gib, used_gib, first_bytes in ((192, 20, None), (24, 20 + sum(range(8)), 24 * GIB)):
        gpu.set_partition(0, mem_total_bytes=first_gib * GIB, mem_used_bytes=20 * GIB)
        board, device, _ = opened(fake)
        whole = board.sample()
        assert (device.memory_bytes, whole.mem_used_bytes) == (192 * GIB, used_gib * GIB)
        assert whole.pids == tuple(range(101, 108))
        slices = board.slices()
        devices = [each.discover() for each in slices]
        assert devices[0].memory_bytes == first_bytes
    assert [each.name for each in devices] == [f"amd0.xcp{number}" for number in range(8)]
    assert {(each.slices, each.slices_of, each.parent) for each in devices} == {(1, 8, "amd0")}
    assert (devices[3].uuid, devices[3].model) == (
        f"{SERIAL}-xcp3",
        "AMD Instinct MI300X XCP CPX/NPS4",
    )
    assert devices[3].selector == "ROCR_VISIBLE_DEVICES=3 HIP_VISIBLE_DEVICES=0"
    sample = slices[3].sample()
    assert (sample.mem_used_bytes, sample.pids) == (3 * GIB, (103,))
    assert (sample.power_w, sample.util_pct, sample.sm_clock_mhz) == (None, None, 2100.0)
    assert slices[3].slices() == []
    gpu.set(compute_mode="DPX")
    with pytest.raises(SensorFault, match="changed from CPX to DPX") as refused:
        board.slices()
    assert refused.value.reaction is Reaction.RESTART


def test_the_drivers_files_decide_the_identity_of_a_board_and_its_memory_if_it_is_divided(
    host, tmp_path
):
    fake = host(gpus=2)
    fake.gpus[0].divide(2, "DPX", "NPS1")
    for number in range(2):
        fake.gpus[0].set_partition(number, mem_total_bytes=192 * GIB, mem_used_bytes=7 * GIB)
    files = tmp_path / "sys/bus/pci/devices"
    for address, size in (("0000:0c:00.0", 192 * GIB), ("0000:0d:00.0", GIB // 2)):
        (files / address).mkdir(parents=True)
        (files / address / "mem_info_vram_total").write_text(f"{size}\n")
    (files / "0000:0c:00.0" / "unique_id").write_text("0123456789abcdef\n")
    # The second is a GPU of a processor, without memory of its own.
    (board,) = amd_sensors(context(fake, tmp_path))
    device = board.discover()
    assert (device.memory_bytes, device.uuid) == (192 * GIB, "GPU-0123456789abcdef")
    assert board.sample().mem_used_bytes == 7 * GIB
    assert [each.discover().memory_bytes for each in board.slices()] == [None, None]


def test_a_library_of_unknown_structures_is_refused_with_the_versions_that_are_known(host):
    fake = host()
    for numbers, name in (((24, 7, 1, 0), "24.7.1.0"), ((28, 0, 0), "28.0.0")):
        fake.set_version(*numbers)
        with pytest.raises(SensorFault) as refused:
            amd_sensors(context(fake))
        text = str(refused.value)
        assert all(words in text for words in (f"libamd_smi.so {name}", "25 to 27", "ROCM_PATH"))
    for numbers, name in (((25, 5, 1, 0), "25.5.1.0"), ((27, 0, 0), "27.0.0")):
        fake.set_version(*numbers)
        found = context(fake)
        assert amd_sensors(found)
        assert found.versions["AMD SMI"] == name
        assert found.versions["AMD driver"].startswith("of Linux ")


def test_a_driver_that_cannot_be_used_is_a_fault_only_where_a_board_belongs(host, tmp_path):
    fake = host(gpus=0)
    device = tmp_path / "sys/bus/pci/devices/0000:0c:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")

    def check(class_, models, failing, *expected):
        (device / "class").write_text(f"{class_}\n")
        rule = fake.fail("amdsmi_init", failing)
        try:
            found = str(amd_sensors(context(fake, tmp_path, models)))
        except SensorFault as fault:
            found = f"{fault} {fault.reaction.value}"
        rule.clear()
        assert [word for word in expected if word not in found] == []

    known = ("AMD Instinct MI210", "NVIDIA L4")
    no_device = ("NO_DEVICE", "transient", "0000:0c:00.0 is an AMD", "/dev/kfd", "gpus = false")
    check_all(
        check,
        (
            ("0x120000", (), 0, *no_device),
            ("0x038000", (), DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED", "modprobe amdgpu"),
            ("0x030000", (), 0, "[]"),
            ("0x030000", ("NVIDIA L4",), 0, "[]"),
            ("0x030000", (), INIT_ERROR, "INIT_ERROR", "amdsmi_init"),
            ("0x020000", (), INIT_ERROR, "[]"),
            ("0x030000", known, 0, "NO_DEVICE", "the store has an AMD GPU"),
        ),
    )


def test_a_library_that_is_there_and_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    # Without the one that other tests have loaded.
    monkeypatch.setattr(amd, "LIBRARY", "libamd_smi.so.of-no-host")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / amd.LIBRARY).write_bytes(b"")
    with pytest.raises(SensorFault, match="file too short; install AMD SMI") as refused:
        amd.open_library({"ROCM_PATH": str(tmp_path)})
    assert refused.value.code == "LIBRARY_NOT_FOUND"


def test_all_processes_of_the_board_are_listed_unless_they_are_hidden(host, monkeypatch):
    fake = host()
    sensor, _, _ = opened(fake)
    fake.gpus[0].set_partition(pids=range(1, 33))
    monkeypatch.setattr(amd, "PROCESSES_FIRST", 3)
    assert sensor.sample().pids == tuple(range(1, 33))
    fake.gpus[0].set_partition(pids=[7, 8, 9], using=2)
    assert sensor.sample().pids == (7, 8)
    monkeypatch.setattr(amd.os, "geteuid", lambda: 0)
    fake.gpus[0].set_partition(pids=[os.getpid()], using=0)
    assert sensor.sample().pids == ()
    # Before ROCm 10 another user sees an empty list in place of processes that are not its own.
    monkeypatch.setattr(amd.os, "geteuid", lambda: 1000)
    assert sensor.sample().pids is None


def test_structures_have_the_offsets_of_the_header():
    """Offsets that the wrappers of ROCm 6.4.4 and 7.0.2 have in common (amdsmi_wrapper.py)."""
    offsets = {
        "_Asic": {"device_id": 520, "asic_serial": 532},
        "_Power": {"average_socket_power": 12},
        "_PowerCap": {"most": 32},
        "_Violations": {"hbm": 56},
        "_Process": {"pid": 256},
        "_Board": {"product_name": 768},
        "_Enumeration": {"hip_id": 12},
    }
    found = {
        kind: {name: getattr(getattr(amd, kind), name).offset for name in fields}
        for kind, fields in offsets.items()
    }
    assert found == offsets
    assert ctypes.sizeof(amd._Process) == 704  # noqa: SLF001 - what the test is about
