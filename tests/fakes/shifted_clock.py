"""A wall clock that a test steps while a process runs.

    clock = ShiftedClock(tmp_path)
    subprocess.Popen([...], env={**os.environ, **clock.env()})
    clock.step(-3600)

The library is built from `clock_shift/clock_shift.c` with gcc, once per version of its source.
"""

import ctypes
import time
from pathlib import Path

from fakes.c_structures import map_structure
from fakes.nvml import build_library

SOURCE = Path(__file__).parent / "clock_shift" / "clock_shift.c"
NAME = "clock_shift.so"
NS_PER_S = 1_000_000_000
# Places of the shifts in ns.
CALENDAR, BOOTTIME = 0, 1


class ShiftedClock:
    """The wall clock of processes started with `env()`.

    Args:
        folder: Folder of the file with the shift.
    """

    def __init__(self, folder: Path) -> None:
        self._library = build_library(SOURCE, NAME) / NAME
        self._path = folder / "clock.shift"
        self._shifts = map_structure(self._path, ctypes.c_int64 * 2)

    def env(self) -> dict[str, str]:
        """Environment variables that give a process this wall clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT_FILE": str(self._path)}

    def time_ns(self) -> int:
        """UTC in ns on this wall clock."""
        return time.time_ns() + self._shifts[CALENDAR]

    def step(self, duration_s: float) -> None:
        """Step by a duration in s, backwards if negative."""
        self._shifts[CALENDAR] += int(duration_s * NS_PER_S)

    def suspend(self, duration_s: float) -> None:
        """Suspend the host for a duration in s: CLOCK_MONOTONIC does not advance meanwhile."""
        self.step(duration_s)
        self._shifts[BOOTTIME] += int(duration_s * NS_PER_S)

    def set(self, time_ns: int) -> None:
        """Set the wall clock to a UTC time in ns."""
        self._shifts[CALENDAR] = time_ns - time.time_ns()
