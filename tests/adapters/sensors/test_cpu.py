"""The sensor of the processors on a host whose /proc and /sys are a folder of the test."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from costprobe.adapters.sensors.child.cpu import (
    CpuSensor,
    CpuTicks,
    RaplCounter,
    Zone,
    find_temperature_files,
    find_zones,
    is_dram,
    parse_meminfo,
    parse_stat,
    read_temperatures_c,
    unwrap_uj,
)
from costprobe.adapters.sensors.messages import SensorFault
from costprobe_probes.processor import processor_name
from fakes.clock import FakeClock
from fakes.worker import WorkerBench
from hypothesis import given
from hypothesis import strategies as st
from record.record_files import check_outcomes

POWERCAP = "sys/class/powercap"
RAPL = f"{POWERCAP}/intel-rapl:0"
RANGE_UJ = 262_143_328_850


def write(root, **files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def zone(directory, name, energy_uj=7):
    folder = f"{POWERCAP}/{directory}"
    return {
        f"{folder}/name": name,
        f"{folder}/energy_uj": energy_uj,
        f"{folder}/max_energy_range_uj": RANGE_UJ,
    }


class CpuHost:
    """A host of two CPUs of 40 W, and the sensor of its CPUs."""

    def __init__(self, root, *, has_rapl=True, **watts):
        self.root, self.clock, self.faults = root, FakeClock(), []
        rapl = zone("intel-rapl:0", "package-0", 1_000_000) if has_rapl else {}
        memory = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB"
        cpuinfo = {"proc/cpuinfo": "model name : Fake CPU", "etc/machine-id": "feedbeef"}
        write(root, **{"proc/meminfo": memory, **cpuinfo, **rapl})
        self.sensor = CpuSensor(
            root, self.clock, lambda _, fault: self.faults.append(fault), **watts
        )
        self.busy, self.idle, self.energy_uj = 100, 900, 1_000_000
        self.advance()

    def advance(self, watts=40, busy=50, idle=150, *, ticks=True):
        self.clock.move(1)
        self.busy, self.idle = self.busy + busy, self.idle + idle
        self.energy_uj = (self.energy_uj + int(watts * 1e6)) % RANGE_UJ
        stat = ticks and f"cpu {self.busy} 0 0 {self.idle}\ncpu0 1 0 0 1\ncpu1 1 0 0 1"
        if stat:
            write(self.root, **{"proc/stat": stat})
        if (self.root / RAPL / "energy_uj").exists():
            write(self.root, **{f"{RAPL}/energy_uj": self.energy_uj})

    def sample(self, **more):
        """Let a second pass, and take a sample."""
        self.advance(**more)
        return self.sensor.bounds.sample(self.sensor.sample())


@pytest.fixture
def host(tmp_path):
    return CpuHost(tmp_path)


def test_files_of_proc_are_parsed():
    stat = "cpu  100 20 30 800 40 5 5 10 7 3\ncpu0 50 10 15 400 20 2 3 5 3 1\nintr 12345 0 0\n"
    # Without iowait, steal and guest; an old kernel has fewer columns.
    assert parse_stat(stat) == CpuTicks(busy=160, total=1010)
    assert parse_stat("cpu 1 2 3 4\n") == CpuTicks(busy=6, total=10)
    for text in ("", "intr 5\n", "cpu 1 2\n"):
        with pytest.raises(ValueError, match="/proc/stat"):
            parse_stat(text)
    memory = "MemTotal:       16000000 kB\nMemAvailable:   12000000 kB\nBuffers: 1 kB\n"
    assert parse_meminfo(memory) == (4_000_000 * 1024, 16_000_000 * 1024)
    with pytest.raises(ValueError, match="MemAvailable"):
        parse_meminfo("MemTotal: 5 kB\n")


def test_cpu_model_is_read_on_each_architecture():
    check_outcomes("cpuinfo_texts.json", processor_name)


def test_temperature_is_of_hwmon_or_of_a_thermal_zone(tmp_path):
    assert read_temperatures_c(find_temperature_files(tmp_path)) == []
    thermal, hwmon = "sys/class/thermal/thermal_zone", "sys/class/hwmon/hwmon"
    for i, (kind, millidegrees) in enumerate([("acpitz", 20000), ("x86_pkg_temp", 48000)]):
        write(tmp_path, **{f"{thermal}{i}/type": kind, f"{thermal}{i}/temp": millidegrees})
    assert read_temperatures_c(find_temperature_files(tmp_path)) == [48.0]
    for i, (kind, millidegrees) in enumerate([("nvme", 70000), ("coretemp", 51000)]):
        write(tmp_path, **{f"{hwmon}{i}/name": kind, f"{hwmon}{i}/temp1_input": millidegrees})
        write(tmp_path, **{f"{hwmon}{i}/temp2_input": 44000})
    assert sorted(read_temperatures_c(find_temperature_files(tmp_path))) == [44.0, 51.0]


def test_packages_and_memory_of_a_server_are_summed_apart(tmp_path):
    """Two packages, their parts, DRAM, psys and the second view of package 0."""
    for directory, name in (
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:1", "package-1-die-0"),
        ("intel-rapl:0:0", "core"),
        ("intel-rapl:0:2", "uncore"),
        ("intel-rapl:0:1", "dram"),
        ("intel-rapl:2", "psys"),
        ("intel-rapl-mmio:0", "package-0"),
    ):
        write(tmp_path, **zone(directory, name))
    (tmp_path / POWERCAP / "intel-rapl").mkdir()
    counter, memory = RaplCounter(find_zones(tmp_path)), RaplCounter(find_zones(tmp_path, is_dram))
    assert (counter.read_j(), memory.read_j()) == (0, 0)
    for directory, energy_uj in (("intel-rapl:0", 2_000_007), ("intel-rapl:1", 500_007)):
        write(tmp_path, **{f"{POWERCAP}/{directory}/energy_uj": energy_uj})
    write(tmp_path, **{f"{POWERCAP}/intel-rapl:0:1/energy_uj": 3_000_007})
    assert (counter.read_j(), memory.read_j()) == (2.5, 3.0)


@pytest.fixture
def open_folder():
    """A folder that other users may open, unlike pytest's own."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def test_counter_that_cannot_be_read_is_reported_with_its_file_and_fix(open_folder):
    cases = {
        "absent": ("ENOENT", POWERCAP, "virtual machine"),
        "text": ("EINVAL", f"{RAPL}/energy_uj", "cannot be read"),
        "folder": ("EISDIR", f"{RAPL}/energy_uj", "cannot be read"),
        "denied": ("EACCES", f"{RAPL}/energy_uj", "CAP_DAC_READ_SEARCH"),
    }
    for name in ("text", "folder", "denied"):
        write(open_folder / name, **zone("intel-rapl:0", "package-0", "soon"))
    (open_folder / "folder" / RAPL / "energy_uj").unlink()
    (open_folder / "folder" / RAPL / "energy_uj").mkdir()
    (open_folder / "denied" / RAPL / "energy_uj").chmod(0)
    user = os.geteuid()
    if user == 0:  # without root's right to read every file
        os.seteuid(65534)
    found = {name: find_zones(open_folder / name) for name in cases}
    os.seteuid(user)
    for name, (code, path, word) in cases.items():
        missing = found[name]
        assert isinstance(missing, SensorFault)
        assert (missing.code, missing.call) == (code, str(open_folder / name / path))
        assert word in missing.detail


