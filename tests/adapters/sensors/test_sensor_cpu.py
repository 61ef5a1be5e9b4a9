import pytest
from costprobe.adapters.sensors.child.cpu import (
    CpuSensor,
    CpuTicks,
    ModelledCounter,
    find_temperature_files,
    parse_meminfo,
    parse_stat,
    read_temperatures_c,
    utilization,
)
from costprobe_probes.processor import processor_name
from hypothesis import given
from hypothesis import strategies as st

STAT = """\
cpu  100 20 30 800 40 5 5 10 7 3
cpu0 50 10 15 400 20 2 3 5 3 1
cpu1 50 10 15 400 20 3 2 5 4 2
intr 12345 0 0
ctxt 99
"""
MEMINFO = """\
MemTotal:       16000000 kB
MemFree:         1000000 kB
MemAvailable:   12000000 kB
Buffers:          100000 kB
"""


def arm_cpuinfo(*cores):
    """/proc/cpuinfo of arm64 with cores given by implementer and part."""
    return "".join(
        f"processor\t: {i}\nBogoMIPS\t: 50.00\nCPU implementer\t: {implementer:#04x}\n"
        f"CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {part:#05x}\nCPU revision\t: 1\n\n"
        for i, (implementer, part) in enumerate(cores)
    )


class ManualClock:
    def __init__(self):
        self.now_ns = 10**12

    def monotonic_ns(self):
        return self.now_ns

    def boottime_ns(self):
        return self.monotonic_ns()

    def time_ns(self):
        return self.now_ns


def test_stat_counts_busy_without_iowait_steal_and_guest():
    assert parse_stat(STAT) == CpuTicks(busy=160, total=1010)


def test_stat_of_an_old_kernel_has_fewer_columns():
    assert parse_stat("cpu 1 2 3 4\n") == CpuTicks(busy=6, total=10)


@pytest.mark.parametrize("text", ["", "intr 5\n", "cpu 1 2\n"])
def test_stat_without_its_first_line_is_an_error(text):
    with pytest.raises(ValueError, match="/proc/stat"):
        parse_stat(text)


def test_meminfo_gives_used_and_total():
    assert parse_meminfo(MEMINFO) == (4_000_000 * 1024, 16_000_000 * 1024)


def test_meminfo_without_its_lines_is_an_error():
    with pytest.raises(ValueError, match="MemAvailable"):
        parse_meminfo("MemTotal: 5 kB\n")


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (
            "model\t\t: 85\nmodel name\t: Intel(R)  Xeon(R) CPU @ 2.00GHz\n",
            "Intel(R) Xeon(R) CPU @ 2.00GHz",
        ),
        ("processor\t: 0\nModel\t\t: Raspberry Pi 5 Model B\n", "Raspberry Pi 5 Model B"),
        ("cpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("processor : 0\nBogoMIPS : 50.00\n", "CPU"),
        (arm_cpuinfo((0x41, 0xD40), (0x41, 0xD40)), "Arm Neoverse-V1"),
        (arm_cpuinfo((0x41, 0xD0B), (0x41, 0xD05)), "Arm Cortex-A76 + Arm Cortex-A55"),
        (arm_cpuinfo((0x41, 0xD99)), "Arm 0x41/0xd99"),
    ],
)
def test_cpu_model_is_read_on_each_architecture(text, model):
    assert processor_name(text) == model


def test_modelled_energy_is_linear_in_utilization():
    counter = ModelledCounter(idle_w=2.0, max_w=10.0)
    assert counter.add(0, CpuTicks(0, 0)) == 0
    assert counter.add(10 * 10**9, CpuTicks(0, 2000)) == pytest.approx(20)
    assert counter.add(20 * 10**9, CpuTicks(500, 4000)) == pytest.approx(20 + 10 * (2 + 8 / 4))
    assert counter.add(20 * 10**9 + 1, CpuTicks(500, 4000)) is None


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_utilization_is_between_zero_and_one(a, b, c, d):
    share = utilization(CpuTicks(a, b), CpuTicks(c, d))
    assert share is None if d <= b or c < a else 0 <= share <= 1


def make_host(root, stat=STAT):
    (root / "proc").mkdir()
    (root / "proc/stat").write_text(stat)
    (root / "proc/meminfo").write_text(MEMINFO)
    (root / "proc/cpuinfo").write_text("model name : Fake CPU\n")
    (root / "etc").mkdir()
    (root / "etc/machine-id").write_text("0123456789abcdef\n")


