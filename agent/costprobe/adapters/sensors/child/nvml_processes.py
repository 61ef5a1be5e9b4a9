"""The processes of a GPU as NVML lists them, and what it reports of them that is true."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable
from typing import Any, Final

import pynvml

from costprobe.core.records import NS_PER_S

SUCCESS: Final = 0
INSUFFICIENT_SIZE: Final = 7

# Drivers before R510 have version 2 only.
PROCESS_LISTS: Final = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{version}"
    for kind in ("Compute", "MPSCompute", "Graphics")
    for version in ("_v3", "_v2")
)

# Bytes of a record of nvmlDeviceGet*RunningProcesses_v3: nvml.h has 24 (nvmlProcessInfo_v2_t); drivers
# 535.43 to 535.86 wrote 32 under the same name, with usedGpuCcProtectedMemory at the end (XuehaiPan/
# nvitop, pull request 79); some write the 16 of nvmlProcessInfo_v1_t (pull request 226 there).
RECORD_BYTES: Final = (16, 24, 32)
DOCUMENTED_BYTES: Final = 24
# Fills the memory before the call, so that the bytes that the driver wrote are known.
UNWRITTEN: Final = 0xA5
# Room for processes that start between the two calls.
SPARE_RECORDS: Final = 8
PID_BYTES: Final = 4

WHOLE_PCT: Final = 100
# How long a process is remembered after it was listed: longer than any window.
REMEMBERED_NS: Final = 600 * NS_PER_S


def running_pids(symbol: str, handle: object) -> frozenset[int]:
    """The processes that a function of NVML lists, whichever size its records have.

    Args:
        symbol: One of PROCESS_LISTS.
        handle: The device.

    Raises:
        AttributeError: The library lacks the function.
        pynvml.NVMLError: As any function of pynvml.
    """
    function = getattr(pynvml.nvmlLib, symbol)
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    if code == SUCCESS:
        return frozenset()
    if code != INSUFFICIENT_SIZE:
        raise pynvml.NVMLError(code)
    count.value = 2 * count.value + SPARE_RECORDS
    memory = (ctypes.c_ubyte * (count.value * max(RECORD_BYTES)))()
    ctypes.memset(memory, UNWRITTEN, ctypes.sizeof(memory))
    if code := function(handle, ctypes.byref(count), memory):
        raise pynvml.NVMLError(code)
    return pids_of(bytes(memory), count.value)


def pids_of(memory: bytes, count: int) -> frozenset[int]:
    """The process ids in records of unknown size.

    Args:
        memory: The records, and unwritten bytes behind them.
        count: Number of the records.
    """
    written = len(memory.rstrip(bytes([UNWRITTEN])))
    sizes = (size for size in RECORD_BYTES if written <= size * count)
    # A driver that clears the whole memory leaves no trace of the size.
    size = next(sizes, DOCUMENTED_BYTES)
    starts = range(0, count * size, size)
    pids = (int.from_bytes(memory[start : start + PID_BYTES], "little") for start in starts)
    return frozenset(pid for pid in pids if pid)


def process_util_pct(samples: Iterable[Any]) -> dict[int, float]:
    """Mean share of the time by process, in percent.

    A driver may report more rows than it filled (Syllo/nvtop, issue 110): their values are illegal,
    or those of process 0.

    Args:
        samples: The result of nvmlDeviceGetProcessUtilization.
    """
    by_pid: dict[int, list[float]] = {}
    for sample in samples:
        pid, util_pct = int(sample.pid), int(sample.smUtil)
        if pid and util_pct <= WHOLE_PCT:
            by_pid.setdefault(pid, []).append(float(util_pct))
    return {pid: sum(values) / len(values) for pid, values in by_pid.items()}


class ListedProcesses:
    """The processes that the driver listed for a device in the last ten minutes."""

    def __init__(self) -> None:
        self._listed_ns: dict[int, int] = {}

    def add(self, t_ns: int, pids: Collection[int]) -> None:
        """Add the processes that were listed at CLOCK_MONOTONIC t_ns."""
        listed = self._listed_ns.items()
        self._listed_ns = {pid: at_ns for pid, at_ns in listed if t_ns - at_ns < REMEMBERED_NS}
        self._listed_ns.update(dict.fromkeys(pids, t_ns))

    def have_all(self, pids: Collection[int]) -> bool:
        """Whether all of them were listed."""
        return self._listed_ns.keys() >= set(pids)

    def known(self, util_pct: dict[int, float]) -> dict[int, float]:
        """Discard the utilization of processes that were not listed, whose rows are not true.

        Where none is listed, as in a container with process ids of its own, nothing is known.
        """
        if not self._listed_ns:
            return util_pct
        return {pid: pct for pid, pct in util_pct.items() if pid in self._listed_ns}
