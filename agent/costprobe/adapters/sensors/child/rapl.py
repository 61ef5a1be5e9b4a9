"""Energy of the processor packages by RAPL, through the kernel's powercap interface."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from costprobe.core.records import NS_PER_S

POWERCAP: Final = "sys/class/powercap"
# No CPU package consumes this much: a counter that implies it was reset (resume from suspend).
IMPLAUSIBLE_W: Final = 5000.0


@dataclass(frozen=True, slots=True)
class Zone:
    """One package's counter.

    Attributes:
        name: The kernel's name, such as package-0.
        path: File that holds the energy in microjoules.
        max_energy_range_uj: The value after which it wraps to 0, in microjoules.
    """

    name: str
    path: Path
    max_energy_range_uj: int


@dataclass(frozen=True, slots=True)
class RaplMissing:
    """RAPL cannot be read here.

    Attributes:
        path: The file or folder.
        code: Name of the error: ENOENT (the machine has none), EACCES, or another.
        fix: What an operator can do.
    """

    path: str
    code: str
    fix: str


NO_RAPL: Final = (
    "no RAPL package is present: this is a virtual machine, or the module intel_rapl_msr is not"
    " loaded"
)
NO_ACCESS: Final = (
    "only root can read energy_uj since Linux 5.10: run as root, or give the service"
    " AmbientCapabilities=CAP_DAC_READ_SEARCH, or `chmod a+r` the file at boot"
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
) -> tuple[Zone, ...] | RaplMissing:
    """Find the packages of this host, or its memory zones, in order of their names.

    Args:
        root: Root of the file system.
        wanted: Selects zones by their directory and name.
    """
    base = root / POWERCAP
    zones: list[Zone] = []
    denied: RaplMissing | None = None
    for directory in sorted(base.glob("intel-rapl:*")):
        counter = directory / "energy_uj"
        try:
            name = (directory / "name").read_text().strip()
            if not wanted(directory.name, name):
                continue
            range_uj = int((directory / "max_energy_range_uj").read_text())
            int(counter.read_text())
        except PermissionError:
            denied = RaplMissing(str(counter), "EACCES", NO_ACCESS)
        except OSError as error:
            code = errno.errorcode.get(error.errno or errno.EIO, "EIO")
            denied = RaplMissing(str(counter), code, f"it cannot be read: {error.strerror}")
        except ValueError:
            denied = RaplMissing(str(counter), "EINVAL", "it does not hold a number")
        else:
            zones.append(Zone(name, counter, range_uj))
    # A sum without one of the packages would be wrong.
    if denied is not None:
        return denied
    return tuple(zones) or RaplMissing(str(base), "ENOENT", NO_RAPL)


class RaplCounter:
    """A running total over all packages in J, unwrapped.

    Args:
        zones: The packages.
    """

    def __init__(self, zones: Sequence[Zone]) -> None:
        self._zones = tuple(zones)
        self._last_uj: list[int] | None = None
        self._last_ns = 0
        self._total_uj = 0

    def read_j(self, t_ns: int) -> float:
        """Joules since the first reading; starts again at 0 if a counter was reset.

        Args:
            t_ns: CLOCK_MONOTONIC ns of now.

        Raises:
            OSError: A counter cannot be read any more.
        """
        return self.add(t_ns, (int(zone.path.read_text()) for zone in self._zones))

    def add(self, t_ns: int, readings_uj: Iterable[int]) -> float:
        """Add one reading of each package in microjoules; return the total in J."""
        now_uj = list(readings_uj)
        if self._last_uj is not None:
            deltas = [
                unwrap_uj(before, after, zone.max_energy_range_uj)
                for before, after, zone in zip(self._last_uj, now_uj, self._zones, strict=True)
            ]
            limit_uj = IMPLAUSIBLE_W * 1e6 * max(0.01, (t_ns - self._last_ns) / NS_PER_S)
            reset = any(delta > limit_uj for delta in deltas)
            self._total_uj = 0 if reset else self._total_uj + sum(deltas)
        self._last_uj = now_uj
        self._last_ns = t_ns
        return self._total_uj / 1e6