@given(
    range_uj=st.integers(10**9, 2**40),
    start_uj=st.integers(0, 2**40),
    steps_uj=st.lists(st.integers(0, 400_000_000), max_size=50),
)
def test_unwrapped_energy_equals_the_energy_used(range_uj, start_uj, steps_uj):
    counter = RaplCounter([Zone(None, range_uj)])
    used_uj, total_j = start_uj, counter.add([start_uj % range_uj])
    for step_uj in steps_uj:
        used_uj += step_uj
        total_j = counter.add([used_uj % range_uj])
    assert total_j == pytest.approx(sum(steps_uj) / 1e6, abs=1e-6)
    assert (unwrap_uj(100, 250, 1000), unwrap_uj(900, 50, 1000)) == (150, 150)


def test_power_is_the_advance_of_rapl_across_its_wrap(host):
    device = host.sensor.discover()
    assert (device.uuid, device.model, device.memory_bytes) == ("feedbeef", "Fake CPU", 1024_000)
    host.energy_uj = RANGE_UJ - 60_000_000
    first, *samples = [host.sample() for _ in range(4)]
    assert first.power_w is None
    assert [sample.power_w for sample in samples] == pytest.approx([40.0] * 3)
    assert samples[-1].counter.energy_j - first.counter.energy_j == pytest.approx(120)
    assert (samples[-1].counter.method, samples[-1].dram_j) == ("rapl", None)
    assert (samples[-1].util_pct, samples[-1].mem_used_bytes) == (25.0, 600 * 1024)
    assert host.faults == []


