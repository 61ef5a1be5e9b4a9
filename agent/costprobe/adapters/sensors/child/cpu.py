"""The sensor of the host's CPUs as one device: /proc and /sys, and energy by RAPL.

RAPL measures the energy of the processor packages; it is read through the kernel's powercap
interface.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from costprobe_probes.processor import processor_name

from costprobe.adapters.sensors.child.bounds import UNKNOWN_MAX_W
from costprobe.adapters.sensors.child.sensor import (
    Call,
    MetricReader,
    Report,
    Sensor,
    SensorContext,
    Values,
    Way,
    quarantining,
)
from costprobe.adapters.sensors.messages import EnergyReading, Reaction, Sample, SensorFault
from costprobe.core.clock import Clock
from costprobe.core.records import HOST_DEVICE, NS_PER_S, Device

POWERCAP: Final = "sys/class/powercap"


class Zone(NamedTuple):
    """One package's counter.

    Attributes:
        path: File that holds the energy in microjoules.
        max_energy_range_uj: The value after which it wraps to 0, in microjoules.
    """

    path: Path
    max_energy_range_uj: int


NO_RAPL: Final = (
    "no RAPL package is present: this is a virtual machine, or the module intel_rapl_msr is not"
    " loaded"
)
NO_ACCESS: Final = (
    "only root can read energy_uj since Linux 5.10: run as root, or give the service"
    " AmbientCapabilities=CAP_DAC_READ_SEARCH, or `chmod a+r` the file at boot"
)


RAPL_IS_STILL: Final = (
    "RAPL does not advance, as on some virtual machines, where the host does not pass it on"
)
NO_TIME: Final = (
    "it counts no time, as in a sandbox such as gVisor: utilization and energy of the processors are"
    " unknown; run costprobe outside of the sandbox, or set telemetry.cpu = false"
)


def unwrap_uj(before_uj: int, after_uj: int, max_energy_range_uj: int) -> int:
    """Microjoules between two readings of a counter that wraps after its largest value.

    At most one wrap between two readings is detectable; the range, 65 kJ, lasts for minutes at any
    package's power, and the counter is read each second.
    """
    if after_uj >= before_uj:
        return after_uj - before_uj
    return max_energy_range_uj - before_uj + after_uj


def is_package(directory: str, name: str) -> bool:
    """Whether a zone is a package: not a part of one (core, uncore), nor DRAM, nor psys.

    DRAM is separate, because not every processor has it and hosts must be comparable; psys includes
    the packages; intel-rapl-mmio lists them a second time.
    """
    return directory.startswith("intel-rapl:") and name.startswith("package-")


def is_dram(directory: str, name: str) -> bool:
    """Return whether a zone is memory: in its package's directory, but not in its energy."""
    return directory.startswith("intel-rapl:") and name == "dram"


def find_zones(
    root: Path, wanted: Callable[[str, str], bool] = is_package
) -> tuple[Zone, ...] | SensorFault:
    """Find the packages of this host, or its memory zones, in order of their names; or why none can be read.

    Args:
        root: Root of the file system.
        wanted: Selects zones by their directory and name.
    """
    base = root / POWERCAP
    zones: list[Zone] = []
    denied: SensorFault | None = None
    for directory in sorted(base.glob("intel-rapl:*")):
        counter = directory / "energy_uj"
        try:
            name = (directory / "name").read_text().strip()
            if not wanted(directory.name, name):
                continue
            range_uj = int((directory / "max_energy_range_uj").read_text())
            int(counter.read_text())
        except (OSError, ValueError) as error:
            code = errno.errorcode.get(getattr(error, "errno", None) or errno.EINVAL, "EIO")
            fix = NO_ACCESS if code == "EACCES" else f"it cannot be read: {error}"
            denied = _missing(str(counter), code, fix)
        else:
            zones.append(Zone(counter, range_uj))
    # A sum without one of the packages would be wrong.
    if denied is not None:
        return denied
    return tuple(zones) or _missing(str(base), "ENOENT", NO_RAPL)


def _missing(path: str, code: str, fix: str) -> SensorFault:
    """The fault of a host whose RAPL cannot be read; ENOENT: the machine has none."""
    return SensorFault(path, code, Reaction.MODELLED, fix)


