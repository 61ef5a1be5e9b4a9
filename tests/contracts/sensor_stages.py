"""A device for each implementation of the sensor contract; a new one is a line in STAGES."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from contracts.examples.acme import acme_sensors
from costprobe.adapters.sensors.child.amd import amd_sensors
from costprobe.adapters.sensors.child.cpu import cpu_sensors
from costprobe.adapters.sensors.child.nvidia import nvidia_sensors
from costprobe.adapters.sensors.child.sensor import Sensor, SensorContext
from fakes.amdsmi import FakeAmdsmi
from fakes.clock import FakeClock
from fakes.nvml import FakeNvml
from fakes.sensing import sensor_settings

NOON_NS = 1_780_000_000 * 10**9
POWER_W = 100.0


@dataclass
class Stage:
    """A sensor on a device that the test controls.

    Attributes:
        sensor: The sensor under test.
        clock: Its clock.
        advance: Advances time by s while the device draws about 100 W.
        damage: Makes the device fail; the sensor must raise.
        repair: Makes it work again.
    """

    sensor: Sensor
    clock: Any
    advance: Any
    damage: Any
    repair: Any


def context_of(clock, root="/nonexistent"):
    settings = sensor_settings(sysfs_root=str(root), selftest_s=0.0)
    return SensorContext(settings, clock, lambda *_: None)


@contextmanager
def nvidia(folder, *slices):
    """A board, or the first of its slices."""
    fake = FakeNvml(folder, simulated_utc_ns=NOON_NS)
    gpu = fake.gpus[0]
    gpu.set_power(POWER_W)
    if slices:
        gpu.split(*slices)
    with fake.in_this_process():
        (sensor,) = nvidia_sensors(context_of(fake.clock))
        if slices:
            sensor.discover()
            sensor, _ = sensor.slices()
        yield Stage(sensor, fake.clock, fake.clock.move, gpu.vanish, gpu.come_back)


@contextmanager
def amd(folder, partition=None):
    fake = FakeAmdsmi(folder, simulated_utc_ns=NOON_NS)
    gpu = fake.gpus[0]
    gpu.set_power(POWER_W)
    if partition is not None:
        gpu.divide(8, "CPX", "NPS4")
    with fake.in_this_process():
        (sensor,) = amd_sensors(context_of(fake.clock))
        if partition is not None:
            sensor.discover()
            sensor = sensor.slices()[partition]
        yield Stage(sensor, fake.clock, fake.clock.move, gpu.vanish, gpu.come_back)


class Files:
    """A device whose driver is a folder of files, and a clock that the test moves."""

    def __init__(self, root, files):
        self.clock = FakeClock(NOON_NS)
        self._files = {root / name: text for name, text in files.items()}
        self.repair()

    def repair(self):
        for path, text in self._files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def damage(self):
        for path in self._files:
            path.unlink()

    def set(self, path, text):
        self._files[path] = text
        path.write_text(text)

    def count(self, path, by):
        self.set(path, str(int(self._files[path]) + round(by)))


CPU_FILES = {
    "proc/stat": "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 100 0 100 800 0 0 0 0 0 0\n",
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\n",
    "proc/cpuinfo": "model name : Recorded CPU\n",
    "etc/machine-id": "feedbeef\n",
    "sys/class/hwmon/hwmon0/name": "k10temp\n",
    "sys/class/hwmon/hwmon0/temp1_input": "45500\n",
}
RAPL = "sys/class/powercap/intel-rapl:0"
RAPL_FILES = {
    f"{RAPL}/name": "package-0\n",
    f"{RAPL}/energy_uj": "1000000",
    f"{RAPL}/max_energy_range_uj": "262143328850\n",
}


@contextmanager
def cpu(folder, more):
    files = Files(folder, CPU_FILES | more)
    (sensor,) = cpu_sensors(context_of(files.clock, folder))
    ticks = [100, 800]

    def advance(duration_s):
        files.clock.move(duration_s)
        ticks[0] += round(50 * duration_s)
        ticks[1] += round(50 * duration_s)
        busy, idle = ticks
        files.set(folder / "proc/stat", f"cpu  {busy} 0 100 {idle} 0 0 0 0 0 0\ncpu0 1 0 1 1\n")
        if more:
            files.count(folder / RAPL / "energy_uj", POWER_W * duration_s * 1e6)

    yield Stage(sensor, files.clock, advance, files.damage, files.repair)


@contextmanager
def acme(folder):
    card = folder / "sys/class/acme/card0"
    files = Files(folder, acme_files(card.relative_to(folder)))
    (sensor,) = acme_sensors(context_of(files.clock, folder))

    def advance(duration_s):
        files.clock.move(duration_s)
        files.count(card / "energy_uj", POWER_W * duration_s * 1e6)

    yield Stage(sensor, files.clock, advance, files.damage, files.repair)


def acme_files(card):
    return {
        f"{card}/serial": "A-1",
        f"{card}/model": "Acme One",
        f"{card}/power_uw": str(round(POWER_W * 1e6)),
        f"{card}/busy_percent": "40",
        f"{card}/energy_uj": "5000000",
    }


STAGES = {
    "nvidia": nvidia,
    "nvidia MIG": lambda folder: nvidia(folder, 3, 2),
    "amd": amd,
    "amd partition": lambda folder: amd(folder, partition=3),
    "cpu by RAPL": lambda folder: cpu(folder, RAPL_FILES),
    "cpu by model": lambda folder: cpu(folder, {}),
    "example of contributors": acme,
}
