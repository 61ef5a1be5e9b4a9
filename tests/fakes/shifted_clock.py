"""A wall clock that a test steps while a process runs.

    clock = ShiftedClock(tmp_path)
    subprocess.Popen([...], env={**os.environ, **clock.env()})
    clock.step(-3600)

The library is built from `clock_shift/clock_shift.c` with gcc, once per version of its source.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

from fakes import nvml_layout as layout
from fakes.nvml import require_gcc

SOURCE = Path(__file__).parent / "clock_shift" / "clock_shift.c"
NS_PER_S = 1_000_000_000


def build_library() -> Path:
    """The compiled library, built on first use."""
    gcc = require_gcc()
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"costprobe-fakes-{os.getuid()}" / digest
    library = folder / "clock_shift.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{library.name}.{os.getpid()}"
        flags = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC"]
        subprocess.run([gcc, *flags, "-o", str(partial), str(SOURCE)], check=True)
        partial.rename(library)
    return library


class _Shifts(ctypes.Structure):
    _fields_ = (("calendar_ns", ctypes.c_int64), ("boottime_ns", ctypes.c_int64))


class ShiftedClock:
    """The wall clock of processes started with `env()`.

    Args:
        folder: Folder of the file with the shift.
    """

    def __init__(self, folder: Path) -> None:
        self._library = build_library()
        self._path = folder / "clock.shift"
        self._shifts = layout.map_structure(self._path, _Shifts)

    def env(self) -> dict[str, str]:
        """Environment variables that give a process this wall clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT_FILE": str(self._path)}

    def time_ns(self) -> int:
        """UTC in ns on this wall clock."""
        return time.time_ns() + self._shifts.calendar_ns

    def step(self, duration_s: float) -> None:
        """Step by a duration in s, backwards if negative."""
        self._shifts.calendar_ns += int(duration_s * NS_PER_S)

    def suspend(self, duration_s: float) -> None:
        """Suspend the host for a duration in s: CLOCK_MONOTONIC does not advance meanwhile."""
        self.step(duration_s)
        self._shifts.boottime_ns += int(duration_s * NS_PER_S)

    def set(self, time_ns: int) -> None:
        """Set the wall clock to a UTC time in ns."""
        self._shifts.calendar_ns = time_ns - time.time_ns()