class RaplCounter:
    """A running total over all packages in J, unwrapped.

    A counter that was reset seems to wrap: the bounds of the device discard what that implies.

    Args:
        zones: The packages.
    """

    def __init__(self, zones: Sequence[Zone]) -> None:
        self._zones = tuple(zones)
        self._last_uj: list[int] | None = None
        self._total_uj = 0

    def read_j(self) -> float:
        """Read the total in J.

        Raises:
            OSError, ValueError: A counter cannot be read any more.
        """
        return self.add([int(zone.path.read_text()) for zone in self._zones])

    def add(self, now_uj: list[int]) -> float:
        """Add one reading of each package in microjoules; return the total in J."""
        for before, after, zone in zip(self._last_uj or now_uj, now_uj, self._zones, strict=True):
            self._total_uj += unwrap_uj(before, after, zone.max_energy_range_uj)
        self._last_uj = now_uj
        return self._total_uj / 1e6


# Average of AWS's processors per logical CPU, by Cloud Carbon Footprint's methodology (2021).
IDLE_W_PER_CPU: Final = 0.74
MAX_W_PER_CPU: Final = 3.5

HWMON_NAMES: Final = frozenset({"coretemp", "k10temp", "zenpower"})
THERMAL_TYPES: Final = frozenset({"x86_pkg_temp", "cpu-thermal", "cpu_thermal"})


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """The counts of /proc/stat since boot, over all logical CPUs, in ticks of USER_HZ.

    Attributes:
        busy: Ticks in which a CPU ran something.
        total: All ticks.
    """

    busy: int
    total: int


def parse_stat(text: str) -> CpuTicks:
    """Parse /proc/stat (proc_stat(5)).

    Idle, iowait and steal count as idle: in steal time another virtual machine ran. Guest time is
    part of user time and is not added again.

    Raises:
        ValueError: There is no line of all CPUs with at least four numbers.
    """
    match = re.search(r"^cpu +(\d+(?: +\d+){3,})", text, re.MULTILINE)
    if match is None:
        raise ValueError("/proc/stat has no line `cpu` with the ticks of all CPUs")
    ticks = [int(word) for word in match[1].split()[:8]]
    ticks += [0] * (8 - len(ticks))
    user, nice, system, idle, iowait, irq, softirq, steal = ticks
    busy = user + nice + system + irq + softirq
    return CpuTicks(busy, busy + idle + iowait + steal)