def test_energy_without_rapl_is_modelled_and_reported(tmp_path):
    # Two logical CPUs of 0.74 W idle and 3.5 W at most, or as configured.
    for number, (watts, low, high) in enumerate(
        (({}, 1.48, 7.0), ({"idle_w": 100.0, "max_w": 300.0}, 100.0, 300.0))
    ):
        host = CpuHost(tmp_path / str(number), has_rapl=False, **watts)
        host.sensor.discover()
        (fault,) = host.faults
        assert (fault.code, fault.reaction.value) == ("ENOENT", "modelled")
        assert f"{low:.1f} W idle to {high:.1f} W busy" in fault.detail
        first, second = host.sample(), host.sample()
        assert (first.power_w, first.counter.energy_j) == (None, 0.0)
        assert second.power_w == pytest.approx(low + (high - low) / 4)
        assert second.counter.energy_j == pytest.approx(second.power_w)
        assert second.counter.method == "modelled"


def test_rapl_that_does_not_advance_or_disappears_is_left_for_the_model(host):
    for breaks in ("still", "gone"):
        host.sensor.discover()
        host.sample()
        assert host.sample().power_w == pytest.approx(40)
        host.faults.clear()
        if breaks == "gone":
            (host.root / RAPL / "energy_uj").unlink()
        samples = [host.sample(watts=0) for _ in range(9)]
        assert samples[0].power_w is None
        assert samples[-1].counter.method == "modelled"
        assert samples[-1].power_w == pytest.approx(1.48 + (7 - 1.48) / 4)
        (fault,) = host.faults
        assert (fault.reaction.value, "1.5 W idle" in fault.detail) == ("modelled", True)


def test_energy_that_rapl_counts_while_the_host_is_suspended_is_no_power(host):
    bench = WorkerBench(host, host.sensor)
    for is_suspended in (False, True):
        if is_suspended:
            host.clock.suspend(3600)
            host.advance(watts=40 * 3600)
        for _ in range(25):
            bench.worker.work()
            host.advance()
    rows = [message["fields"] for message in bench.of("reading")]
    assert {round(row["power_w"]) for row in rows if "power_w" in row} == {40}
    assert max(row.get("energy_j", 0.0) for row in rows) < 41 * 10
    assert (bench.of("fault"), host.faults) == ([], [])


def test_utilization_that_cannot_be_is_unknown_and_no_count_is_reported(host):
    host.sensor.discover()
    host.sample()
    found = [
        host.sample(busy=busy, idle=idle).util_pct
        for busy, idle in ((50, 150), (-10, -10), (50, 150), (0, 0), (100, -1))
    ]
    assert found == [25.0, None, 25.0, None, 100.0]
    assert host.faults == []
    for text, words in {
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0": "gVisor",
        "cpu  one 2 3 4\ncpu0 1 2 3 4": "/proc/stat has no line",
        "": "/proc/stat has no line",
    }.items():
        write(host.root, **{"proc/stat": text})
        host.faults.clear()
        assert host.sensor.discover().model == "Fake CPU"
        assert {host.sample(ticks=False).util_pct for _ in range(5)} == {None}
        (fault,) = host.faults
        assert words in fault.detail


def test_one_unreadable_metric_of_the_cpus_costs_that_metric_alone(host):
    host.sensor.discover()
    host.sample()
    write(host.root, **{"proc/meminfo": "MemTotal: soon"})
    samples = [host.sample() for _ in range(4)]
    assert {sample.mem_used_bytes for sample in samples} == {None}
    assert samples[-1].util_pct == pytest.approx(25)
    (fault,) = host.faults
    assert (fault.call, fault.code) == ("memory", "FAILED")