def test_cpu_temperature_is_that_of_the_hottest_sensor(tmp_path):
    for i, (name, millidegrees) in enumerate([("nvme", 70000), ("coretemp", 51000)]):
        folder = tmp_path / f"sys/class/hwmon/hwmon{i}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "temp1_input").write_text(f"{millidegrees}\n")
        (folder / "temp2_input").write_text("44000\n")
    assert max(read_temperatures_c(find_temperature_files(tmp_path))) == 51.0


def test_thermal_zones_replace_a_missing_hwmon(tmp_path):
    for i, (kind, millidegrees) in enumerate([("acpitz", 20000), ("x86_pkg_temp", 48000)]):
        folder = tmp_path / f"sys/class/thermal/thermal_zone{i}"
        folder.mkdir(parents=True)
        (folder / "type").write_text(f"{kind}\n")
        (folder / "temp").write_text(f"{millidegrees}\n")
    assert read_temperatures_c(find_temperature_files(tmp_path)) == [48.0]


def test_host_without_sensors_has_no_temperature(tmp_path):
    assert read_temperatures_c(find_temperature_files(tmp_path)) == []


def test_cpu_without_rapl_is_modelled_and_reported(tmp_path):
    make_host(tmp_path)
    clock, faults = ManualClock(), []
    sensor = CpuSensor(tmp_path, clock, lambda _, fault: faults.append(fault))
    device = sensor.discover()
    assert (device.name, device.kind, device.uuid, device.model) == (
        "cpu",
        "cpu",
        "0123456789abcdef",
        "Fake CPU",
    )
    assert device.memory_bytes == 16_000_000 * 1024
    assert [(fault.code, fault.reaction.value) for fault in faults] == [("ENOENT", "modelled")]
    # Two logical CPUs of 0.74 W idle and 3.5 W at most.
    assert "1.5 W idle to 7.0 W busy" in faults[0].detail

    first = sensor.sample()
    assert (first.power_w, first.counter.energy_j) == (None, 0.0)
    clock.now_ns += 10**9
    busy_half = STAT.replace("cpu  100 20 30 800", "cpu  200 20 30 900")
    (tmp_path / "proc/stat").write_text(busy_half)
    second = sensor.sample()
    assert second.util_pct == pytest.approx(50)
    assert second.power_w == pytest.approx(1.48 + (7 - 1.48) / 2)
    assert second.counter.energy_j == pytest.approx(second.power_w)
    assert second.counter.method == "modelled"
    assert second.mem_used_bytes == 4_000_000 * 1024


def test_modelled_power_is_configurable(tmp_path):
    make_host(tmp_path)
    clock, faults = ManualClock(), []
    sensor = CpuSensor(
        tmp_path, clock, lambda _, fault: faults.append(fault), idle_w=100.0, max_w=300.0
    )
    sensor.discover()
    sensor.sample()
    clock.now_ns += 10**9
    (tmp_path / "proc/stat").write_text(STAT.replace("cpu  100", "cpu  200"))
    assert sensor.sample().power_w == pytest.approx(300)


def test_cpu_power_with_rapl_is_the_counter_difference(tmp_path):
    make_host(tmp_path)
    folder = tmp_path / "sys/class/powercap/intel-rapl:0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("package-0\n")
    (folder / "energy_uj").write_text("262143000000\n")
    (folder / "max_energy_range_uj").write_text("262143328850\n")
    clock, faults = ManualClock(), []
    sensor = CpuSensor(tmp_path, clock, lambda _, fault: faults.append(fault))
    sensor.discover()
    assert sensor.read_energy().method == "rapl"
    assert faults == []
    sensor.sample()
    clock.now_ns += 2 * 10**9
    (folder / "energy_uj").write_text("79671150\n")
    sample = sensor.sample()
    assert sample.power_w == pytest.approx(40)
    assert sample.counter.energy_j == pytest.approx(80)
    assert sample.dram_j is None


def test_dram_energy_is_separate_from_the_packages(tmp_path):
    make_host(tmp_path)
    for directory, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:1", "dram")):
        folder = tmp_path / "sys/class/powercap" / directory
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text("1000000\n")
        (folder / "max_energy_range_uj").write_text("262143328850\n")
    clock = ManualClock()
    sensor = CpuSensor(tmp_path, clock, lambda *_: None)
    sensor.discover()
    assert sensor.sample().dram_j == 0
    clock.now_ns += 2 * 10**9
    (tmp_path / "sys/class/powercap/intel-rapl:0:1/energy_uj").write_text("9000000\n")
    sample = sensor.sample()
    assert (sample.dram_j, sample.counter.energy_j) == (8, 0)