def parse_meminfo(text: str) -> tuple[int, int]:
    """Parse /proc/meminfo: bytes in use (total less what is available) and bytes in total.

    Raises:
        ValueError: It lacks MemTotal or MemAvailable.
    """
    amounts = {
        match[1]: int(match[2]) * 1024
        for match in re.finditer(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", text, re.MULTILINE)
    }
    if len(amounts) != 2:  # noqa: PLR2004 - the two that the pattern names
        raise ValueError("/proc/meminfo lacks MemTotal or MemAvailable")
    return amounts["MemTotal"] - amounts["MemAvailable"], amounts["MemTotal"]


class ModelledCounter:
    """A running total of modelled energy: P = idle + (max - idle) x utilization.

    Linear in utilization: Fan, Weber and Barroso, "Power provisioning for a warehouse-sized
    computer" (2007). Because /proc/stat counts busy time, the model's integral needs no sampling.

    Args:
        idle_w: Power of the idle host's processors in W.
        max_w: Their power at full utilization in W.
    """

    def __init__(self, idle_w: float, max_w: float) -> None:
        self._idle_w = idle_w
        self._max_w = max_w
        self._last: tuple[int, CpuTicks] | None = None
        self._total_j = 0.0

    def add(self, t_ns: int, ticks: CpuTicks) -> float | None:
        """Return the joules since the first reading; None while no tick has passed since the last.

        If ticks went back, it starts again at 0: the energy meanwhile is unknown.

        Args:
            t_ns: CLOCK_MONOTONIC ns of the reading.
            ticks: The contents of /proc/stat at that time.
        """
        if self._last is None:
            self._last = (t_ns, ticks)
            return 0.0
        last_ns, last = self._last
        if ticks.total == last.total:
            return None
        share = utilization(last, ticks)
        power_w = self._idle_w + (self._max_w - self._idle_w) * (share or 0.0)
        self._total_j += power_w * (t_ns - last_ns) / NS_PER_S
        if share is None:
            self._total_j = 0.0
        self._last = (t_ns, ticks)
        return self._total_j


def utilization(before: CpuTicks, after: CpuTicks) -> float | None:
    """Share of time between two readings in which the CPUs were busy, from 0 to 1.

    None where no tick has passed, or the counts went back. The idle time alone may go back by some
    ticks (proc_stat(5)): the CPUs were then busy all the time.
    """
    busy, total = after.busy - before.busy, after.total - before.total
    return min(1.0, busy / total) if total > 0 and busy >= 0 else None


def find_temperature_files(root: Path) -> tuple[Path, ...]:
    """The files that hold the processors' temperatures in thousandths of a degree Celsius."""
    monitors = sorted((root / "sys/class/hwmon").glob("hwmon*"))
    cpu_monitors = [monitor for monitor in monitors if _read(monitor / "name") in HWMON_NAMES]
    inputs = tuple(path for monitor in cpu_monitors for path in sorted(monitor.glob("temp*_input")))
    if inputs:
        return inputs
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*"))
    return tuple(zone / "temp" for zone in zones if _read(zone / "type") in THERMAL_TYPES)


def read_temperatures_c(files: Iterable[Path]) -> list[float]:
    """The temperatures of the given sensors in degrees Celsius, as far as they can be read."""
    texts = [_read(path) for path in files]
    return [int(text) / 1000 for text in texts if re.fullmatch(r"-?\d+", text)]


def _read(path: Path) -> str:
    """A small file's text, stripped; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def cpu_sensors(context: SensorContext) -> list[Sensor]:
    """The sensor of the host's processors; with `cpu = "auto"` only until another is found."""
    settings = context.settings
    is_alone = context.is_complete and not context.found
    if not (is_alone if settings.cpu == "auto" else settings.cpu):
        return []
    root = Path(settings.sysfs_root)
    idle_w, max_w = settings.cpu_idle_w, settings.cpu_max_w
    sensor = CpuSensor(root, context.clock, context.report, idle_w, max_w)
    sensor.is_fallback = settings.cpu == "auto"
    return [sensor]


class CpuSensor(Sensor):
    """The processors of the host.

    Args:
        root: Root of the file system.
        clock: Clock of the readings.
        report: Called once with each fault that does not end a sample.
        idle_w: Modelled power of the idle processors together in W; None for the average.
        max_w: Modelled power at full utilization in W; None for the average.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        report: Report,
        idle_w: float | None = None,
        max_w: float | None = None,
    ) -> None:
        super().__init__(HOST_DEVICE)
        self._root = root
        self._clock = clock
        self._report = report
        self._idle_w = idle_w
        self._max_w = max_w
        self._reset()

    def _reset(self) -> None:
        self._ways: dict[str, tuple[Way, ...]] = {
            "utilization": (self._utilization,),
            "memory": (_memory,),
            "temperature": (self._temperature,),
            "energy": (self._energy,),
            "dram": (self._dram_energy,),
        }
        self._metrics = MetricReader(self.name, self._report, self._ways)
        self._rapl: RaplCounter | None = None
        self._dram: RaplCounter | None = None
        self._model: ModelledCounter | None = None
        self._cpus = 1
        self._temperature_files: tuple[Path, ...] = ()
        self._ticks: CpuTicks | None = None
        self._sampled: EnergyReading | None = None

    def discover(self) -> Device:
        """Find RAPL, or report that energy is modelled.

        Raises:
            SensorFault: /proc cannot be read.
        """
        self._reset()
        self._temperature_files = find_temperature_files(self._root)
        self._cpus = len(re.findall(r"^cpu\d", _read(self._root / "proc/stat"), re.MULTILINE)) or 1
        memory = self._metrics.read("memory", self._text, None)
        try:
            self._read_ticks()
        except SensorFault as fault:
            if not memory:
                raise quarantining(fault) from fault
            self._metrics.report_once("utilization", fault)
        self._open_energy()
        model = processor_name(_read(self._root / "proc/cpuinfo"))
        uuid = _read(self._root / "etc/machine-id") or "cpu"
        return Device(self.name, "cpu", uuid, model, memory.get("mem_total_bytes"))

    def _open_energy(self) -> None:
        zones = find_zones(self._root)
        if not isinstance(zones, tuple):
            self._open_model(zones)
            return
        self.bounds.max_w = UNKNOWN_MAX_W * len(zones)
        self._rapl = RaplCounter(zones)
        dram = find_zones(self._root, is_dram)
        self._dram = RaplCounter(dram) if isinstance(dram, tuple) else None

    def _open_model(self, missing: SensorFault) -> None:
        """Model the energy from now on, and report why."""
        idle_w = IDLE_W_PER_CPU * self._cpus if self._idle_w is None else self._idle_w
        max_w = MAX_W_PER_CPU * self._cpus if self._max_w is None else self._max_w
        self._rapl = None
        self._model = ModelledCounter(idle_w, max(idle_w, max_w))
        self.bounds.max_w = max(UNKNOWN_MAX_W, idle_w, max_w)
        fix = f"{missing.detail}; energy is modelled as {idle_w:.1f} W idle to {max_w:.1f} W busy"
        self._report(self.name, _missing(missing.call, missing.code, fix))

    def sample(self, *, quick: bool = False) -> Sample:  # noqa: ARG002 - four files are read quickly
        """Read utilization, memory and temperature, and power from the energy counter's advance.

        Raises:
            SensorFault: Nothing can be read.
        """
        values: Values = {}
        for metric in self._ways:
            values |= self._metrics.read(metric, self._text, None)
        if all(value is None for value in values.values()):
            detail = "neither utilization, memory, temperature nor energy can be read"
            raise SensorFault(self.call, "NO_DATA", Reaction.QUARANTINE, detail)
        return Sample(t_ns=self._clock.monotonic_ns(), **values)

    def read_energy(self) -> EnergyReading | None:
        """Read RAPL, or advance the model, in J since the device was discovered.

        RAPL that cannot be read any more, or stands still, is left for the model.

        Raises:
            SensorFault: Nothing can be read.
        """
        t_ns = self._clock.monotonic_ns()
        if self._rapl is not None and self.bounds.counter_is_still:
            self._open_model(_missing("energy_uj", "STANDS_STILL", RAPL_IS_STILL))
        if self._rapl is not None:
            self.call = "energy_uj"
            try:
                return EnergyReading(t_ns, self._rapl.read_j(), "rapl")
            except (OSError, ValueError) as error:
                zones = find_zones(self._root)
                unread = _missing("energy_uj", "EIO", str(error))
                self._open_model(unread if isinstance(zones, tuple) else zones)
        if self._model is None:
            return None
        try:
            energy_j = self._model.add(t_ns, self._read_ticks())
        except SensorFault:
            if not (self._root / "proc/meminfo").exists():
                raise  # the whole of /proc is gone
            return None
        return None if energy_j is None else EnergyReading(t_ns, energy_j, "modelled")

    def _utilization(self, call: Call, handle: object) -> Values:  # noqa: ARG002 - a way's arguments
        ticks = self._read_ticks()
        before, self._ticks = self._ticks, ticks
        if before is not None and ticks == before:
            detail = "no tick has passed since the reading before: utilization is unknown"
            raise SensorFault("/proc/stat", "NO_TICKS", Reaction.TRANSIENT, detail)
        share = None if before is None else utilization(before, ticks)
        return {"util_pct": None if share is None else 100 * share}

    def _temperature(self, call: Call, handle: object) -> Values:  # noqa: ARG002 - a way's arguments
        values = read_temperatures_c(self._temperature_files)
        possible = [value for value in values if self.bounds.admitted(0, {"temp_c": value})]
        return {"temp_c": max(possible, default=None)}

    def _energy(self, call: Call, handle: object) -> Values:  # noqa: ARG002 - a way's arguments
        """The counter, and the mean power since the sample before: it counts none between samples."""
        reading = self.read_energy()
        last, self._sampled = self._sampled, reading or self._sampled
        power_w: float | None = None
        # Running CPUs consume power: a counter that does not advance, as on some virtual machines,
        # is defective.
        if (
            reading is not None
            and last is not None
            and reading.method == last.method
            and reading.energy_j > last.energy_j
            and reading.t_ns > last.t_ns
        ):
            power_w = (reading.energy_j - last.energy_j) / ((reading.t_ns - last.t_ns) / NS_PER_S)
        return {"counter": reading, "power_w": power_w, "power_instant_w": power_w}

    def _dram_energy(self, call: Call, handle: object) -> Values:  # noqa: ARG002 - a way's arguments
        return {} if self._dram is None else {"dram_j": self._dram.read_j()}

    def _read_ticks(self) -> CpuTicks:
        """Read /proc/stat.

        Raises:
            SensorFault: It cannot be read, or counts no time.
        """
        try:
            ticks = parse_stat(self._text("proc/stat"))
        except (OSError, ValueError) as error:
            detail = f"{error}: utilization, and energy without RAPL, are unknown; see proc_stat(5)"
            raise SensorFault("/proc/stat", "NO_TICKS", Reaction.TRANSIENT, detail) from error
        if not ticks.total:
            raise SensorFault("/proc/stat", "NO_TICKS", Reaction.TRANSIENT, NO_TIME)
        return ticks

    def _text(self, path: str) -> str:
        self.call = f"/{path}"
        return (self._root / path).read_text(errors="replace")


def _memory(call: Call, handle: object) -> Values:  # noqa: ARG001 - a way's arguments
    used_bytes, total_bytes = parse_meminfo(call("proc/meminfo"))
    return {"mem_used_bytes": used_bytes, "mem_total_bytes": total_bytes}
